package pubsub

import (
	"sync"
	"testing"
	"testing/synctest"
)

// fullQueue returns a queue whose Go channel is full, and which drops its oldest events for the next message. Its feeder, which the
// test is, has taken last, and is about to send it: then it calls sending.Done.
func fullQueue(t *testing.T, last Event) *queue {
	t.Helper()
	q := &queue{events: make(chan Event, eventsCap), limit: (eventsCap+2)*eventBytes - 1, feeding: true, done: make(chan struct{})}
	for range eventsCap - 1 {
		addTo(q, Event{})
	}
	addTo(q, Event{Kind: Interrupted})
	addTo(q, last)
	if ev, ok := q.next(); !ok || ev != last {
		t.Fatalf("next() = %v, %v, want %v", ev, ok, last)
	}
	return q
}

// addTo is for a queue that has a feeder.
func addTo(q *queue, ev Event) (dropped int) {
	return q.add(&delivery{Event: ev}, new(sync.WaitGroup))
}

// kindsOf receives all events of q.
func kindsOf(q *queue) (kinds []EventKind) {
	for {
		ev, ok := q.next()
		if ok {
			q.sending.Done()
		}
		for len(q.events) > 0 {
			kinds = append(kinds, (<-q.events).Kind)
		}
		if !ok {
			return kinds
		}
		kinds = append(kinds, ev.Kind)
	}
}

// The feeder has taken an event, but not sent it, when a message makes the queue drop the oldest: the consumer, which has received
// nothing meanwhile, receives the Lagged first.
func TestLaggedPrecedesTheEventBeingSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		last := Event{Payload: "p"}
		q := fullQueue(t, last)
		go addTo(q, Event{})
		synctest.Wait()
		q.events <- last
		q.sending.Done()
		synctest.Wait()
		if got := kindsOf(q); got[0] != Lagged {
			t.Errorf("the consumer receives %v, want a Lagged first", got)
		}
	})
}

// The consumer receives the last change of state while the queue takes all events back, an earlier change among them: it does not
// receive that one, the last is the last to be received.
func TestLastStateReceivedWhileEventsAreDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		last := Event{Kind: Resumed}
		q := fullQueue(t, last)
		go addTo(q, Event{})
		synctest.Wait()
		q.events <- last
		<-q.events
		q.sending.Done()
		synctest.Wait()
		state := Resumed
		for _, kind := range kindsOf(q) {
			if kind == Resumed || kind == Interrupted {
				state = kind
			}
		}
		if state != Resumed {
			t.Errorf("the last change of state received is %v, want %v", state, Resumed)
		}
	})
}
