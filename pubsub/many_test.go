package pubsub

import (
	"strconv"
	"strings"
	"testing"
	"time"
)

// Closing the Subscriptions of one channel takes time linear in their number, one by one and all at
// once. Quadratic time would be ten seconds here instead of milliseconds.
func TestClosingManyIsLinear(t *testing.T) {
	const many, limit = 200_000, 5 * time.Second
	var one, all time.Duration
	for range 3 { // the machine may be busy
		s := unattended(Config{})
		watches := make([]*Watch, many)
		for i := range watches {
			var err error
			if watches[i], err = s.Watch(nil, "c", "d"); err != nil {
				t.Fatal(err)
			}
		}
		start := time.Now()
		for _, w := range watches[:many/2] {
			w.Close()
		}
		one = time.Since(start)
		start = time.Now()
		s.Close()
		all = time.Since(start)
		if got := s.Stats(); got.Subscriptions != 0 || got.Channels != 0 {
			t.Fatalf("Stats = %+v after Close", got)
		}
		if one < limit && all < limit {
			t.Logf("half of %d one by one in %v, the rest in %v", many, one, all)
			return
		}
	}
	t.Errorf("closed half of %d one by one in %v and the rest in %v, want less than %v each", many, one, all, limit)
}

// Slow consumers share the memory of their events, and release the memory after reading.
func TestMemoryOfQueues(t *testing.T) {
	const consumers, messages, payload, bound = 200, 3000, 1000, 1 << 20
	s := unattended(Config{QueueBytes: bound})
	defer s.Close()
	subs := make([]*Subscription, consumers)
	for i := range subs {
		var err error
		if subs[i], err = s.Listen("c"); err != nil {
			t.Fatal(err)
		}
	}
	settle(t, s, make(map[*channel]bool))
	before := heap()
	for i := range messages {
		if err := s.dispatch(decode(t, push('>', "message", "c", strings.Repeat("x", payload)+strconv.Itoa(i)))); err != nil {
			t.Fatal(err)
		}
	}
	if grown := int64(heap() - before); grown > 10<<20 {
		t.Errorf("%d bytes more for %d consumers that hold the same %d bytes, want 10 MiB at most", grown, consumers, bound)
	}
	for _, sub := range subs {
		for told := 0; told < messages; {
			switch ev := <-sub.Events(); ev.Kind {
			case Message:
				told++
			case Lagged:
				told += ev.N
			}
		}
	}
	if grown := int64(heap() - before); grown > 1<<20 {
		t.Errorf("%d bytes more when all is read, want 1 MiB at most", grown)
	}
}
