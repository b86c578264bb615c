package main

import (
	"fmt"
	"io"
	"strings"
)

const (
	boardWidth = 78
	barWidth   = 24
	// The cursor is out of sight, and long lines are cut, while the board is up.
	boardUp   = "\x1b[?25l\x1b[?7l"
	boardDown = "\x1b[?7h\x1b[?25h"
)

// board is the screen of a terminal: each drawing replaces the last drawing.
type board struct {
	w     io.Writer
	paint palette
	notes []string
	up    bool
	lines int // lines of the last drawing, above the cursor
}

func newBoard(w io.Writer, colour bool) *board { return &board{w: w, paint: palette{colour}} }

func (b *board) open(f *frame) {
	b.up = true
	io.WriteString(b.w, boardUp)
	b.draw(f)
}

func (b *board) note(f *frame, text string) {
	b.notes = append(b.notes, fmt.Sprintf("%9s  %s", seconds(f.elapsed), text))
	b.draw(f)
}

func (b *board) acquired(f *frame, _ event) { b.draw(f) }

func (b *board) draw(f *frame) {
	var out strings.Builder
	if b.lines > 0 {
		fmt.Fprintf(&out, "\x1b[%dA", b.lines)
	}
	drawing := b.compose(f)
	for _, line := range drawing {
		out.WriteString("\r" + line + "\x1b[K\n")
	}
	b.lines = len(drawing)
	io.WriteString(b.w, out.String())
}

func (b *board) compose(f *frame) []string {
	name, clock := "lockwire demo", seconds(f.elapsed)
	drawing := []string{
		b.paint.bold(name) + fmt.Sprintf("%*s", boardWidth-len(name), clock),
		b.paint.dim(f.title),
		"",
	}
	drawing = append(drawing, b.lock(f)...)
	head := fmt.Sprintf("%-14s%8s   %-20s%9s%12s", "", "process", "", "holds", "increments")
	drawing = append(drawing, "", b.paint.dim(head))
	for i, t := range f.workers {
		state := fmt.Sprintf("%-20s", f.state(i))
		switch {
		case t.killed:
			state = b.paint.bad(state)
		case f.holder == i:
			state = b.paint.good(state)
		}
		drawing = append(drawing, fmt.Sprintf("  worker %-5d%8d   %s%9s%12s", i+1, t.pid, state,
			thousands(t.acquired), thousands(t.counted)))
	}
	acquired, counted := totals(f.workers)
	all := fmt.Sprintf("  %-43s%9s%12s", "all", thousands(acquired), thousands(counted))
	drawing = append(drawing, b.paint.dim(all), "")
	return append(drawing, b.notes...)
}

// lock is the two lines about the lock and the counter.
func (b *board) lock(f *frame) []string {
	counter := fmt.Sprintf("  %-12s%s", "counter", thousands(int(f.counter)))
	if f.sprint {
		counter += b.paint.dim(fmt.Sprintf("   %s holds a second", thousands(f.rate)))
	}
	label := fmt.Sprintf("  %-12s", "the lock")
	switch {
	case f.silent:
		return []string{label + b.paint.bad("the server does not answer"), counter}
	case f.holder == nobody:
		return []string{label + b.paint.dim("is free"), counter}
	}
	full := min(barWidth, int((max(0, f.left)*barWidth+f.lease/2)/f.lease))
	bar := strings.Repeat("█", full) + b.paint.dim(strings.Repeat("░", barWidth-full))
	return []string{
		fmt.Sprintf("%s%s   held %d×   lease %s %s", label,
			b.paint.bold(fmt.Sprintf("worker %d", f.holder+1)), f.holds, bar, seconds(f.left)),
		counter,
	}
}

func (b *board) summary(f *frame, checks []check, handover string) {
	f.holder = nobody
	b.draw(f)
	writeSummary(b.w, f, checks, handover, b.paint)
}

func (b *board) close() {
	if b.up {
		b.up = false
		io.WriteString(b.w, boardDown)
	}
}

// palette is the colours of a terminal; the zero palette has none.
type palette struct{ on bool }

func (p palette) bold(s string) string { return p.with("1", s) }
func (p palette) dim(s string) string  { return p.with("2", s) }
func (p palette) good(s string) string { return p.with("32", s) }
func (p palette) bad(s string) string  { return p.with("31", s) }

func (p palette) with(code, s string) string {
	if !p.on {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}
