package lock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
)

// Close ends what the client runs: waiting calls return [ErrClosed], every lease still held is told that it is lost, with
// [ClientClosed] as the reason, and renewal stops. The locks themselves stay taken until their leases end or until
// Unlock, which still works, is called: Close cannot know whether the work they guard has stopped. Releases that were not
// confirmed, and acquires that are to be undone, are repeated for one more second; if that is not enough the error is a
// [*CloseError], which says what the server may have kept. Closing twice is fine, and returns the same.
func (c *Client) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), cleanupLast)
	defer cancel()
	return c.CloseContext(ctx)
}

// CloseContext is Close with ctx in the place of its second: what is not confirmed is repeated until that is over.
func (c *Client) CloseContext(ctx context.Context) error {
	c.once.Do(func() { c.closeErr = c.close(ctx) })
	return errors.Join(c.closeErr, c.events.Close())
}

func (c *Client) close(ctx context.Context) error {
	c.mu.Lock()
	c.closed = true
	close(c.done)
	var held []*Lease
	for _, e := range c.entries {
		for l := e.leases; l != nil; l = l.next {
			held = append(held, l)
		}
	}
	c.mu.Unlock()
	c.end()
	for _, l := range held {
		l.lose(ClientClosed, nil)
	}
	c.calm()
	c.watchdog.close()
	c.queued.Wait()
	var given CloseError
	var returned int
	given.Acquires, given.Permits = c.calls.close(ctx)
	given.Changes, returned = c.changes.close(ctx)
	given.Permits += returned
	rest := c.cleanup.close(ctx)
	given.join(rest)
	c.bounds.close(c)
	c.tasks.Wait()
	c.timers.Wait()
	if given == (CloseError{}) {
		return nil
	}
	c.warn("closed before all was given back", "releases", given.Releases, "acquires", given.Acquires,
		"changes", given.Changes, "permits", given.Permits)
	return &given
}

// CloseError is the error of a Close that has given up what the server had not confirmed, or of one that comes after that of its
// [Server], with which the same was given up. Locks come free when their leases end. Permits of a [Semaphore] have no lease: they
// may be lost.
type CloseError struct {
	Releases int // of locks and leased permits that Unlock had left to the background
	Acquires int // without an answer that were to be undone, those of calls that are still under way among them
	Changes  int // such as the Release of a Semaphore or a CountDown that had been left to the background
	Permits  int // that the server may have as taken because of these
}

// Error says how many of each there are.
func (e *CloseError) Error() string {
	var parts []string
	for _, part := range []struct {
		n    int
		what string
	}{{e.Releases, "releases"}, {e.Acquires, "undone acquires"}, {e.Changes, "changes"}} {
		if part.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", part.n, part.what))
		}
	}
	text := "lock: closed before the server had confirmed " + strings.Join(parts, ", ")
	if e.Permits > 0 {
		text += fmt.Sprintf(", of %d permits", e.Permits)
	}
	return text
}

// Is makes errors.Is find [ErrUncertain].
func (e *CloseError) Is(target error) bool { return target == ErrUncertain }

// add counts a job that is given up.
func (e *CloseError) add(j *job) {
	switch {
	case j.lease != nil:
		e.Releases++
		if j.lease.target.kind.parted {
			e.Permits += j.lease.size()
		}
	case j.change != nil:
		e.Changes++
		e.Permits += j.change.returns
	default:
		e.Acquires++
		e.Permits += j.request.permits
	}
}

func (e *CloseError) join(other CloseError) {
	e.Releases += other.Releases
	e.Acquires += other.Acquires
	e.Changes += other.Changes
	e.Permits += other.Permits
}

// calls counts the calls of a sort that are under way: what comes of them may be left to cleanup, which Close ends after them.
type calls struct {
	n, permits atomic.Int64 // n is below 0 once Close waits
	once       sync.Once
	idle       chan struct{} // closed when Close waits and there is none any more
}

const callsClosed = -1 << 62

// enter reports false when the client is closed; else leave is due.
func (s *calls) enter(permits int) bool {
	s.permits.Add(int64(permits))
	if s.n.Add(1) < 0 {
		s.leave(permits)
		return false
	}
	return true
}

// stay makes one leave more due, before the one that is.
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

// close lets nobody enter any more, and waits for the others until ctx is over. It returns how many there are then.
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
