package course

import "slices"

// Latches are the latches of an undo and its repeats. An undo sets its latch first, and does nothing if the latch is set already. An undo stopped
// by a missing right may have set the latch without undoing anything: a repeat needs another latch.
type Latches struct {
	Latch   string   // of the next request; "" if it needs a new one
	Arrives bool     // a request with Latch may still arrive
	inDoubt bool     // an undo without an answer may have set Latch without undoing anything: perhaps its refusal was lost
	former  []string // latches of requests still on their way. In the end an undo sets each of these latches, and so stops the request
}

// Unsure follows an undo without an answer or, with part, an undo stopped in the middle.
func (l *Latches) Unsure(part bool) {
	if !part {
		l.Arrives, l.inDoubt = true, true
		return
	}
	if l.Arrives {
		l.former = append(l.former, l.Latch)
	}
	l.take("")
}

// Answered follows an answered undo, and reports whether no further undo is needed.
func (l *Latches) Answered() (last bool) {
	l.former = slices.DeleteFunc(l.former, func(latch string) bool { return latch == l.Latch })
	switch {
	case l.inDoubt:
		l.take("")
	case len(l.former) > 0:
		l.take(l.former[0])
	default:
		return true
	}
	return false
}

func (l *Latches) take(latch string) { l.Latch, l.Arrives, l.inDoubt = latch, false, false }
