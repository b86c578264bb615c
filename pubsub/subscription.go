package pubsub

import (
	"context"
	"iter"
)

// EventKind is the kind of an Event.
type EventKind uint8

// The kinds of events.
const (
	// Message is a published message.
	Message EventKind = iota + 1

	// Resumed: the server has confirmed all channels of the Subscription, for the first time after
	// Listen or again. Messages may have been missed before Resumed. Messages published afterwards
	// are received until the next Interrupted or Lagged.
	Resumed

	// Lagged: N messages were dropped, the oldest first, because the consumer was slow and its
	// queue reached Config.QueueBytes. Lagged comes before the rest of the queue. If the consumer
	// reads at the same moment, it may receive a few of the older messages before Lagged.
	Lagged

	// Interrupted: messages are missed until the next Resumed. Err is the reason: the connection
	// was lost, or the server refused or ended the subscription to Channel or Pattern. The
	// Subscriber recovers by itself; it requests a refused channel again at growing intervals.
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

// Event is a message, or a change in the delivery of messages.
type Event struct {
	Kind    EventKind
	Channel string // the channel of a Message, or of an Interrupted limited to one channel
	Pattern string // the pattern matched by a Message, or of an Interrupted limited to one pattern
	Payload string // the Message as published
	N       int    // Lagged: the number of dropped messages
	Err     error  // Interrupted: the reason
}

// Subscription receives the messages of some channels, patterns or shard channels. Any goroutine
// may call its methods.
type Subscription struct {
	subscriber *Subscriber // constant
	queue      *queue      // constant; nil for a Watch
	watch      *Watch      // constant; nil unless the Subscription belongs to a Watch

	// The Subscriber's mu guards the following.
	channels []*channel
	missing  int        // number of unconfirmed channels
	ready    chan error // result for a waiting Subscribe; nil otherwise
	up       bool       // the last change of state was Resumed
	closed   bool       // no further event is delivered
}

// Events returns the Go channel of the events, always the same. Close closes the channel. If
// several goroutines receive, each event goes to one of them.
func (s *Subscription) Events() <-chan Event { return s.queue.events }

// All yields the events until the Subscription is closed. When ctx ends, All yields the cause of
// ctx as the error and stops. Breaking out of the loop does not close the Subscription; another All
// continues at the next event.
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

// Close ends the Subscription and closes Events. Up to 16 unreceived events remain in Events; the
// rest are dropped. Channels without any other Subscription are unsubscribed in the background:
// Close does not wait. Close returns nil, also when called again.
func (s *Subscription) Close() error {
	s.subscriber.mu.Lock()
	defer s.subscriber.mu.Unlock()
	s.subscriber.removeLocked(s)
	return nil
}

// resumeLocked reports that all channels are confirmed: to a waiting Subscribe, or else to the
// consumer.
func (s *Subscription) resumeLocked() {
	s.up = true
	if s.ready != nil {
		s.ready <- nil
		s.ready = nil
		return
	}
	s.deliverLocked(&delivery{resumed, &resumed})
}

var resumed = Event{Kind: Resumed}

// interruptLocked delivers ev, an Interrupted, unless the consumer already had an Interrupted.
func (s *Subscription) interruptLocked(ev Event) {
	if s.up {
		s.up = false
		s.deliverLocked(&delivery{Event: ev})
	}
}

// failLocked makes a waiting Subscribe fail, and removes its Subscription.
func (s *Subscription) failLocked(err error) {
	s.ready <- err
	s.ready = nil
	s.subscriber.removeLocked(s)
}

// deliverLocked gives the event of d to the consumer without waiting.
func (s *Subscription) deliverLocked(d *delivery) {
	if s.watch != nil {
		s.watch.noteLocked(&d.Event)
		return
	}
	s.subscriber.dropped += int64(s.queue.add(d, &s.subscriber.keeper))
}
