package pipeline

import (
	"context"

	"github.com/lockwire/lockwire/internal/netfail"
)

const (
	// maxPending limits the bytes waiting to be written: from this number on, callers wait for room, under their ctx.
	maxPending = 1 << 20

	// socketRoom is the number of unanswered bytes up to which a caller with a cancellable ctx writes itself: a
	// socket's buffer takes them without blocking, even if the peer does not read. writeLoop writes beyond this limit.
	socketRoom = 16 << 10

	// socketWrites is the same limit in unanswered commands, because a small write takes more of the buffer than its
	// bytes.
	socketWrites = 128

	// readsAwaited limits the reads that a write waits for, so that a server sending without end cannot delay the
	// write.
	readsAwaited = 64

	// largestWrite limits the bytes of one call of Write.
	largestWrite = 256 << 10

	// keptBuffer is the largest capacity of a buffer to keep for the next write.
	keptBuffer = 64 << 10
)

// writer is the goroutine that writes the pending commands.
type writer uint8

const (
	nobody    writer = iota
	oneCaller        // the goroutine of a caller, or of the timer
	loop             // writeLoop
)

// enqueue appends q, described by e, and ensures that it is written. It returns an error only if it has not appended q.
func (l *Link) enqueue(ctx context.Context, e entry, q Request) error {
	if ctx.Err() != nil {
		return netfail.Ended(ctx)
	}
	if deadline, ok := ctx.Deadline(); ok && q.Wait != Never {
		e.deadline = deadline.Sub(l.Start)
	}
	if q.Wait > 0 {
		e.wait = l.ticksOf(q.Wait)
	}
	e.blocks = q.Blocks
	l.mu.Lock()
	defer l.mu.Unlock()
	for waits := l.room.Len() > 0; (waits || len(l.pending) >= maxPending) && l.err == nil; waits = false {
		if err := l.awaitRoomLocked(ctx); err != nil {
			return err
		}
	}
	if l.err != nil {
		return l.err
	}
	l.appendLocked(e, q)
	l.openRoomLocked()
	if l.writer != nobody {
		return nil
	}
	l.writer = oneCaller
	if (l.combined || l.outstandingLocked() > 1) && l.writeYields.due() { // other callers are about to send
		l.mu.Unlock()
		d := l.writeYields.yield()
		l.mu.Lock()
		l.writeYields.took(d)
	}
	l.flushLocked(e.call, ctx.Done() == nil)
	return nil
}

// unreadLocked reports whether the next write must wait: no command is in flight, and readLoop has not read all received
// bytes. Unread bytes would look like the reply to the next command, or are the end of the connection. cond is signalled
// after the read.
func (l *Link) unreadLocked() bool {
	for l.unread != nil && l.err == nil && l.outstandingLocked() == len(l.waiting) {
		before := l.from.progress()
		unread, err := l.unread()
		if err != nil && l.failLocked(err) {
			l.HangUp()
		}
		if !unread || err != nil {
			return false
		}
		l.from.wakeNext.Store(true)
		if l.from.progress() == before { // otherwise readLoop has read meanwhile, perhaps before wakeNext was set
			return true
		}
	}
	return false
}

// awaitRoomLocked waits until there is room, and those in front have had theirs. It releases mu meanwhile.
func (l *Link) awaitRoomLocked(ctx context.Context) error {
	called := make(chan struct{})
	place := l.room.PushBack(called)
	var err error
	l.mu.Unlock()
	select {
	case <-called:
	case <-ctx.Done():
		err = netfail.Ended(ctx)
	}
	l.mu.Lock()
	if err == nil {
		return nil
	}
	select {
	case <-called: // in vain: for the next caller
		l.openRoomLocked()
	default:
		l.room.Remove(place)
	}
	return err
}

// openRoomLocked calls the first caller that waits for room, if there is room. The caller calls the next one when it has added its command: with a
// call for all, thousands of callers would wake for each command that is withdrawn.
func (l *Link) openRoomLocked() {
	if len(l.pending) < maxPending {
		l.callFirstLocked()
	}
}

func (l *Link) callFirstLocked() {
	if first := l.room.Front(); first != nil {
		close(l.room.Remove(first).(chan struct{}))
	}
}

// appendLocked appends q to the queue, with its entry e.
func (l *Link) appendLocked(e entry, q Request) {
	e.tick = l.ticks
	l.addLocked(e, q, l.sock == nil) // a blocked Write would keep the caller's memory in use
	l.wakeDeadlinesLocked()
}

// flushLocked writes until no command is pending, or until the pending ones are held back, and then ends the writing. It
// releases mu during a write. k is the call of the writer, or nil.
func (l *Link) flushLocked(k *call, mayBlock bool) {
	for len(l.waiting) > 0 && l.err == nil && !l.behindLocked() { // resume goes on with commands held back
		switch {
		case k != nil && k.state.Load() != awaited: // the writer's own reply is there
		case !mayBlock && !l.fitsLocked(): // the write might block
		case l.unreadLocked(): // readLoop must read first
		default:
			l.writeLocked()
			continue
		}
		l.handOverLocked()
		return
	}
	l.writer = nobody
	if l.err != nil {
		l.cond.Broadcast()
	}
}

// writeLocked takes and writes pending commands. It releases mu meanwhile.
func (l *Link) writeLocked() {
	l.combined = len(l.waiting) > 1
	b, body := l.takeLocked(l.from.received.Load())
	l.openRoomLocked()
	l.mu.Unlock()
	unsent, err := l.write(b, body)
	l.mu.Lock()
	if cap(b) <= keptBuffer {
		l.freeBuffer = b[:0]
	}
	if err != nil {
		l.failedWriteLocked(err, unsent, b)
	}
}

// write writes b, in pieces if b is large, to make progress visible, and then the body x, if any. It returns the number
// of bytes not written.
func (l *Link) write(b []byte, x *body) (unsent int, err error) {
	for len(b) > 0 {
		n, err := l.Conn.Write(b[:min(largestWrite, len(b))])
		b = b[n:]
		if err != nil {
			return len(b) + x.length(), err
		}
		if len(b) > 0 {
			l.largeWritten.Add(int64(n))
		}
	}
	if x != nil {
		return l.writeBody(x)
	}
	return 0, nil
}

// fitsLocked reports whether a write of the pending bytes cannot block: the kernel has a buffer, and they fit into it, together
// with all bytes that the peer may not have read.
func (l *Link) fitsLocked() bool {
	unanswered := l.outstandingLocked() - len(l.waiting)
	return isSocket(l.raw) && l.addedBytes-l.answeredBytes.Load() <= socketRoom && unanswered < socketWrites
}

// handOverLocked leaves the writing to writeLoop, which it starts if necessary.
func (l *Link) handOverLocked() {
	l.writer = loop
	if !l.loopRuns {
		l.loopRuns = true
		l.wg.Go(l.writeLoop)
	}
	l.cond.Broadcast()
}

// writeLoop writes in place of callers that must not block. It starts on first use and ends when the link fails.
func (l *Link) writeLoop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		for l.writer != loop && l.err == nil {
			l.cond.Wait()
		}
		for reads := 0; reads < readsAwaited && l.unreadLocked(); reads++ {
			l.cond.Wait()
		}
		if l.writer == loop {
			if len(l.waiting) > 0 && l.err == nil && !l.behindLocked() {
				l.writeLocked() // even if there are unread bytes again
			}
			l.flushLocked(nil, true)
		}
		if l.err != nil {
			return
		}
	}
}
