package lock

import "sync"

// gates admits the callers of one process one at a time per lock, in order of arrival. The zero gates are ready.
type gates struct {
	mu      sync.Mutex
	lines   map[entryKey][]chan struct{} // by lock; the first channel is closed and its caller admitted; guarded by mu
	streaks map[entryKey]streak          // by lock, of processes that others wait for; guarded by mu
}

// enter puts the caller at the end of the line. turn closes when the caller is admitted. leave removes the caller
// from any place in the line.
func (g *gates) enter(key entryKey) (turn <-chan struct{}, leave func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.enterLocked(key)
}

// tryEnter is enter without waiting.
func (g *gates) tryEnter(key entryKey) (leave func(), ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.lines[key]) > 0 {
		return nil, false
	}
	_, leave = g.enterLocked(key)
	return leave, true
}

func (g *gates) enterLocked(key entryKey) (<-chan struct{}, func()) {
	if g.lines == nil {
		g.lines = make(map[entryKey][]chan struct{})
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
func (g *gates) leave(key entryKey, own chan struct{}) {
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
