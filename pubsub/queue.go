package pubsub

import (
	"sync"
	"sync/atomic"
)

const (
	// ready is how many events the channel of a Subscription has room for.
	ready = 16

	// eventBytes is what an event takes in a queue beside its texts.
	eventBytes = 100

	// smallBacklog is how many events a backlog has room for without growing, and keeps room for when it is empty.
	smallBacklog = 64
)

// queue holds the events of a Subscription until its consumer takes them.
//
// As long as the channel has room the events go there. The others are the backlog, which grows up to the limit. While there is one,
// a goroutine, the feeder, sends to the channel from it, and nobody else does; it ends when nothing is left. So a Subscription
// whose consumer keeps up has no goroutine.
type queue struct {
	events  chan Event // closed by close, or by the feeder if there is one
	limit   int        // of bytes
	feeding atomic.Bool

	// Owned by whoever may send: the holder of the Subscriber's mu as long as there is no feeder, or else the feeder, which then has
	// mu locked.
	sizes [ready + 1]int // of the events sent last, a ring
	sent  uint           // how many there have been

	mu sync.Mutex // guards the following; locked behind the Subscriber's

	backlog []*Event // those in front of first are nil
	first   int
	bytes   int           // of the backlog
	changes int           // how many of the backlog are changes of state
	lost    int           // messages dropped and not told
	state   *Event        // the last change of state; also written where there is no feeder
	restate bool          // state has been dropped and is to be told again
	closed  bool          // there was a feeder when the Subscription was closed
	done    chan struct{} // closed with that; nil until the first backlog
}

func newQueue(limit int) *queue { return &queue{events: make(chan Event, ready), limit: limit} }

// size is how much of the limit an event takes.
func (ev *Event) size() int {
	return eventBytes + len(ev.Channel) + len(ev.Pattern) + len(ev.Payload)
}

// changesState reports whether ev is one of those of which only the last counts.
func (ev *Event) changesState() bool { return ev.Kind == Resumed || ev.Kind == Interrupted }

// trySend sends ev if it may go straight to the channel. If it is a change of state, kept is a copy that nobody changes any more. The
// caller holds the Subscriber's mu, as for put and close.
func (q *queue) trySend(ev, kept *Event) bool {
	if q.feeding.Load() || len(q.events) == cap(q.events) {
		return false
	}
	size := ev.size()
	if len(q.events) > 0 && q.sendingBytes()+size > q.limit {
		return false
	}
	if ev.changesState() {
		q.state = kept
	}
	q.noteSent(size)
	q.events <- *ev
	return true
}

// put adds ev, which nobody changes any more, to the backlog, and has feeders joined by keeper. It returns how many messages are
// dropped for it.
func (q *queue) put(ev *Event, keeper *sync.WaitGroup) (dropped int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.pushLocked(ev)
	if q.sendingBytes()+q.bytes > q.limit {
		dropped = q.dropLocked()
	}
	if !q.feeding.Load() {
		q.feeding.Store(true)
		if q.done == nil {
			q.done = make(chan struct{})
		}
		keeper.Go(q.feed)
	}
	return dropped
}

// close lets the consumer have what is in the channel, and drops the rest.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.feeding.Load() {
		close(q.events)
		return
	}
	q.closed = true
	close(q.done)
}

// feed is the feeder.
func (q *queue) feed() {
	for {
		ev, ok := q.next()
		if !ok {
			return
		}
		select {
		case q.events <- ev:
		case <-q.done:
		}
	}
}

// next fills the channel and returns the event for which there is no room any more. Without one the feeder ends.
func (q *queue) next() (ev Event, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		close(q.events)
		q.backlog = nil
		return Event{}, false
	}
	for {
		ev, ok = q.takeLocked()
		if !ok {
			q.feeding.Store(false)
			return Event{}, false
		}
		q.noteSent(ev.size())
		if len(q.events) == cap(q.events) {
			return ev, true
		}
		q.events <- ev
	}
}

// takeLocked removes the event that is to be told next, if there is any.
func (q *queue) takeLocked() (ev Event, ok bool) {
	switch {
	case q.lost > 0:
		ev = Event{Kind: Lagged, N: q.lost}
		q.lost = 0
	case q.restate:
		ev = *q.state
		q.restate = false
	case q.first < len(q.backlog):
		ev = *q.popLocked()
	default:
		return Event{}, false
	}
	return ev, true
}

