// Package callback holds functions to call on an event.
package callback

import "sync"

// List is a list of functions. The zero List is empty. Its methods may be called concurrently.
type List struct {
	mu  sync.Mutex // guards the following
	fns map[*func()]struct{}
}

// Add registers fn for every Call until stop is called. fn must not block and must not use the
// List.
func (l *List) Add(fn func()) (stop func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fns == nil {
		l.fns = make(map[*func()]struct{})
	}
	key := &fn
	l.fns[key] = struct{}{}
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.fns, key)
	}
}

// Call calls the functions in turn, in no particular order.
func (l *List) Call() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for fn := range l.fns {
		(*fn)()
	}
}
