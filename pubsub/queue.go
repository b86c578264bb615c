package pubsub

import (
	"sync"
	"sync/atomic"
)

const (
	// eventsCap is the capacity of a Subscription's Go channel.
	eventsCap = 16

	// eventBytes is the size of an event without its texts.
	eventBytes = 100
)

// queue holds the events of a Subscription until its consumer receives them.
//
// While the Go channel has room, events go there directly. Further events form the backlog, up to
// the limit. A goroutine, the feeder, then sends the backlog to the Go channel, as the only sender,
// and ends when the backlog is empty. A Subscription whose consumer keeps up has no goroutine.
type queue struct {
	events  chan Event // closed by close, or by a running feeder
	limit   int        // in bytes
	feeding atomic.Bool

	// Owned by the sender: without a feeder, the holder of the Subscriber's mu; otherwise the
	// feeder, while it holds mu.
	sizes [eventsCap + 1]int // ring of the sizes of the last events sent
	sent  uint               // number of events sent

	mu sync.Mutex // guards the following; locked after the Subscriber's mu

	held        bool // the feeder is sending an event, or has just sent it; false without a feeder, and then read without mu
	backlog     []*Event
	bytes       int           // size of the backlog
	changes     int           // changes of state in the backlog
	unreported  int           // dropped messages not yet reported by Lagged
	state       *Event        // the last change of state; also written without a feeder
	resendState bool          // state was dropped and must be sent again
	closed      bool          // the Subscription was closed while a feeder ran
	done        chan struct{} // closed when closed is set; nil until the first backlog
}

// size returns the bytes that count towards the limit.
func (ev *Event) size() int {
	return eventBytes + len(ev.Channel) + len(ev.Pattern) + len(ev.Payload)
}

// changesState reports whether ev is a change of state. Only the last change of state matters.
func (ev *Event) changesState() bool { return ev.Kind == Resumed || ev.Kind == Interrupted }

// trySend sends ev directly to the Go channel, and reports whether there was room. kept is an
// immutable copy of ev, needed for a change of state. The caller of trySend, put and close holds
// the Subscriber's mu.
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

// put adds ev, which must not change any more, to the backlog. It starts a feeder if necessary,
// joined by keeper. It returns the number of messages dropped to make room.
func (q *queue) put(ev *Event, keeper *sync.WaitGroup) (dropped int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.backlog = append(q.backlog, ev)
	q.noteKeptLocked(ev)
	if ev.changesState() {
		q.state, q.resendState = ev, false
	}
	if q.sendingBytes()+q.bytes > q.limit {
		dropped = q.dropOldestLocked()
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

// close leaves the events of the Go channel to the consumer and drops the backlog.
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

// next fills the Go channel and returns the first event without room. ok is false when the feeder
// must end.
func (q *queue) next() (ev Event, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.held = false
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
			q.held = true
			return ev, true
		}
		q.events <- ev
	}
}

// takeLocked removes and returns the next event to send, if any.
func (q *queue) takeLocked() (ev Event, ok bool) {
	switch {
	case q.unreported > 0:
		ev = Event{Kind: Lagged, N: q.unreported}
		q.unreported = 0
	case q.resendState:
		ev = *q.state
		q.resendState = false
	case len(q.backlog) > 0:
		ev = *q.popLocked()
	default:
		return Event{}, false
	}
	return ev, true
}

func (q *queue) noteSent(size int) {
	q.sizes[q.sent%uint(len(q.sizes))] = size
	q.sent++
}

// sendingBytes returns the size of the events in the Go channel and of the event held by the
// feeder. An event that has just moved from the feeder to the Go channel may count twice.
func (q *queue) sendingBytes() (sum int) {
	n := uint(len(q.events))
	if q.held {
		n = min(n+1, q.sent)
	}
	for i := range n {
		sum += q.sizes[(q.sent-1-i)%uint(len(q.sizes))]
	}
	return sum
}

// dropOldestLocked drops the oldest events, but never the newest, until an eighth of the limit is
// free. Making room for many events at once amortizes the work. It returns the number of dropped
// messages.
//
// Events of the Go channel go back to the front of the backlog, so that Lagged precedes all
// remaining events.
func (q *queue) dropOldestLocked() (dropped int) {
	sent, all := q.takeBackLocked()
	kept := sent[:0]
	for _, ev := range sent {
		// Drop what a later event will replace: the next Lagged has the sum of all counts, and the change of state to be
		// sent again is the last one.
		if all && ev.Kind != Lagged && !(q.resendState && ev.changesState()) {
			kept = append(kept, ev)
			q.noteKeptLocked(ev)
		} else {
			dropped += q.countDroppedLocked(ev)
		}
	}
	q.backlog = append(kept, q.backlog...)
	for len(q.backlog) > 1 && q.sendingBytes()+q.bytes > q.limit-q.limit/8 {
		dropped += q.countDroppedLocked(q.popLocked())
	}
	return dropped
}

// takeBackLocked takes all events out of the Go channel, and the event that the feeder holds. all is false if the consumer
// received some of them meanwhile: the rest may be older than an event already received, and must not be sent again.
func (q *queue) takeBackLocked() (sent []*Event, all bool) {
	expected := len(q.events)
	if q.held {
		expected++
	}
	for {
		select {
		case ev := <-q.events:
			sent = append(sent, &ev)
		default:
			all = len(sent) == expected
			q.held = q.held && !all
			return sent, all
		}
	}
}

// countDroppedLocked records that ev was dropped. It returns the number of dropped messages, 0 or
// 1.
func (q *queue) countDroppedLocked(ev *Event) (messages int) {
	switch {
	case ev.Kind == Lagged:
		q.unreported += ev.N
	case ev.changesState():
		q.resendState = q.changes == 0
	default:
		q.unreported++
		messages++
	}
	return messages
}

// noteKeptLocked counts ev as a part of the backlog.
func (q *queue) noteKeptLocked(ev *Event) {
	q.bytes += ev.size()
	if ev.changesState() {
		q.changes++
	}
}

// popLocked removes the oldest event from the backlog, which must not be empty.
func (q *queue) popLocked() *Event {
	ev := q.backlog[0]
	q.backlog[0] = nil // for the collector
	if q.backlog = q.backlog[1:]; len(q.backlog) == 0 {
		q.backlog = nil
	}
	q.bytes -= ev.size()
	if ev.changesState() {
		q.changes--
	}
	return ev
}

// clone returns a copy of ev on the heap. ev itself may be on its caller's stack.
//
//go:noinline
func (ev *Event) clone() *Event {
	own := *ev
	return &own
}
