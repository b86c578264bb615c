package course

import "slices"

// Latches are those of an undo and its repeats. An undo sets its latch first, and does nothing if it finds its latch. If a right is missing, it
// may have set the latch and done nothing else: then it needs another latch.
type Latches struct {
	Latch   string   // of the next request; "" if it needs a new one
	Arrives bool     // a request with Latch may still arrive
	Parts   bool     // of some request a part has run: a right is or was missing
	inDoubt bool     // an undo without an answer may have set Latch and done nothing else
	former  []string // with which a request may still arrive. At last an undo sets each of them, which stops that request
}

// Unsure follows an undo that had no answer, or of which a part has run.
func (l *Latches) Unsure(part bool) {
	if !part {
		l.Arrives, l.inDoubt = true, l.Parts
		return
	}
	if l.Arrives {
		l.former = append(l.former, l.Latch)
	}
	l.Parts = true
	l.take("")
}

// Answered follows an undo that has run, or has found its latch. It reports whether that was the last one.
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
