package pipeline

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// A link ends in three steps: failLocked notes the reason, HangUp closes the connection, and readLoop, which then ends,
// completes the remaining calls by finish. After a failed write readLoop reads on before it hangs up.

// Fail closes the Link with the reason err, unless the Link has failed before. Calls in progress end with this reason.
// Fail does not wait for them. After a failed write, a following errUnasked is added to the reason: the server's
// explanation.
func (l *Link) Fail(err error) {
	l.mu.Lock()
	if l.readsRest && errors.Is(err, errUnasked) {
		l.err = fmt.Errorf("%w: %w", l.err, err)
	}
	failed := l.failLocked(err) || l.readsRest
	l.readsRest = false
	l.mu.Unlock()
	if failed {
		l.HangUp()
	}
}

// failLocked marks the link as failed. After true, the caller must call HangUp.
func (l *Link) failLocked(err error) bool {
	if l.err != nil {
		return false
	}
	l.err = err
	l.failed.Store(true)
	close(l.done)
	for l.room.Len() > 0 {
		l.callFirstLocked()
	}
	l.stopDeadlinesLocked()
	l.cond.Broadcast()
	return true
}

// lastReplies is the time to read replies after a failed write.
const lastReplies = 100 * time.Millisecond

// failedWriteLocked marks the link as failed by a write that left unsent bytes. The write was of b, and of a body if the
// last entry has one. A server that closes the connection may have said why. So readLoop reads what has arrived, for
// lastReplies at most, and then hangs up.
func (l *Link) failedWriteLocked(err error, unsent int, b []byte) {
	l.countUnsentLocked(unsent, b)
	if !l.failLocked(err) {
		return
	}
	l.readsRest = l.Conn.SetReadDeadline(time.Now().Add(lastReplies)) == nil
	if !l.readsRest {
		l.HangUp()
	}
}

// Failed reports whether the Link has failed, without waiting for a mutex.
func (l *Link) Failed() bool { return l.failed.Load() }

// Done returns a channel that closes when the Link fails.
func (l *Link) Done() <-chan struct{} { return l.done }

// Err returns the reason of the failure, or nil.
func (l *Link) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

func (l *Link) finish() {
	l.HangUp()
	l.mu.Lock()
	for l.writer != nobody { // short, since the connection is closed
		l.cond.Wait()
	}
	all := slices.Concat(l.reading[l.pos.Load():], l.inflight, l.waiting)
	sent, err := len(all)-len(l.waiting)-l.unsent, l.err
	l.reading, l.inflight, l.waiting, l.pending, l.freeBuffer = nil, nil, nil, nil, nil
	l.pos.Store(0)
	l.mu.Unlock()
	for i, e := range all {
		e.body.drop()
		if e.call != nil {
			e.call.err, e.call.sent = err, i < sent
			l.complete(e.call)
		}
	}
	<-l.closed // until then the connection counts: another goroutine may be at it
	l.owner.Lost(l, len(all), err)
}
