package pipeline

import (
	"context"
	"slices"

	"github.com/lockwire/lockwire/internal/netfail"
	"github.com/lockwire/lockwire/resp"
)

const (
	// maxPending is the number of bytes waiting to be written from which callers wait for room, under their ctx.
	maxPending = 1 << 20

	// socketRoom is the number of unanswered bytes up to which a caller with a cancellable ctx writes itself: a
	// socket's buffer takes them without blocking, even if the peer does not read. writeLoop writes beyond this
	// limit.
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

// enqueue appends q, described by e, and ensures that it is written. It returns an error only if it has not appended
// q.
func (l *Link) enqueue(ctx context.Context, e entry, q Request) error {
	if ctx.Err() != nil {
		return netfail.Ended(ctx)
	}
	if deadline, ok := ctx.Deadline(); ok && q.Wait != Never {
		e.limit = deadline.Sub(l.Start)
	}
	if q.Wait > 0 {
		e.wait = l.ticksOf(q.Wait)
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
	l.flushLocked(e.call, ctx.Done() == nil)
	return nil
}

// unreadLocked reports whether bytes have arrived and are not read yet while no command is in flight. These bytes cannot be a
// reply to the next write, but would look like one: readLoop must read them first. They may also be the end of the
// connection. cond is signalled after the read.
func (l *Link) unreadLocked() bool {
	for l.early != nil && l.err == nil && l.outstandingLocked() == len(l.waiting) {
		before := l.from.progress()
		unread, err := l.early.unread()
		if err != nil && l.failLocked(err) {
			l.hangUp()
		}
		if !unread {
			return false
		}
		l.from.awaited.Store(true)
		if l.from.progress() == before {
			return true
		}
	}
	return false
}

// gatherLocked yields to callers about to send, whose commands then join the next write. mu is released meanwhile.
func (l *Link) gatherLocked() {
	if l.writes.due() {
		l.mu.Unlock()
		d := l.writes.yield()
		l.mu.Lock()
		l.writes.took(d)
	}
}

// awaitRoomLocked waits until a writer takes the pending commands. It releases mu meanwhile.
func (l *Link) awaitRoomLocked(ctx context.Context) error {
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
		return netfail.Ended(ctx)
	}
}

func (l *Link) openRoomLocked() {
	if l.room != nil {
		close(l.room)
		l.room = nil
	}
}

func (l *Link) appendLocked(e entry, q Request) {
	before := len(l.pending)
	switch {
	case e.body == nil:
		l.pending = append(l.pending, q.Encoded...)
		l.pending = appendCommands(l.pending, q.Commands)
	case l.sock == nil: // the writer may keep the memory for long
		l.pending = slices.Grow(l.pending, q.At+e.body.size)
		l.pending = append(append(append(l.pending, q.Encoded[:q.At]...), e.body.rest...), e.body.tail...)
		e.body.drop()
		e.body = nil
	default:
		l.pending = append(append(l.pending, q.Encoded[:q.At]...), e.body.cut(textAhead)...)
		l.bodies++
	}
	e.tick, e.size = l.ticks, len(l.pending)-before+e.body.length()
	l.waiting = append(l.waiting, e)
	l.queued += int64(e.size)
	l.wakeDeadlinesLocked()
}

func appendCommands(dst []byte, cmds []resp.Command) []byte {
	size := 0
	for i := range cmds {
		size += cmds[i].Size()
	}
	dst = slices.Grow(dst, size)
	for i := range cmds {
		dst = cmds[i].AppendTo(dst)
	}
	return dst
}

// flushLocked writes until no command is pending, and then ends the writing. It releases mu during a write.
//
// flushLocked leaves the rest to writeLoop in three cases:
//
//   - the caller's own call k is completed;
//   - mayBlock is false, and the write might block;
//   - unread bytes must be read first.
func (l *Link) flushLocked(k *call, mayBlock bool) {
	for len(l.waiting) > 0 && l.err == nil {
		if k != nil && k.state.Load() != awaited || !mayBlock && !l.fitsLocked() || l.unreadLocked() {
			l.handOverLocked()
			return
		}
		l.writeLocked()
	}
	l.writing = false
	if l.err != nil {
		l.cond.Broadcast()
	}
}

// writeLocked writes what is pending. It releases mu meanwhile.
func (l *Link) writeLocked() {
	b, body := l.takeLocked()
	l.mu.Unlock()
	unsent, err := l.write(b, body)
	l.mu.Lock()
	if cap(b) <= keptBuffer {
		l.spare = b[:0]
	}
	if err != nil {
		l.failedWriteLocked(err, unsent, b)
	}
}

// write writes b, in pieces if b is large, to make progress visible, and then the body x, if any. It returns the number
// of bytes not written.
func (l *Link) write(b []byte, x *body) (unsent int, err error) {
	for len(b) > 0 {
		n, err := l.nc.Write(b[:min(largestWrite, len(b))])
		b = b[n:]
		if err != nil {
			x.drop()
			return len(b) + x.length(), err
		}
		if len(b) > 0 {
			l.wrote.Add(int64(n))
		}
	}
	if x != nil {
		return l.writeBody(x)
	}
	return 0, nil
}

// takeLocked returns the pending bytes to a writer and moves their entries to inflight: from now on they may have
// been sent. If an entry has a body, takeLocked returns the bytes up to the body: the commands after it can still be
// withdrawn, so a link reads the memory of one caller at a time.
func (l *Link) takeLocked() (b []byte, x *body) {
	n, size := len(l.waiting), len(l.pending)
	if l.bodies > 0 {
		l.bodies--
		n = 1 + slices.IndexFunc(l.waiting, func(e entry) bool { return e.body != nil })
		x = l.waiting[n-1].body
		size = 0
		for _, e := range l.waiting[:n] {
			size += e.size
		}
		size -= x.size
	}
	b = l.pending[:size]
	l.writeFrom = l.answered + int64(len(l.batch)+len(l.inflight))
	if size < len(l.pending) { // copying the rest would cost as much as the body, if many callers wait behind it
		b, l.pending = l.pending[:size:size], l.pending[size:]
	} else {
		l.pending, l.spare = l.spare[:0], nil
	}
	l.crowd = len(l.waiting) > 1
	after := l.from.received.Load()
	for i := range l.waiting[:n] {
		l.waiting[i].after = after
	}
	l.inflight = append(l.inflight, l.waiting[:n]...)
	l.waiting = slices.Delete(l.waiting, 0, n)
	l.openRoomLocked()
	return b, x
}

// fitsLocked reports whether a write of the pending bytes cannot block: they fit into the socket's buffer, together
// with all bytes that the peer may not have read.
func (l *Link) fitsLocked() bool {
	unanswered := l.outstandingLocked() - len(l.waiting)
	return l.socket && l.queued-l.settled.Load() <= socketRoom && unanswered < socketWrites
}

// handOverLocked leaves the writing to writeLoop.
func (l *Link) handOverLocked() {
	l.handed = true
	if !l.looping {
		l.looping = true
		l.wg.Go(l.writeLoop)
	}
	l.cond.Broadcast()
}

// writeLoop writes in place of callers that may not block. It starts on first use and ends when the link fails.
func (l *Link) writeLoop() {
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
			if len(l.waiting) > 0 && l.err == nil {
				l.writeLocked() // even if there are unread bytes again
			}
			l.flushLocked(nil, true)
		}
		if l.err != nil {
			return
		}
	}
}

// withdraw removes the command of k from the pending commands. It returns false if a writer has taken the command, or
// if k is completed.
func (l *Link) withdraw(k *call) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	start := 0
	for i, e := range l.waiting {
		size := e.size - e.body.length()
		if e.call != k {
			start += size
			continue
		}
		if e.body != nil {
			l.bodies--
			e.body.drop()
		}
		l.pending = slices.Delete(l.pending, start, start+size)
		l.waiting = slices.Delete(l.waiting, i, i+1)
		l.queued -= int64(e.size)
		l.openRoomLocked()
		return true
	}
	return false
}
