package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// lines is the screen of logs and pipes: a line for each event, and one a second where nothing happens.
type lines struct {
	w      io.Writer
	holder int           // of the last line
	last   time.Duration // the time of the line
}

func newLines(w io.Writer) *lines { return &lines{w: w, holder: nobody} }

func (l *lines) open(f *frame) {
	fmt.Fprintf(l.w, "lockwire demo: %s\n\n", f.title)
	fmt.Fprintln(l.w, "     time  has the lock    holds  lease left  counter    waited")
}

func (l *lines) note(f *frame, text string) {
	l.line(f, "> %s", text)
}

func (l *lines) acquired(f *frame, e event) {
	r := e.report
	holds, left := r.Holds, "-"
	if f.holder == e.worker {
		holds, left = f.holds, seconds(f.left)
	}
	l.row(f, e.worker, holds, left, seconds(r.At.Sub(r.Asked)))
	l.holder = e.worker
}

func (l *lines) row(f *frame, worker int, holds int64, left, waited string) {
	name := "worker " + strconv.Itoa(worker+1)
	if f.workers[worker].killed {
		name += ", dead"
	}
	l.line(f, "%-14s  %5d  %10s  %7s  %8s", name, holds, left, thousands(int(f.counter)), waited)
}

func (l *lines) line(f *frame, format string, args ...any) {
	text := fmt.Sprintf("%9s  ", seconds(f.elapsed)) + fmt.Sprintf(format, args...)
	fmt.Fprintln(l.w, strings.TrimRight(text, " "))
	l.last = f.elapsed
}

func (l *lines) draw(f *frame) {
	if f.elapsed-l.last < time.Second-refresh/2 {
		return
	}
	switch {
	case f.sprint:
		l.line(f, "%-33s  %7s", thousands(f.rate)+" holds a second", thousands(int(f.counter)))
	case f.holder != nobody && f.holder == l.holder:
		l.row(f, f.holder, f.holds, seconds(f.left), "")
	case f.silent:
		l.note(f, "the server does not answer")
	}
}

func (l *lines) summary(f *frame, checks []check, handover string) {
	fmt.Fprintf(l.w, "\n    %-10s%8s%9s%12s\n", "", "process", "holds", "increments")
	for i, t := range f.workers {
		end := ""
		if t.killed {
			end = "   killed"
		}
		fmt.Fprintf(l.w, "    worker %-3d%8d%9s%12s%s\n", i+1, t.pid, thousands(t.acquired), thousands(t.counted), end)
	}
	acquired, counted := totals(f.workers)
	fmt.Fprintf(l.w, "    %-10s%17s%12s\n", "all", thousands(acquired), thousands(counted))
	writeSummary(l.w, f, checks, handover, palette{})
}

func (l *lines) close() {}
