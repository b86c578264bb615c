package pipeline

import (
	"bytes"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/lockwire/lockwire/resp"
)

// queue holds the commands of a Link from their encoding to their answer, in the order of the replies. An entry is added to
// waiting; a writer moves the entry to inflight, and readLoop moves all entries in flight to reading. So readLoop takes mu
// once for many replies.
//
// The link's mu guards all fields but the atomic ones. readLoop alone changes reading and stores the atomic fields.
type queue struct {
	pending        []byte  // the encoded commands of waiting
	freeBuffer     []byte  // memory for the next pending
	waiting        []entry // not taken by a writer
	inflight       []entry // taken by a writer, not by readLoop
	reading        []entry // taken by readLoop; elements are constant
	answeredBefore int64   // number of entries of all earlier readings
	writeFrom      int64   // number of entries before the last write
	addedBytes     int64   // size of all commands so far
	unsent         int     // number of entries, at the end of those taken, of which a failed write has sent nothing
	partlySent     int32   // commands with a byte sent, of the last entry with any; 0 if all its commands have one

	pos           atomic.Int64 // index in reading of the next entry to be answered
	repliesRead   atomic.Int32 // replies read for the entry at pos, fewer than its replies
	answeredBytes atomic.Int64 // size of all answered commands
}

// entry is a command or a batch that waits for its replies. Entries are in the order of the replies.
type entry struct {
	call      *call         // nil without a waiting caller
	body      *body         // a part of the command that is not copied into pending, or nil
	deadline  time.Duration // of the caller's ctx, as time since Link.Start; it extends the timeout. 0 without one
	size      int           // size of the encoded commands in bytes
	replyFrom int64         // bytes received when a writer took the entry: a reply cannot begin before
	tick      uint32        // the link's ticks when enqueued
	wait      uint32        // the Request's Wait, in ticks; maxTicks for any time
	replies   int32         // number of commands
	blocks    bool          // the Request's Blocks
	verify    func([]resp.Value) error
}

// keptEntries is the largest capacity of a list of entries to keep for the next batch.
const keptEntries = 4 << 10

// unansweredLocked yields the commands and batches without an answer, in the order of the replies.
func (q *queue) unansweredLocked(yield func(*entry) bool) {
	for _, list := range [...][]entry{q.reading[q.pos.Load():], q.inflight, q.waiting} {
		for i := range list {
			if !yield(&list[i]) {
				return
			}
		}
	}
}

// oldestLocked returns the command with the next reply, or nil without one.
func (q *queue) oldestLocked() *entry {
	for e := range q.unansweredLocked {
		return e
	}
	return nil
}

// outstandingLocked returns the number of commands and batches without an answer.
func (q *queue) outstandingLocked() int {
	return len(q.waiting) + len(q.inflight) + len(q.reading) - int(q.pos.Load())
}

