package cluster

import "sync"

// losses are the functions that OnLoss was given.
type losses struct {
	mu  sync.Mutex // guards the following
	fns map[*func()]struct{}
}

// OnLoss has fn called each time that a connection to a node is lost, or slots have another owner, until stop is called. fn must
// not block and must not use the Cluster.
func (c *Cluster) OnLoss(fn func()) (stop func()) {
	l := &c.losses
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
