package conn

import (
	"sync"
	"sync/atomic"

	"github.com/lockwire/lockwire/resp"
)

// The pushes that wait for the callback are limited in number and bytes. Beyond a limit the oldest are dropped, but never
// the newest. The same limits are for the pushes of a handshake.
const (
	maxPushes    = 1024
	maxPushBytes = 16 << 20
)

// tooMany reports whether so many pushes are beyond a limit. A single push has only the limits of the reader.
func tooMany(pushes, bytes int) bool { return pushes > maxPushes || bytes > maxPushBytes && pushes > 1 }

// pushes delivers pushes to a callback in a goroutine of its own, so that no reply waits for the callback.
type pushes struct {
	deliver func(resp.Value) // constant
	dropped atomic.Uint64

	mu     sync.Mutex // guards the following
	cond   sync.Cond
	queue  []resp.Value
	bytes  int // size of the queue
	closed bool
}

// newPushes starts a goroutine, counted by wg, that delivers to deliver until close. A nil deliver needs no goroutine, and
// all pushes are dropped without being counted.
func newPushes(deliver func(resp.Value), wg *sync.WaitGroup) *pushes {
	q := &pushes{deliver: deliver, closed: deliver == nil}
	q.cond.L = &q.mu
	if deliver != nil {
		wg.Go(q.pushLoop)
	}
	return q
}

// add never blocks.
func (q *pushes) add(v resp.Value) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return
	}
	q.queue = append(q.queue, v)
	q.bytes += sizeOf(v)
	for tooMany(len(q.queue), q.bytes) {
		q.removeLocked()
		q.dropped.Add(1)
	}
	q.cond.Signal()
}

func (q *pushes) removeLocked() resp.Value {
	v := q.queue[0]
	q.queue[0] = resp.Value{} // the queue's memory would keep v
	q.queue = q.queue[1:]
	q.bytes -= sizeOf(v)
	return v
}

// sizeOf returns the memory of a value, approximately.
func sizeOf(v resp.Value) int {
	const structs = 64
	size := structs
	switch v.Kind() {
	case resp.SimpleString, resp.BulkString, resp.VerbatimString, resp.BigNumber:
		text, _ := v.Text()
		size += len(text)
	}
	for e := range v.All() {
		size += sizeOf(e)
	}
	for name, e := range v.Attrs() {
		size += sizeOf(name) + sizeOf(e)
	}
	return size
}

func (q *pushes) close() {
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
		v := q.removeLocked()
		q.mu.Unlock()
		q.deliver(v)
	}
}
