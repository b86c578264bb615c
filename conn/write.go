package conn

import "context"

const (
	// maxPending is how many bytes may wait to be written before callers wait for room, under their ctx.
	maxPending = 1 << 20

	// socketRoom is how many unanswered bytes a caller that must be able to leave writes itself: a socket's buffer
	// takes them without blocking, however mute the peer. What exceeds it is left to writeLoop.
	socketRoom = 16 << 10

	// socketWrites is how many unanswered commands at most it writes so, as each small write takes more of the buffer
	// than its bytes.
	socketWrites = 128

	// readsAwaited is how many reads a write waits for at most, so that a server that never stops sending cannot hold it up.
	readsAwaited = 64

	// largestWrite is how many bytes are written at once.
	largestWrite = 256 << 10

	// keptBuffer is the capacity up to which a buffer is kept for the next write.
	keptBuffer = 64 << 10
)

// enqueue appends q, described by e, and sees to it that it is written. It returns an error only if it has not been
// appended.
func (l *link) enqueue(ctx context.Context, e entry, q request) error {
	if ctx.Err() != nil {
		return ended(ctx)
	}
	if deadline, ok := ctx.Deadline(); ok && e.limit != never {
		e.limit = deadline.Sub(l.start)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.pending) >= maxPending && l.err == nil {
		if err := l.awaitRoomLocked(ctx); err != nil {
			return err
		}
	}
	if l.err != nil {
		return l.err
	}
	l.appendLocked(e, q)
	if l.writing {
		return nil
	}
	l.writing = true
	if l.crowd || l.outstandingLocked() > 1 {
		l.gatherLocked()
	}
	l.flushLocked(e.call, ctx.Done() == nil, false)
	return nil
}

// unreadLocked reports whether something has come that readLoop has not read yet, and nothing is in flight. It must be read
// first: it is no answer to what is written now, but could not be told from one any more; or it is the end of the
// connection. When more has been read, cond is signalled.
func (l *link) unreadLocked() bool {
	for l.sock != nil && l.err == nil && l.outstandingLocked() == len(l.waiting) {
		before := l.from.received.Load()
		unread, err := l.sock.peek()
		if err != nil && l.failLocked(err) {
			l.hangUp()
		}
		if !unread {
			return false
		}
		l.from.awaited.Store(true)
		if l.from.received.Load() == before {
			return true
		}
	}
	return false
}

// gatherLocked lets those join the next write who are about to. It releases mu in the meantime.
func (l *link) gatherLocked() {
	if l.writes.due() {
		l.mu.Unlock()
		d := l.writes.yield()
		l.mu.Lock()
		l.writes.took(d)
	}
}

// awaitRoomLocked waits until somebody takes what is pending. It releases mu in the meantime.
func (l *link) awaitRoomLocked(ctx context.Context) error {
	if l.room == nil {
		l.room = make(chan struct{})
	}
	room := l.room
	l.mu.Unlock()
	defer l.mu.Lock()
	select {
	case <-room:
		return nil
	case <-ctx.Done():
		return ended(ctx)
	}
}

func (l *link) openRoomLocked() {
	if l.room != nil {
		close(l.room)
		l.room = nil
	}
}

func (l *link) appendLocked(e entry, q request) {
	before := len(l.pending)
	l.pending = append(l.pending, q.encoded...)
	for i := range q.cmds {
		l.pending = q.cmds[i].AppendTo(l.pending)
	}
	e.tick, e.size = l.ticks, len(l.pending)-before
	l.waiting = append(l.waiting, e)
	l.queued += int64(e.size)
	l.wakeWatchLocked()
}

// flushLocked writes what is pending until nothing is, and then ends the writing. It releases mu while it writes.
//
// A caller whose own call k is completed, or that may not block while the peer does not read, leaves the rest to
// writeLoop; so does everybody who finds something that has to be read first, unless read says that this has been seen to.
func (l *link) flushLocked(k *call, mayBlock, read bool) {
	for first := true; len(l.pending) > 0 && l.err == nil; first, read = false, false {
		if k != nil && !first && k.state.Load() != awaited || !mayBlock && !l.fitsLocked() || !read && l.unreadLocked() {
			l.handOverLocked()
			return
		}
		b := l.takeLocked()
		l.mu.Unlock()
		n, err := l.write(b)
		l.mu.Lock()
		if cap(b) <= keptBuffer {
			l.spare = b[:0]
		}
		if err != nil {
			l.unsent = len(b) - n
			if l.failLocked(err) {
				l.hangUp()
			}
		}
	}
	l.writing = false
	if l.err != nil {
		l.cond.Broadcast()
	}
}

// write writes b, a piece at a time if it is large, so that progress is seen.
func (l *link) write(b []byte) (n int, err error) {
	for {
		m, err := l.nc.Write(b[n:min(n+largestWrite, len(b))])
		if n += m; n == len(b) || err != nil {
			return n, err
		}
		l.wrote.Add(int64(m))
	}
}

// takeLocked returns what is pending, for a writer, and makes its commands ones that may have been sent.
func (l *link) takeLocked() []byte {
	b := l.pending
	l.writeFrom = l.answered + int64(len(l.batch)+len(l.inflight))
	l.pending, l.spare = l.spare[:0], nil
	l.crowd = len(l.waiting) > 1
	after := l.from.received.Load()
	for i := range l.waiting {
		l.waiting[i].after = after
	}
	l.inflight = append(l.inflight, l.waiting...)
	clear(l.waiting)
	l.waiting = l.waiting[:0]
	l.openRoomLocked()
	return b
}

// fitsLocked reports whether a write of what is pending cannot block: with all that the peer may not have read yet, it
// fits into the socket's buffer.
func (l *link) fitsLocked() bool {
	unanswered := l.outstandingLocked() - len(l.waiting)
	return l.socket && l.queued-l.settled.Load() <= socketRoom && unanswered < socketWrites
}

// handOverLocked leaves the writing to writeLoop.
func (l *link) handOverLocked() {
	l.handed = true
	if !l.looping {
		l.looping = true
		l.wg.Go(l.writeLoop)
	}
	l.cond.Broadcast()
}

// writeLoop writes where callers may not block. It starts when it is first needed and ends when the link fails.
func (l *link) writeLoop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		for !l.handed && l.err == nil {
			l.cond.Wait()
		}
		for reads := 0; reads < readsAwaited && l.unreadLocked(); reads++ {
			l.cond.Wait()
		}
		if l.handed {
			l.handed = false
			l.flushLocked(nil, true, true)
		}
		if l.err != nil {
			return
		}
	}
}

// withdraw removes the command of k from what is pending. It returns false if a writer has taken it, or if it is
// completed.
func (l *link) withdraw(k *call) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	start := 0
	for i, e := range l.waiting {
		if e.call != k {
			start += e.size
			continue
		}
		l.pending = append(l.pending[:start], l.pending[start+e.size:]...)
		l.waiting = append(l.waiting[:i], l.waiting[i+1:]...)
		l.queued -= int64(e.size)
		l.openRoomLocked()
		return true
	}
	return false
}
