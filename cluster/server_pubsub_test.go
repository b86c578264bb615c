package cluster_test

import (
	"testing"
	"time"

	"github.com/lockwire/lockwire/cluster"
	"github.com/lockwire/lockwire/internal/redistest"
	"github.com/lockwire/lockwire/pubsub"
)

// awaitMessage publishes until a message arrives.
func awaitMessage(t *testing.T, c *cluster.Cluster, sub *pubsub.Subscription, command, channel string) {
	t.Helper()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for limit := time.After(redistest.Patience); ; {
		if _, err := c.Do(t.Context(), command, channel, "x"); err != nil {
			t.Fatal(err)
		}
		select {
		case ev := <-sub.Events():
			if ev.Kind != pubsub.Message {
				t.Fatalf("event %+v, want a message", ev)
			}
			return
		case <-again.C:
		case <-limit:
			t.Fatalf("no message on %s", channel)
		}
	}
}

// awaitResumed waits for an interruption and resumption of a subscription, and ignores messages.
func awaitResumed(t *testing.T, sub *pubsub.Subscription) {
	t.Helper()
	limit := time.After(redistest.Patience)
	for _, want := range []pubsub.EventKind{pubsub.Interrupted, pubsub.Resumed} {
		for kind := pubsub.Message; kind != want; {
			select {
			case ev := <-sub.Events():
				if kind = ev.Kind; kind != want && kind != pubsub.Message {
					t.Fatalf("event %+v, want %v", ev, want)
				}
			case <-limit:
				t.Fatalf("not %v", want)
			}
		}
	}
}

// Shard channels follow their slots between nodes, and to a replica that takes over. Each change is
// reported.
func TestServerShardChannels(t *testing.T) {
	redistest.RunClusters(t, redistest.Options{}, func(t *testing.T, rc *redistest.Cluster, proto int) {
		if !rc.Binary().AtLeast(7, 0) {
			return // no shard channels
		}
		c := open(t, cluster.Config{Addrs: rc.Addrs()[:1], Node: rc.Config()})
		s := pubsub.New(c, pubsub.Config{})
		defer s.Close()
		masters := rc.Masters()
		moving, still := "{"+tagsOf(rc, masters[0], 1)[0]+"}c", "{"+tagsOf(rc, masters[1], 1)[0]+"}c"
		sub, other := mustSSubscribe(t, s, moving), mustSSubscribe(t, s, still)
		awaitMessage(t, c, sub, "SPUBLISH", moving)
		slot := cluster.Slot(moving)
		for _, to := range []*redistest.Server{masters[2], masters[0], masters[1], masters[0]} {
			rc.Move(slot, to)
			awaitResumed(t, sub)
			awaitMessage(t, c, sub, "SPUBLISH", moving)
		}
		old := rc.Owner(slot)
		old.Kill()
		rc.AwaitTakeover(old)
		awaitResumed(t, sub)
		awaitMessage(t, c, sub, "SPUBLISH", moving)
		awaitMessage(t, c, other, "SPUBLISH", still) // no event on the unmoved channel
		old.Restart()
		rc.Await()
		if got := s.Stats(); got.Channels != 2 || got.Subscriptions != 2 {
			t.Errorf("Stats = %+v", got)
		}
	})
}

// Messages to plain channels arrive from every node, and subscriptions survive the loss of their
// node.
func TestServerPlainChannels(t *testing.T) {
	redistest.RunClusters(t, redistest.Options{}, func(t *testing.T, rc *redistest.Cluster, proto int) {
		c := open(t, cluster.Config{Addrs: rc.Addrs()[:1], Node: rc.Config()})
		s := pubsub.New(c, pubsub.Config{})
		defer s.Close()
		victim := rc.Masters()[0]
		channel := "{" + tagsOf(rc, victim, 1)[0] + "}plain"
		sub, err := s.Subscribe(within(t), channel)
		if err != nil {
			t.Fatal(err)
		}
		for n := range c.Masters(t.Context()) {
			if _, err := n.Do(t.Context(), "PUBLISH", channel, "x"); err != nil {
				t.Fatal(err)
			}
			if ev := <-sub.Events(); ev.Kind != pubsub.Message {
				t.Fatalf("event %+v", ev)
			}
		}
		victim.Kill()
		rc.AwaitTakeover(victim)
		awaitResumed(t, sub)
		awaitMessage(t, c, sub, "PUBLISH", channel)
		victim.Restart()
		rc.Await()
	})
}

func mustSSubscribe(t *testing.T, s *pubsub.Subscriber, channel string) *pubsub.Subscription {
	t.Helper()
	sub, err := s.SSubscribe(within(t), channel)
	if err != nil {
		t.Fatal(err)
	}
	return sub
}
