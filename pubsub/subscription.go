package pubsub

import (
	"context"
	"iter"
	"slices"
)

// EventKind says what an Event tells.
type EventKind uint8

// The kinds of events.
const (
	// Message is a published message.
	Message EventKind = iota + 1

	// Resumed says that the server has confirmed all channels of the Subscription: for the first time after Listen,
	// or again. Messages may have been missed before it, none is missed after it.
	Resumed

	// Lagged says that N messages were dropped, the oldest first, because the queue was full. It stands ahead of
	// what is left in the queue.
	Lagged

	// Interrupted says that messages are being missed until the next Resumed, and by Err why: the connection was
	// lost, or the server refused or ended the subscription to Channel or Pattern. It is mended without the consumer
	// doing anything; what the server refuses is asked for again, less and less often.
	Interrupted
)

var kindNames = [...]string{Message: "Message", Resumed: "Resumed", Lagged: "Lagged", Interrupted: "Interrupted"}

// String returns the name of the constant.
func (k EventKind) String() string {
	if int(k) < len(kindNames) && kindNames[k] != "" {
		return kindNames[k]
	}
	return "EventKind(?)"
}

// Event is what a Subscription tells its consumer.
type Event struct {
	Kind    EventKind
	Channel string // of a Message; of an Interrupted that concerns one channel
	Pattern string // the pattern that led to a Message; of an Interrupted that concerns one pattern
	Payload string // of a Message, as it was published
	N       int    // of Lagged: how many messages were dropped
	Err     error  // of Interrupted: why
}

// Subscription is the interest in some channels, patterns or shard channels. Its methods may be called by any goroutine.
type Subscription struct {
	subscriber *Subscriber // constant
	events     chan Event  // constant; sent to and closed under the Subscriber's mu; nil of a Watch
	watch      *Watch      // constant; nil if it is none

	// The Subscriber's mu guards the following.
	channels []*channel
	missing  int        // how many of the channels the server has not confirmed
	state    *Event     // the last Resumed or Interrupted
	ready    chan error // what a Subscribe waits for; nil otherwise
	up       bool       // whether the consumer was told that it misses nothing
	closed   bool       // events is closed, or will never be used
}

// Events returns the channel of the events, always the same one. It is closed by Close, behind the events that are still
// in the queue. Several goroutines may receive from it, each event going to one of them.
func (s *Subscription) Events() <-chan Event { return s.events }

// All returns the events one after another until the Subscription is closed. When ctx ends it yields the cause as the
// error, and stops. Leaving the loop does not close the Subscription, and another All continues where it stopped.
func (s *Subscription) All(ctx context.Context) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		for ctx.Err() == nil {
			select {
			case ev, ok := <-s.events:
				if !ok || !yield(ev, nil) {
					return
				}
			case <-ctx.Done():
			}
		}
		yield(Event{}, context.Cause(ctx))
	}
}

// Close ends the Subscription and closes its Events. What no other Subscription wants is unsubscribed, but Close does not
// wait for that, nor for anything else. It returns nil, also the second time.
func (s *Subscription) Close() error {
	s.subscriber.mu.Lock()
	defer s.subscriber.mu.Unlock()
	s.subscriber.removeLocked(s)
	return nil
}

// confirmLocked notes that the server has confirmed one more channel.
func (s *Subscription) confirmLocked() {
	s.missing--
	if s.missing == 0 {
		s.resumeLocked()
	}
}

// resumeLocked tells whoever waits that all channels are confirmed: Subscribe if it has not returned, or else the consumer.
func (s *Subscription) resumeLocked() {
	s.up = true
	if s.ready != nil {
		s.ready <- nil
		s.ready = nil
		return
	}
	s.deliverLocked(resumed)
}

// interruptLocked tells the consumer that it misses messages from now on, unless it knows.
func (s *Subscription) interruptLocked(ev Event) {
	if s.up {
		s.up = false
		s.deliverLocked(ev)
	}
}

// failLocked ends the Subscription of a Subscribe that has not returned.
func (s *Subscription) failLocked(err error) {
	s.ready <- err
	s.ready = nil
	s.subscriber.removeLocked(s)
}

// deliverLocked queues an event. It never blocks: as only the holder of mu sends, and there is room for one more than the
// queue is to hold, a send cannot find the channel full.
func (s *Subscription) deliverLocked(ev Event) {
	if s.watch != nil {
		s.watch.noteLocked(ev.Kind)
		return
	}
	if changesState(ev) {
		s.state = stateOf(ev)
	}
	if len(s.events) < cap(s.events)-1 {
		s.events <- ev
		return
	}
	s.overflowLocked(ev)
}

var resumed = Event{Kind: Resumed}

// stateOf is ev in memory of its own, of which only an Interrupted needs any: as a part of its caller it would give every event
// some.
//
//go:noinline
func stateOf(ev Event) *Event {
	if ev.Kind == Resumed {
		return &resumed
	}
	return &ev
}

// overflowLocked takes the queue out of the channel, makes it short enough with ev at its end, and puts it back with Lagged,
// whose count is always up to date, in front. It drops messages, and of the other events all but the last, since
// that is the one that counts. That it makes room for more than ev, if the queue is long, pays for the work.
func (s *Subscription) overflowLocked(ev Event) {
	held, lost, restate := s.drainLocked()
	held = append(held, ev)
	if restate && !slices.ContainsFunc(held, changesState) {
		held = append(held, Event{})
		copy(held[1:], held)
		held[0] = *s.state
	}
	if queue := cap(s.events) - 1; len(held) > queue {
		var dropped int
		held, dropped = dropOldest(held, len(held)-queue+queue/8)
		lost += dropped
		s.subscriber.dropped += int64(dropped)
	}
	if lost > 0 {
		s.events <- Event{Kind: Lagged, N: lost}
	}
	for _, e := range held {
		s.events <- e
	}
	clear(held)
	s.subscriber.overflow = held
}

// drainLocked takes all out of the channel and returns it, without Lagged, and how many messages have been dropped.
//
// The consumer may receive meanwhile. What is older than something that it got so must not come behind that: it is
// dropped too. If there was a change of state in it, restate says that the last one may have to be told, perhaps twice.
func (s *Subscription) drainLocked() (held []Event, lost int, restate bool) {
	held = s.subscriber.overflow[:0]
	for left := len(s.events); left > 0; {
		select {
		case ev := <-s.events:
			left--
			if ev.Kind == Lagged {
				lost += ev.N
			} else {
				held = append(held, ev)
			}
		default:
		}
		if n := len(s.events); n != left {
			left = n
			for _, ev := range held {
				if changesState(ev) {
					restate = true
				} else {
					lost++
					s.subscriber.dropped++
				}
			}
			clear(held)
			held = held[:0]
		}
	}
	return held, lost, restate
}

// dropOldest drops n of the events, oldest first, but not the last change of state. It returns what is left, in the same
// memory, and how many of the dropped ones are messages.
func dropOldest(events []Event, n int) (left []Event, messages int) {
	spared := len(events) - 1
	for spared >= 0 && !changesState(events[spared]) {
		spared--
	}
	left = events[:0]
	for i, ev := range events {
		switch {
		case n == 0 || i == spared:
			left = append(left, ev)
			continue
		case !changesState(ev):
			messages++
		}
		n--
	}
	clear(events[len(left):])
	return left, messages
}

// changesState reports whether ev, which is not Lagged, is one of those of which only the last counts.
func changesState(ev Event) bool { return ev.Kind != Message }
