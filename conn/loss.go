package conn

import "sync"

// losses are the functions to call when what was granted over a connection may not be true any more.
type losses struct {
	mu  sync.Mutex // guards the following
	fns map[*func()]struct{}
}

func (l *losses) add(fn func()) (stop func()) {
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

func (l *losses) tell() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for fn := range l.fns {
		(*fn)()
	}
}

// OnLoss has fn called each time that the Pool loses a connection, or turns to another server, until stop is called: the server
// may have been restarted, or replaced, since it was last heard of. fn must not block and must not use the Pool.
func (p *Pool) OnLoss(fn func()) (stop func()) { return p.losses.add(fn) }
