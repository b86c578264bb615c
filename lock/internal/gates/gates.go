// Package gates admits the callers of a process in turn.
package gates

import (
	"errors"
	"slices"
	"sync"
	"time"
)

// Gates admits the callers of a process, a single caller per lock at a time, in order of arrival. The zero Gates are ready.
type Gates[K comparable] struct {
	mu    sync.Mutex
	lines map[K]*line // by lock, without empty ones; guarded by mu
}

// line is the admitted caller of a lock and the callers behind.
type line struct {
	callers []*caller // the first one is admitted
	failure error     // of the last attempt of an admitted caller; nil after an answer
}

type caller struct {
	turn     chan struct{} // closed once admitted
	answered bool          // an admitted caller has had an answer while this one was in the line, or just before
}

// Enter puts the caller at the end of the line. turn closes when the caller is admitted. leave removes the caller
// from any place in the line.
func (g *Gates[K]) Enter(key K) (turn <-chan struct{}, leave func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.enterLocked(key)
}

// TryEnter is Enter without waiting. A caller that is not admitted is never in the line, where it could keep another one out.
func (g *Gates[K]) TryEnter(key K) (leave func(), ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.lines[key] != nil {
		return nil, false
	}
	_, leave = g.enterLocked(key)
	return leave, true
}

// errUnanswered is the failure of a line before the first Note.
var errUnanswered = errors.New("the caller in front has no answer yet")

// Note records for the callers behind why the admitted caller has had no answer; nil after an answer.
func (g *Gates[K]) Note(key K, failure error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	l := g.lines[key]
	if l == nil {
		return
	}
	l.failure = failure
	for _, c := range l.callers {
		c.answered = c.answered || failure == nil
	}
}

// Failure returns the last record of Note for the caller in the line with a turn: nil if there has been an answer since just before its
// Enter, even if later attempts have failed.
func (g *Gates[K]) Failure(key K, turn <-chan struct{}) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	l := g.lines[key]
	if l == nil || slices.ContainsFunc(l.callers, func(c *caller) bool { return c.turn == turn && c.answered }) {
		return nil
	}
	return l.failure
}

func (g *Gates[K]) enterLocked(key K) (<-chan struct{}, func()) {
	if g.lines == nil {
		g.lines = make(map[K]*line)
	}
	l := g.lines[key]
	if l == nil {
		l = &line{failure: errUnanswered}
		g.lines[key] = l
	}
	own := &caller{turn: make(chan struct{}), answered: l.failure == nil}
	if l.callers = append(l.callers, own); len(l.callers) == 1 {
		close(own.turn)
	}
	return own.turn, func() { g.leave(key, own) }
}

// leave has no effect at the second call.
func (g *Gates[K]) leave(key K, own *caller) {
	g.mu.Lock()
	defer g.mu.Unlock()
	l := g.lines[key]
	if l == nil {
		return
	}
	i := slices.Index(l.callers, own)
	if i < 0 {
		return
	}
	l.callers = slices.Delete(l.callers, i, i+1)
	switch {
	case len(l.callers) == 0:
		delete(g.lines, key)
	case i == 0:
		close(l.callers[0].turn)
	}
}

// Free reports whether no caller is admitted to any lock.
func (g *Gates[K]) Free() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.lines) == 0
}

const (
	maxMarks = 64               // limits the locks remembered
	markLife = 30 * time.Second // of what may be true no more
)

// Marks remembers something of locks for half a minute. The zero Marks is ready.
type Marks[K comparable] struct {
	mu sync.Mutex
	of map[K]time.Time // the time of the mark; guarded by mu
}

// Set marks a lock, or removes the mark.
func (m *Marks[K]) Set(key K, marked bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case !marked:
		delete(m.of, key)
	case m.of == nil || len(m.of) >= maxMarks:
		m.of = map[K]time.Time{key: time.Now()}
	default:
		m.of[key] = time.Now()
	}
}

// Has reports whether a lock is marked.
func (m *Marks[K]) Has(key K) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	at, ok := m.of[key]
	return ok && time.Since(at) < markLife
}
