package conn

import (
	"sync"

	"github.com/lockwire/lockwire/resp"
)

// maxPushes limits the pushes that wait for the callback; beyond it the oldest is dropped.
const maxPushes = 1024

// pushes delivers pushes to a callback in a goroutine of its own, so that no reply waits for the callback.
type pushes struct {
	deliver func(resp.Value) // constant

	mu      sync.Mutex // guards the following
	cond    sync.Cond
	queue   []resp.Value
	dropped uint64
	closed  bool
}

// newPushes starts a goroutine, counted by wg, that delivers to deliver until close. If deliver is nil, newPushes
// returns nil, which is valid and drops all pushes.
func newPushes(deliver func(resp.Value), wg *sync.WaitGroup) *pushes {
	if deliver == nil {
		return nil
	}
	q := &pushes{deliver: deliver}
	q.cond.L = &q.mu
	wg.Go(q.pushLoop)
	return q
}

// add never blocks.
func (q *pushes) add(v resp.Value) {
	if q == nil {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return
	}
	if len(q.queue) == maxPushes {
		q.queue = q.queue[1:]
		q.dropped++
	}
	q.queue = append(q.queue, v)
	q.cond.Signal()
}

func (q *pushes) close() {
	if q == nil {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.cond.Signal()
}

func (q *pushes) pushLoop() {
	for {
		q.mu.Lock()
		for len(q.queue) == 0 && !q.closed {
			q.cond.Wait()
		}
		if q.closed {
			q.mu.Unlock()
			return
		}
		v := q.queue[0]
		q.queue = q.queue[1:]
		q.mu.Unlock()
		q.deliver(v)
	}
}

// droppedCount returns the number of dropped pushes.
func (q *pushes) droppedCount() uint64 {
	if q == nil {
		return 0
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.dropped
}