// addLocked adds r, with its entry e. Without copying, the caller's memory holds the text of e.body until it is written.
func (q *queue) addLocked(e entry, r Request, copied bool) {
	before := len(q.pending)
	switch {
	case e.body == nil:
		q.pending = append(q.pending, r.Encoded...)
		q.pending = appendCommands(q.pending, r.Commands)
	case copied:
		q.pending = slices.Grow(q.pending, r.At+e.body.size)
		q.pending = append(append(append(q.pending, r.Encoded[:r.At]...), e.body.rest...), e.body.tail...)
		e.body.drop()
		e.body = nil
	default:
		q.pending = append(append(q.pending, r.Encoded[:r.At]...), e.body.cut(textAhead)...)
	}
	e.size = len(q.pending) - before + e.body.length()
	q.waiting = append(q.waiting, e)
	q.addedBytes += int64(e.size)
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

// removeLocked removes the command of k, unless a writer has taken the command or k is completed: then it returns false.
func (q *queue) removeLocked(k *call) bool {
	start := 0
	for i, e := range q.waiting {
		size := e.size - e.body.length()
		if e.call != k {
			start += size
			continue
		}
		e.body.drop()
		q.pending = slices.Delete(q.pending, start, start+size)
		q.waiting = slices.Delete(q.waiting, i, i+1)
		q.addedBytes -= int64(e.size)
		return true
	}
	return false
}

// takeLocked returns the pending bytes to a writer and moves their entries to inflight: from now on they may have
// been sent. takeLocked stops at the first entry with a body and returns the body as x: later commands can still be
// withdrawn, and a writer uses the memory of a single caller. received is the number of bytes received so far.
func (q *queue) takeLocked(received int64) (b []byte, x *body) {
	n, size := 0, 0
	for ; n < len(q.waiting) && x == nil; n++ {
		e := &q.waiting[n]
		e.replyFrom = received
		size += e.size - e.body.length()
		x = e.body
	}
	b = q.pending[:size]
	if size < len(q.pending) { // b and the rest share the memory: the commands of many callers would be long to copy
		b, q.pending = q.pending[:size:size], q.pending[size:]
	} else {
		q.pending, q.freeBuffer = q.freeBuffer[:0], nil
	}
	q.writeFrom = q.answeredBefore + int64(len(q.reading)+len(q.inflight))
	q.inflight = append(q.inflight, q.waiting[:n]...)
	q.waiting = slices.Delete(q.waiting, 0, n)
	return b, x
}

// nextReadingLocked makes the entries in flight the next reading, if all entries of the present one are answered.
func (q *queue) nextReadingLocked() bool {
	if int(q.pos.Load()) < len(q.reading) {
		return false
	}
	free := q.reading[:0]
	if cap(free) > keptEntries {
		free = nil
	}
	q.answeredBefore += int64(len(q.reading))
	q.reading, q.inflight = q.inflight, free
	q.pos.Store(0)
	return true
}

// headLocked returns the entry of reading with the next reply, or nil if its command was not sent.
func (q *queue) headLocked() *entry {
	left := q.reading[q.pos.Load():]
	switch sent := len(left) + len(q.inflight) - q.unsent; {
	case sent <= 0:
		return nil
	case sent == 1 && q.partlySent > 0 && q.repliesRead.Load() >= q.partlySent:
		return nil // of this batch, no further command was sent
	}
	return &left[0]
}

// answered registers a reply to e, the entry at pos, and reports whether the reply is the last.
func (q *queue) answered(e *entry) (last bool) {
	n := q.repliesRead.Load() + 1
	if n < e.replies {
		q.repliesRead.Store(n)
		return false
	}
	if n > 1 {
		q.repliesRead.Store(0)
	}
	q.answeredBytes.Add(int64(e.size))
	q.pos.Add(1)
	return true
}

// countUnsentLocked sets q.unsent and q.partlySent after failedWriteLocked. It goes back through the entries, from the
// last, until an entry has more bytes than are unsent.
func (q *queue) countUnsentLocked(unsent int, b []byte) {
	for _, taken := range [][]entry{q.inflight, q.reading} {
		for _, e := range slices.Backward(taken) {
			if unsent < e.size {
				if unsent > 0 && e.replies > 1 {
					q.partlySent = commandsIn(b[len(b)-e.size : len(b)-unsent])
				}
				return
			}
			q.unsent++
			unsent -= e.size
			b = b[:len(b)-(e.size-e.body.length())]
		}
	}
}

// commandsIn returns the number of commands that begin in b, the first part of encoded commands.
func commandsIn(b []byte) (n int32) {
	for len(b) > 0 {
		line, rest, _ := bytes.Cut(b, []byte("\r\n"))
		if line[0] == '*' {
			n++
			b = rest
			continue
		}
		size, _ := strconv.Atoi(string(line[1:]))
		b = rest[min(size+len("\r\n"), len(rest)):]
	}
	return n
}
