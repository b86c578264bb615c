package lock

import (
	"context"
	"sync"
	"sync/atomic"
)

// calls counts the calls of one sort that are under way. A call may leave work to cleanup, so Close ends cleanup
// after the calls.
type calls struct {
	n, permits atomic.Int64 // n is below 0 once Close waits
	once       sync.Once
	idle       chan struct{} // closed when Close waits and no call is under way
}

const callsClosed = -1 << 62

// enter reports false if the client is closed. Otherwise the caller must call leave.
func (s *calls) enter(permits int) bool {
	s.permits.Add(int64(permits))
	if s.n.Add(1) < 0 {
		s.leave(permits)
		return false
	}
	return true
}

// stay requires one further leave. The caller must be between enter and leave.
func (s *calls) stay(permits int) {
	s.permits.Add(int64(permits))
	s.n.Add(1)
}

func (s *calls) leave(permits int) {
	s.permits.Add(int64(-permits))
	if s.n.Add(-1) == callsClosed {
		s.once.Do(func() { close(s.idle) })
	}
}

// close refuses new calls, and waits until the calls under way have left or ctx ends. close returns the number of
// calls and permits still under way.
func (s *calls) close(ctx context.Context) (n, permits int) {
	s.n.Add(callsClosed + 1)
	s.leave(0)
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
