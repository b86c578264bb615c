package pubsub_test

import (
	"testing"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/redistest"
	"github.com/lockwire/lockwire/pubsub"
)

// TestFailover moves a subscription to the new master. The consumer receives Interrupted, Resumed
// and the messages published on the new master. The old master, still running, keeps no
// subscription.
func TestFailover(t *testing.T) {
	redistest.RunSentinels(t, redistest.Options{}, func(t *testing.T, s *redistest.Sentinels, proto int) {
		pool, err := conn.Open(t.Context(), s.Config())
		if err != nil {
			t.Fatal(err)
		}
		defer pool.Close()
		events := pubsub.New(pool, pubsub.Config{})
		defer events.Close()
		sub, err := events.Subscribe(t.Context(), "news")
		if err != nil {
			t.Fatal(err)
		}
		old := s.Master()
		s.Failover()
		master := s.AwaitMaster(old)
		for _, want := range []pubsub.EventKind{pubsub.Interrupted, pubsub.Resumed} {
			if ev := nextEvent(t, sub); ev.Kind != want {
				t.Fatalf("event %+v, want %v", ev, want)
			}
		}
		if n := receivers(t, master, "PUBLISH", "news", "hello"); n != 1 {
			t.Errorf("%d receivers at the new master, want 1", n)
		}
		if ev := nextEvent(t, sub); ev.Kind != pubsub.Message || ev.Payload != "hello" {
			t.Errorf("event %+v, want the message", ev)
		}
		await(t, "the old master to be left alone", func() bool {
			n, err := old.Do("PUBSUB", "NUMSUB", "news").At(1).Int()
			return err == nil && n == 0
		})
	})
}

// nextEvent waits for an event in real time.
func nextEvent(t *testing.T, sub *pubsub.Subscription) pubsub.Event {
	t.Helper()
	select {
	case ev := <-sub.Events():
		return ev
	case <-time.After(redistest.Patience):
		t.Fatal("no event")
	}
	return pubsub.Event{}
}
