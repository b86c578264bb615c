package bounds

import (
	"context"
	"sync"
	"sync/atomic"
)

// Calls counts the calls of one sort that are under way. A call may leave work to cleanup, so Close ends cleanup after the calls.
// The zero Calls is ready.
type Calls struct {
	n, permits atomic.Int64 // n is below 0 once Close waits
	once       sync.Once
	idle       chan struct{} // made by Close, and closed when no call is under way
}

const callsClosed = -1 << 62

// Enter reports false after the beginning of Close. Otherwise the caller must call Leave.
func (s *Calls) Enter(permits int) bool {
	s.permits.Add(int64(permits))
	if s.n.Add(1) < 0 {
		s.Leave(permits)
		return false
	}
	return true
}

// Stay requires one further Leave. The caller must be between Enter and Leave.
func (s *Calls) Stay(permits int) {
	s.permits.Add(int64(permits))
	s.n.Add(1)
}

// Leave ends a call.
func (s *Calls) Leave(permits int) {
	s.permits.Add(int64(-permits))
	if s.n.Add(-1) == callsClosed {
		s.once.Do(func() { close(s.idle) })
	}
}

// Close refuses new calls, and waits until the calls under way have left or ctx ends. Close returns the number of calls and permits
// still under way. It is called once.
func (s *Calls) Close(ctx context.Context) (n, permits int) {
	s.idle = make(chan struct{})
	s.n.Add(callsClosed + 1)
	s.Leave(0)
	select {
	case <-s.idle:
		return 0, 0
	case <-ctx.Done():
	}
	if n = int(s.n.Load() - callsClosed); n == 0 {
		return 0, 0
	}
	return n, int(s.permits.Load())
}
