package pubsub

import (
	"sync"
	"testing"
)

// A message makes a queue drop what is in front while the feeder holds a change of state: that one, the last, is the last to be received.
func TestLastStateBehindALagged(t *testing.T) {
	q := &queue{events: make(chan Event, eventsCap), limit: 30 * eventBytes, feeding: true, done: make(chan struct{})}
	var keeper sync.WaitGroup
	add := func(n int, kind EventKind) {
		for range n {
			q.add(&delivery{Event: Event{Kind: kind}}, &keeper)
		}
	}
	last := Message
	receive := func() {
		for len(q.events) > 0 {
			if ev := <-q.events; ev.changesState() {
				last = ev.Kind
			}
		}
	}
	add(eventsCap-1, Message)
	add(1, Interrupted)
	add(1, Resumed)
	ev, ok := q.next() // as the feeder does, which then waits for room
	if !ok || ev.Kind != Resumed {
		t.Fatalf("next() = %v, %v", ev, ok)
	}
	add(14, Message)
	receive()
	for ok {
		q.events <- ev
		ev, ok = q.next()
		receive()
	}
	if last != Resumed {
		t.Errorf("the last change of state received is %v, want %v", last, Resumed)
	}
}
