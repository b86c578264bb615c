package main

import (
	"fmt"
	"io"
	"time"
)

// screen is where a run is shown: a board that is redrawn in place, or plain lines.
type screen interface {
	open(f *frame)              // before anything has happened
	note(f *frame, text string) // a turn of the story
	acquired(f *frame, e event) // a worker has got the lock; f is what the server says a moment later
	draw(f *frame)              // ten times a second
	summary(f *frame, checks []check, handover string)
	close() // also after an error, or without any open
}

// nobody is the holder of a free lock, or of a lock held by a stranger.
const nobody = -1

// frame is the picture at an instant.
type frame struct {
	title   string
	lease   time.Duration
	elapsed time.Duration

	// As the server sees the lock.
	silent bool // no answer
	holder int  // worker, or nobody
	holds  int64
	left   time.Duration

	// As reported by the workers.
	counter int64
	workers []tally
	stays   bool // the victim has the lock and keeps the lock
	sprint  bool
	rate    int // holds a second, in the sprint

	since time.Duration // when rate was taken last
	total int           // holds until then
}

func newFrame(s settings, server string) frame {
	return frame{
		title: fmt.Sprintf("%d processes, one lock, lease %v renewed every %v, on %s",
			s.workers, s.lease, (s.lease / 3).Round(time.Millisecond), server),
		lease:  s.lease,
		holder: nobody,
	}
}

func (f *frame) update(elapsed time.Duration, s *score) {
	f.elapsed, f.counter, f.workers = elapsed, s.counter, s.workers
	if d := elapsed - f.since; f.sprint && d >= time.Second-refresh/2 {
		total, _ := totals(f.workers)
		f.rate = int(float64(total-f.total) / d.Seconds())
		f.since, f.total = elapsed, total
	}
}

func (f *frame) beginSprint() {
	f.sprint, f.since = true, f.elapsed
	f.total, _ = totals(f.workers)
}

// state is worker i's activity, in a word or two.
func (f *frame) state(i int) string {
	switch w := &f.workers[i]; {
	case w.killed && f.holder == i:
		return "dead, has the lock"
	case w.killed:
		return "dead"
	case w.ended:
		return "done"
	case f.holder == i:
		return "has the lock"
	}
	return "waits"
}

// writeSummary is the end of both screens.
func writeSummary(w io.Writer, f *frame, checks []check, handover string, paint palette) {
	fmt.Fprintln(w)
	if handover != "" {
		fmt.Fprintf(w, "    %-10s%s\n", "handover", handover)
	}
	for _, c := range checks {
		mark := paint.good("✓")
		if !c.ok {
			mark = paint.bad("✗")
		}
		fmt.Fprintf(w, "  %s %-10s%s\n", mark, c.name, c.text)
	}
	if allWell(checks) {
		fmt.Fprintf(w, "\n  %s\n", paint.good("All is well after "+seconds(f.elapsed)+"."))
	} else {
		fmt.Fprintf(w, "\n  %s\n", paint.bad("Not all is well."))
	}
}
