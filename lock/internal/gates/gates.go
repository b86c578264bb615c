// Package gates admits the callers of a process in turn.
package gates

import "sync"

// Gates admits the callers of a process, a single caller per lock at a time, in order of arrival. The zero Gates are ready.
type Gates[K comparable] struct {
	mu    sync.Mutex
	lines map[K][]chan struct{} // by lock; the first channel is closed and its caller admitted; guarded by mu
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
	if len(g.lines[key]) > 0 {
		return nil, false
	}
	_, leave = g.enterLocked(key)
	return leave, true
}

func (g *Gates[K]) enterLocked(key K) (<-chan struct{}, func()) {
	if g.lines == nil {
		g.lines = make(map[K][]chan struct{})
	}
	own := make(chan struct{})
	line := g.lines[key]
	if len(line) == 0 {
		close(own)
	}
	g.lines[key] = append(line, own)
	return own, func() { g.leave(key, own) }
}

// leave has no effect at the second call.
func (g *Gates[K]) leave(key K, own chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i, c := range g.lines[key] {
		if c != own {
			continue
		}
		line := append(g.lines[key][:i], g.lines[key][i+1:]...)
		if g.lines[key] = line; len(line) == 0 {
			delete(g.lines, key)
		} else if i == 0 {
			close(line[0])
		}
		return
	}
}

// Free reports whether no caller is admitted to any lock.
func (g *Gates[K]) Free() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.lines) == 0
}
