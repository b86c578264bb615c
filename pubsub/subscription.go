package pubsub

import (
	"context"
	"iter"
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

	// Lagged says that N messages were dropped, the oldest first, because the consumer did not read and its queue had
	// reached Config.QueueBytes. It stands ahead of what is left in the queue, or behind the first message of that if
	// the consumer began to read at that moment.
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
	queue      *queue      // constant; nil of a Watch
	watch      *Watch      // constant; nil if it is none

	// The Subscriber's mu guards the following.
	channels []membership
	missing  int        // how many of the channels the server has not confirmed
	ready    chan error // what a Subscribe waits for; nil otherwise
	up       bool       // whether the consumer was told that it misses nothing
	closed   bool       // nothing more is put into the queue
}

// membership is one channel of a Subscription, and the Subscription's place among those of the channel.
type membership struct {
	ch    *channel
	place int
}

// Events returns the channel of the events, always the same one. It is closed by Close. Several goroutines may receive from it,
// each event going to one of them.
func (s *Subscription) Events() <-chan Event { return s.queue.events }

// All returns the events one after another until the Subscription is closed. When ctx ends it yields the cause as the
// error, and stops. Leaving the loop does not close the Subscription, and another All continues where it stopped.
func (s *Subscription) All(ctx context.Context) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		for ctx.Err() == nil {
			select {
			case ev, ok := <-s.queue.events:
				if !ok || !yield(ev, nil) {
					return
				}
			case <-ctx.Done():
			}
		}
		yield(Event{}, context.Cause(ctx))
	}
}

// Close ends the Subscription and closes its Events. Up to 16 events that have not been received may be left in them, the others
// are dropped. A channel that no other Subscription wants is unsubscribed, but Close does not wait for that, nor for anything
// else. It returns nil, also the second time.
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
	s.deliverLocked(&resumed, &resumed)
}

var resumed = Event{Kind: Resumed}

// interruptLocked tells the consumer that it misses messages from now on, unless it knows.
func (s *Subscription) interruptLocked(ev Event) {
	if s.up {
		s.up = false
		s.deliverLocked(&ev, nil)
	}
}

// failLocked ends the Subscription of a Subscribe that has not returned.
func (s *Subscription) failLocked(err error) {
	s.ready <- err
	s.ready = nil
	s.subscriber.removeLocked(s)
}

// deliverLocked gives an event to the consumer, without waiting for it. Subscriptions that get the same event share the copy that
// their queues keep: kept if there is one already; deliverLocked returns it.
func (s *Subscription) deliverLocked(ev, kept *Event) *Event {
	if s.watch != nil {
		s.watch.noteLocked(ev)
		return kept
	}
	if kept == nil && ev.changesState() {
		kept = ev.clone()
	}
	if s.queue.trySend(ev, kept) {
		return kept
	}
	if kept == nil {
		kept = ev.clone()
	}
	s.subscriber.dropped += int64(s.queue.put(kept, s.subscriber.keeper))
	return kept
}