// noteSent notes that an event of the given size is being sent.
func (q *queue) noteSent(size int) {
	q.sizes[q.sent%uint(len(q.sizes))] = size
	q.sent++
}

// sendingBytes is how much the events in the channel take, and the one for which the feeder waits. It may be too much by one event,
// as long as there is a feeder.
func (q *queue) sendingBytes() int {
	n := uint(len(q.events))
	if q.feeding.Load() {
		n = min(n+1, q.sent)
	}
	sum := 0
	for i := range n {
		sum += q.sizes[(q.sent-1-i)%uint(len(q.sizes))]
	}
	return sum
}

// dropLocked drops the oldest events until an eighth of the limit is free, but not the newest event, and returns how many messages
// are among them. That it makes room for more than one event pays for the work.
func (q *queue) dropLocked() (dropped int) {
	dropped = q.drainLocked()
	for len(q.backlog)-q.first > 1 && q.sendingBytes()+q.bytes > q.limit-q.limit/8 {
		dropped += q.forgetLocked(q.popLocked())
	}
	return dropped
}

// drainLocked takes all out of the channel and puts it back in front of the backlog, so that Lagged comes ahead of all that is left.
//
// The consumer may receive meanwhile. Whatever is older than something that it has got so must not come behind that, so if this
// cannot be ruled out all is dropped: it can if there is as much as there was in the channel and in the feeder's hand.
func (q *queue) drainLocked() (dropped int) {
	expected := len(q.events)
	if q.feeding.Load() {
		expected++
	}
	var drained []*Event
	for empty := false; !empty; {
		select {
		case ev := <-q.events:
			drained = append(drained, &ev)
		default:
			empty = true
		}
	}
	certain := len(drained) == expected
	if certain && q.sent > 0 {
		q.sizes[(q.sent-1)%uint(len(q.sizes))] = 0 // the feeder's hand is empty
	}
	kept := drained[:0]
	for _, ev := range drained {
		if !certain || ev.Kind == Lagged || q.restate && ev.changesState() { // a later change is to be told
			dropped += q.forgetLocked(ev)
			continue
		}
		kept = append(kept, ev)
		q.noteKeptLocked(ev)
	}
	q.backlog, q.first = append(kept, q.backlog[q.first:]...), 0
	return dropped
}

// forgetLocked notes that ev, which the queue does not hold any more, will not be told. It returns how many messages that are.
func (q *queue) forgetLocked(ev *Event) (messages int) {
	switch {
	case ev.Kind == Lagged:
		q.lost += ev.N
	case ev.changesState():
		q.restate = q.changes == 0
	default:
		q.lost++
		messages++
	}
	return messages
}

// pushLocked puts ev at the end of the backlog.
func (q *queue) pushLocked(ev *Event) {
	if q.backlog == nil {
		q.backlog = make([]*Event, 0, smallBacklog)
	}
	if len(q.backlog) == cap(q.backlog) && q.first > len(q.backlog)/2 {
		n := copy(q.backlog, q.backlog[q.first:])
		clear(q.backlog[n:])
		q.backlog, q.first = q.backlog[:n], 0
	}
	q.backlog = append(q.backlog, ev)
	q.noteKeptLocked(ev)
	if ev.changesState() {
		q.state, q.restate = ev, false
	}
}

// noteKeptLocked notes that ev comes into the backlog.
func (q *queue) noteKeptLocked(ev *Event) {
	q.bytes += ev.size()
	if ev.changesState() {
		q.changes++
	}
}

// popLocked removes the oldest event of the backlog, which is not empty, and gives back memory that a burst has left behind.
func (q *queue) popLocked() *Event {
	ev := q.backlog[q.first]
	q.backlog[q.first] = nil
	q.first++
	q.bytes -= ev.size()
	if ev.changesState() {
		q.changes--
	}
	switch left := q.backlog[q.first:]; {
	case len(left) == 0 && cap(q.backlog) > smallBacklog:
		q.backlog, q.first = nil, 0
	case len(left) == 0:
		q.backlog, q.first = q.backlog[:0], 0
	case len(left) < cap(q.backlog)/4 && cap(q.backlog) > smallBacklog:
		q.backlog, q.first = append(make([]*Event, 0, 2*len(left)), left...), 0
	}
	return ev
}

// clone returns ev in memory of its own, as it may be a part of its caller.
//
//go:noinline
func (ev *Event) clone() *Event {
	own := *ev
	return &own
}
