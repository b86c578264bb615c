package pubsub

import (
	"slices"
	"sync"
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
	events  chan Event     // closed by close, or by a running feeder
	limit   int            // in bytes
	sending sync.WaitGroup // the feeder sends an event to the Go channel

	mu sync.Mutex // guards the following; locked after the Subscriber's mu

	sizes   [eventsCap + 1]int // ring of the sizes of the last events sent
	sent    uint               // number of events sent
	backlog []*Event
	bytes   int           // size of the backlog
	state   *Event        // the last change of state; nil without one
	feeding bool          // a feeder runs
	held    bool          // the feeder is sending an event, or has just sent it
	closed  bool          // the Subscription was closed while a feeder ran
	done    chan struct{} // closed when closed is set; nil until the first backlog
}

// size returns the bytes that count towards the limit.
func (ev *Event) size() int {
	return eventBytes + len(ev.Channel) + len(ev.Pattern) + len(ev.Payload)
}

// changesState reports whether ev is a change of state. Only the last change of state matters.
func (ev *Event) changesState() bool { return ev.Kind == Resumed || ev.Kind == Interrupted }

// delivery is an event for one or more Subscriptions. It is on the stack of the goroutine that delivers.
type delivery struct {
	Event
	kept *Event // a copy for all queues that keep the event; nil before the first
}

// keep returns the copy.
func (d *delivery) keep() *Event {
	if d.kept == nil {
		ev := d.Event
		d.kept = &ev
	}
	return d.kept
}

// add sends the event of d to the Go channel if there is room, and otherwise adds it to the backlog, with a feeder joined by
// keeper. It returns the number of messages dropped to make room. The caller of add and close holds the Subscriber's mu.
func (q *queue) add(d *delivery, keeper *sync.WaitGroup) (dropped int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	size, waiting := d.size(), len(q.events)
	if d.changesState() {
		q.state = d.keep()
	}
	if !q.feeding && waiting < cap(q.events) && (waiting == 0 || q.sendingBytes()+size <= q.limit) {
		q.noteSent(size)
		q.events <- d.Event
		return 0
	}
	q.backlog, q.bytes = append(q.backlog, d.keep()), q.bytes+size
	if q.sendingBytes()+q.bytes > q.limit {
		dropped = q.dropOldestLocked()
	}
	if !q.feeding {
		q.feeding = true
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
	if !q.feeding {
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
		q.sending.Done()
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
	for len(q.backlog) > 0 {
		ev = *q.backlog[0]
		q.backlog[0] = nil // for the collector
		q.backlog, q.bytes = q.backlog[1:], q.bytes-ev.size()
		q.noteSent(ev.size())
		if len(q.events) == cap(q.events) {
			q.held = true
			q.sending.Add(1)
			return ev, true
		}
		q.events <- ev
	}
	q.backlog, q.feeding = nil, false
	return Event{}, false
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
		n++
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
// Their place takes a Lagged with their number, and then the last change of state if it was dropped. Events of the Go channel go
// back to the backlog, so that the Lagged precedes all remaining events.
func (q *queue) dropOldestLocked() (dropped int) {
	sent, all := q.takeBackLocked()
	for _, ev := range sent {
		q.bytes += ev.size()
	}
	most := q.limit - q.limit/8
	lagged, state := &Event{Kind: Lagged}, (*Event)(nil)
	var first, rest []*Event
	newest := len(sent) + len(q.backlog) - 1
	for i, ev := range slices.Concat(sent, q.backlog) {
		drop := i < newest && (q.bytes > most || i < len(sent) && !all)
		switch {
		case ev.Kind == Lagged:
			drop, lagged.N = true, lagged.N+ev.N
		case !drop && ev.changesState():
			state = nil
		case drop && ev.changesState():
			state = q.state // not ev: the consumer may have received later ones
		case drop:
			lagged.N++
			dropped++
		}
		if drop {
			q.bytes -= ev.size()
		} else {
			rest = append(rest, ev)
		}
	}
	if lagged.N > 0 {
		first = append(first, lagged)
		q.bytes += lagged.size()
	}
	if state != nil {
		first = append(first, state)
		q.bytes += state.size()
	}
	q.backlog = append(first, rest...)
	return dropped
}

// takeBackLocked takes all events out of the Go channel, with the event that the feeder sends as soon as there is room. all is
// false if the consumer received some of them meanwhile: the rest may be older than an event already received, and must not be
// sent again.
func (q *queue) takeBackLocked() (sent []*Event, all bool) {
	expected := len(q.events)
	sent = q.drainChannel(nil)
	if q.held {
		expected++
		q.sending.Wait()
		q.held = false
		sent = q.drainChannel(sent)
	}
	return sent, len(sent) == expected
}

func (q *queue) drainChannel(events []*Event) []*Event {
	for {
		select {
		case ev := <-q.events:
			events = append(events, &ev)
		default:
			return events
		}
	}
}
