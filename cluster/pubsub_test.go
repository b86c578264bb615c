package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockwire/lockwire/cluster"
	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/pubsub"
	"github.com/lockwire/lockwire/resp"
)

var (
	_ pubsub.Router = (*cluster.Cluster)(nil)
	_ conn.Doer     = (*cluster.Cluster)(nil)
	_ conn.Doer     = cluster.Node{}
)

// pubsubBubble is bubble with a Subscriber.
func pubsubBubble(t *testing.T, fn func(t *testing.T, f *fakes, s *pubsub.Subscriber)) {
	t.Helper()
	bubble(t, cluster.Config{}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
		s := pubsub.New(c, pubsub.Config{})
		defer s.Close()
		fn(t, f, s)
	})
}

// event returns the next event, and checks its kind.
func event(t *testing.T, sub *pubsub.Subscription, want pubsub.EventKind) pubsub.Event {
	t.Helper()
	timer := time.NewTimer(time.Minute)
	defer timer.Stop()
	select {
	case ev, ok := <-sub.Events():
		if !ok || ev.Kind != want {
			t.Fatalf("event %+v (open: %v), want %v", ev, ok, want)
		}
		return ev
	case <-timer.C:
		t.Fatalf("no event in a minute, want %v", want)
	}
	return pubsub.Event{}
}

func noEvent(t *testing.T, sub *pubsub.Subscription) {
	t.Helper()
	synctest.Wait()
	select {
	case ev := <-sub.Events():
		t.Fatalf("event %+v, want none", ev)
	default:
	}
}

func ssubscribe(t *testing.T, s *pubsub.Subscriber, channels ...string) *pubsub.Subscription {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	sub, err := s.SSubscribe(ctx, channels...)
	if err != nil {
		t.Fatalf("SSubscribe(%q): %v", channels, err)
	}
	return sub
}

// publish publishes to a shard channel on a node, and expects the message.
func (f *fakes) publish(addr, channel string, subs ...*pubsub.Subscription) {
	f.t.Helper()
	synctest.Wait()
	f.nodes[addr].Do("SPUBLISH", channel, addr)
	for _, sub := range subs {
		if ev := event(f.t, sub, pubsub.Message); ev.Payload != addr || ev.Channel != channel {
			f.t.Errorf("message %+v, want one of %s to %s", ev, addr, channel)
		}
	}
}

func TestChannelsAreSpread(t *testing.T) {
	pubsubBubble(t, func(t *testing.T, f *fakes, s *pubsub.Subscriber) {
		all := ssubscribe(t, s, keyA, keyB, keyC)
		one := ssubscribe(t, s, keyB)
		f.wantCounts("SSUBSCRIBE", 1, 1, 1)
		plain, err := s.Subscribe(t.Context(), keyA, keyB, keyC, keyC)
		if err != nil {
			t.Fatal(err)
		}
		f.wantCounts("SUBSCRIBE", 1, 1, 1)
		if _, err := s.PSubscribe(t.Context(), keyA, keyB, keyC); err != nil { // on different nodes, if they were shard channels
			t.Fatal(err)
		}
		nodes := 0
		for _, srv := range f.nodes {
			if srv.Count("PSUBSCRIBE") > 0 {
				nodes++
			}
		}
		if nodes != 1 {
			t.Error("patterns are not on one node")
		}
		f.publish(nodeA, keyA, all)
		f.publish(nodeB, keyB, all, one)
		f.publish(nodeC, keyC, all)
		f.nodes[nodeC].Do("PUBLISH", keyC, "x")
		event(t, plain, pubsub.Message)
		for _, sub := range []*pubsub.Subscription{all, one, plain} {
			noEvent(t, sub)
		}
		if got := s.Stats(); got.Channels != 9 || got.Subscriptions != 4 || !got.Connected {
			t.Errorf("Stats = %+v", got)
		}
		one.Close()
		all.Close()
		synctest.Wait()
		f.wantCounts("SUNSUBSCRIBE", 1, 1, 1)
		if got := s.Stats(); got.Channels != 6 || got.Subscriptions != 2 {
			t.Errorf("Stats = %+v", got)
		}
	})
}

// After its ctx has ended, Stream tries no other node.
func TestStreamEndsWithItsContext(t *testing.T) {
	bubble(t, cluster.Config{}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
		before := 0
		for addr, srv := range f.nodes {
			srv.Mute(true)
			before += f.dials(addr)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		took(t, 100*time.Millisecond, 100*time.Millisecond, func() {
			if _, err := c.Stream(ctx); !errors.Is(err, context.DeadlineExceeded) || !conn.SafeToRetry(err) {
				t.Errorf("%v, want the end of ctx", err)
			}
		})
		synctest.Wait() // nor does a refresh, as nothing is known to be wrong
		dials := -before
		for addr := range f.nodes {
			dials += f.dials(addr)
		}
		if dials != 1 {
			t.Errorf("%d nodes were dialled, want one", dials)
		}
	})
}

// B17: the server ends the subscription when the slot moves. The Subscriber follows MOVED and
// resumes at the new owner.
func TestShardChannelMovesWithItsSlot(t *testing.T) {
	pubsubBubble(t, func(t *testing.T, f *fakes, s *pubsub.Subscriber) {
		sub, other := ssubscribe(t, s, keyA), ssubscribe(t, s, keyB)
		both := ssubscribe(t, s, keyA, keyC)
		owner, next := nodeA, nodeB
		for range 4 {
			f.answer(next, "", "", 1) // runs everything again
			f.answer(owner, "SSUBSCRIBE", fmt.Sprintf("-MOVED %d %s", slotA, next), 0)
			f.serve(fakeRange{0, 5460, next}, fakeRange{5461, 10922, nodeB}, fakeRange{10923, 16383, nodeC})
			took(t, 0, 8*time.Millisecond, func() { // the old owner may leave the cluster first, which is a lost connection
				f.nodes[owner].Unsubscribe(keyA)
				for _, sub := range []*pubsub.Subscription{sub, both} {
					if ev := event(t, sub, pubsub.Interrupted); ev.Channel != keyA || ev.Err == nil {
						t.Errorf("B17: event %+v", ev)
					}
					event(t, sub, pubsub.Resumed)
				}
			})
			f.publish(next, keyA, sub, both)
			f.publish(nodeC, keyC, both)
			noEvent(t, other)
			owner, next = next, owner
			time.Sleep(time.Minute)
		}
		if got := s.Stats(); got.Channels != 3 || got.Subscriptions != 3 {
			t.Errorf("Stats = %+v", got)
		}
	})
}

// After a failover the former master ends the subscription, and grants the next one as a replica. The other nodes know of
// the failover later, or of another change before it.
func TestShardChannelOfAFormerMaster(t *testing.T) {
	for i, known := range []time.Duration{150 * time.Millisecond, 2 * time.Second, 4 * time.Second, 2 * time.Second, 4 * time.Second} {
		pubsubBubble(t, func(t *testing.T, f *fakes, s *pubsub.Subscriber) {
			sub := ssubscribe(t, s, keyA)
			time.Sleep(10 * time.Second)
			f.nodes[nodeA].Unsubscribe(keyA)
			if i > 2 {
				time.AfterFunc(known/2, func() {
					f.serve(fakeRange{0, 5460, nodeA}, fakeRange{5461, 10923, nodeB}, fakeRange{10924, 16383, nodeC})
				})
			}
			time.AfterFunc(known, func() { f.serve(fakeRange{0, 10922, nodeB}, fakeRange{10923, 16383, nodeC}) })
			event(t, sub, pubsub.Interrupted)
			event(t, sub, pubsub.Resumed)
			took(t, known-10*time.Millisecond, known+500*time.Millisecond, func() {
				event(t, sub, pubsub.Interrupted)
				event(t, sub, pubsub.Resumed)
			})
			f.publish(nodeB, keyA, sub)
			before := f.refreshes()
			time.Sleep(30 * time.Second)
			if n := f.refreshes() - before; n > 20 {
				t.Errorf("the topology was asked for %d times after the change", n)
			}
		})
	}
}

// TestShardChannelOfANamedNode: a node stays in use for some seconds after a redirection has named it. Its channels move
// nevertheless, once the topology has another master.
func TestShardChannelOfANamedNode(t *testing.T) {
	bubble(t, cluster.Config{}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
		s := pubsub.New(c, pubsub.Config{})
		defer s.Close()
		sub := ssubscribe(t, s, keyA)
		f.answer(nodeB, "INCR", fmt.Sprintf("-MOVED %d %s", slotB, nodeA), 1)
		wantText(t, c, "1", "INCR", keyB)
		time.Sleep(time.Second)
		noEvent(t, sub)
		f.serve(fakeRange{0, 10922, nodeB}, fakeRange{10923, 16383, nodeC})
		f.answer(nodeA, "INCR", fmt.Sprintf("-MOVED %d %s", slotA, nodeB), 0)
		wantText(t, c, "1", "INCR", keyA)
		took(t, 0, 500*time.Millisecond, func() {
			event(t, sub, pubsub.Interrupted)
			event(t, sub, pubsub.Resumed)
		})
		f.publish(nodeB, keyA, sub)
	})
}

// A node that has ended a subscription stays the owner: after some seconds nothing is asked any more.
func TestSubscriptionEndsWithoutAChange(t *testing.T) {
	pubsubBubble(t, func(t *testing.T, f *fakes, s *pubsub.Subscriber) {
		sub := ssubscribe(t, s, keyA)
		time.Sleep(10 * time.Second)
		before := f.refreshes()
		f.nodes[nodeA].Unsubscribe(keyA)
		event(t, sub, pubsub.Interrupted)
		event(t, sub, pubsub.Resumed)
		f.publish(nodeA, keyA, sub)
		time.Sleep(30 * time.Second)
		if n := f.refreshes() - before; n < 5 || n > 20 {
			t.Errorf("the topology was asked for %d times, want about 13", n)
		}
	})
}

// The topology is out of date when the Subscriber subscribes.
func TestShardChannelIsMoved(t *testing.T) {
	pubsubBubble(t, func(t *testing.T, f *fakes, s *pubsub.Subscriber) {
		f.answer(nodeA, "SSUBSCRIBE", fmt.Sprintf("-MOVED %d %s", slotA, nodeC), 0)
		var sub *pubsub.Subscription
		took(t, 0, 0, func() { sub = ssubscribe(t, s, keyA) })
		f.publish(nodeC, keyA, sub)
		f.wantCounts("SSUBSCRIBE", 1, 0, 1)
		listen, err := s.SListen(keyA)
		if err != nil {
			t.Fatal(err)
		}
		event(t, listen, pubsub.Resumed)
		f.publish(nodeC, keyA, sub, listen)
	})
}

// A node that let a subscription time out is asked last.
func TestNodeWithoutConfirmationIsAskedLast(t *testing.T) {
	bubble(t, cluster.Config{}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
		before := f.nodes[nodeA].Count("PING")
		c.Refused(nodeA, os.ErrDeadlineExceeded)
		for range 30 {
			wantText(t, c, "PONG", "PING")
		}
		if n := f.nodes[nodeA].Count("PING") - before; n != 0 {
			t.Errorf("%d of 30 commands for any node went to the silent node", n)
		}
	})
}

// Nodes that disagree, refuse or are not ready cause pauses, but no Subscribe fails.
func TestShardChannelThatIsNotServedYet(t *testing.T) {
	for name, answers := range map[string][2]string{
		"sent to and fro": {fmt.Sprintf("-MOVED %d %s", slotA, nodeB), fmt.Sprintf("-MOVED %d %s", slotA, nodeA)},
		"sent nowhere":    {fmt.Sprintf("-MOVED %d ?:1", slotA), ""},
		"down":            {"-CLUSTERDOWN Hash slot not served", ""},
		"loading":         {"-LOADING busy", ""},
	} {
		t.Run(name, func(t *testing.T) {
			pubsubBubble(t, func(t *testing.T, f *fakes, s *pubsub.Subscriber) {
				f.answer(nodeA, "SSUBSCRIBE", answers[0], 0)
				if answers[1] != "" {
					f.answer(nodeB, "SSUBSCRIBE", answers[1], 0)
				}
				time.AfterFunc(10*time.Second, func() { f.hook(nodeA, nil) })
				took(t, 10*time.Second, 12*time.Second, func() { f.publish(nodeA, keyA, ssubscribe(t, s, keyA)) })
				if n := f.nodes[nodeA].Count("SSUBSCRIBE") + f.nodes[nodeB].Count("SSUBSCRIBE"); n > 60 {
					t.Errorf("asked %d times in 10 s", n)
				}
			})
		})
	}
	pubsubBubble(t, func(t *testing.T, f *fakes, s *pubsub.Subscriber) {
		f.answer(nodeA, "SSUBSCRIBE", "-NOPERM no", 0)
		if _, err := s.SSubscribe(t.Context(), keyA); err == nil {
			t.Error("granted")
		}
	})
}

// The node of a channel dies, and another node takes over. Channels of further nodes are not
// disturbed.
func TestNodeOfAChannelDies(t *testing.T) {
	pubsubBubble(t, func(t *testing.T, f *fakes, s *pubsub.Subscriber) {
		sub, other := ssubscribe(t, s, keyA), ssubscribe(t, s, keyB, keyC)
		plain, err := s.Subscribe(t.Context(), keyA)
		if err != nil {
			t.Fatal(err)
		}
		f.nodes[nodeA].Refuse(true)
		f.nodes[nodeA].KillConns(nil)
		if ev := event(t, sub, pubsub.Interrupted); ev.Err == nil {
			t.Error("without a reason")
		}
		event(t, plain, pubsub.Interrupted)
		time.Sleep(2 * time.Second)
		f.serve(fakeRange{0, 10922, nodeB}, fakeRange{10923, 16383, nodeC})
		took(t, 0, 2*time.Second, func() {
			event(t, sub, pubsub.Resumed)
			event(t, plain, pubsub.Resumed)
		})
		f.publish(nodeB, keyA, sub)
		noEvent(t, other)
		f.publish(nodeB, keyB, other)
		if got := s.Stats(); got.Channels != 4 {
			t.Errorf("Stats = %+v", got)
		}
		dials := f.dials(nodeA)
		time.Sleep(10 * time.Minute)
		if n := f.dials(nodeA) - dials; n > 0 {
			t.Errorf("%d dials to a node that nobody wants anything of", n)
		}
	})
}

// A node leaves the cluster but keeps running. It receives no messages any more, so its
// subscriptions move.
func TestPlainChannelOfANodeThatLeaves(t *testing.T) {
	bubble(t, cluster.Config{RefreshInterval: time.Second}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
		s := pubsub.New(c, pubsub.Config{})
		defer s.Close()
		sub, err := s.Subscribe(t.Context(), keyA)
		if err != nil {
			t.Fatal(err)
		}
		f.serve(fakeRange{0, 10922, nodeB}, fakeRange{10923, 16383, nodeC})
		took(t, 0, 2*time.Second, func() {
			event(t, sub, pubsub.Interrupted)
			event(t, sub, pubsub.Resumed)
		})
		f.nodes[nodeB].Do("PUBLISH", keyA, "x")
		event(t, sub, pubsub.Message)
	})
}

func TestChannelThatNobodyServes(t *testing.T) {
	bareBubble(t, func(t *testing.T, f *fakes, proto int) {
		f.serve(fakeRange{5461, 10922, nodeB})
		f.answer(nodeB, "SSUBSCRIBE", "-CLUSTERDOWN Hash slot not served", 0)
		c := f.open(cluster.Config{Addrs: []string{nodeA}, Node: conn.Config{Protocol: proto}})
		s := pubsub.New(c, pubsub.Config{})
		defer s.Close()
		plain, err := s.Subscribe(t.Context(), keyC) // any node will do
		if err != nil {
			t.Fatal(err)
		}
		f.nodes[nodeB].Do("PUBLISH", keyC, "x")
		event(t, plain, pubsub.Message)
		time.AfterFunc(3*time.Second, func() { f.serve(fakeRange{0, 10922, nodeB}, fakeRange{10923, 16383, nodeC}) })
		var sub *pubsub.Subscription
		took(t, 3*time.Second, 5*time.Second, func() { sub = ssubscribe(t, s, keyC) })
		f.publish(nodeC, keyC, sub)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		f.nodes[nodeB].Refuse(true)
		f.nodes[nodeB].KillConns(nil)
		if _, err := s.SSubscribe(ctx, keyB); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v, want the end of ctx", err)
		}
	})
}

// Close at any moment joins the goroutines of all parts. Each bubble checks so at its end.
// A node that the Cluster does not know, and any node after Close, is an error without a dial.
func TestStreamToNobody(t *testing.T) {
	bubble(t, cluster.Config{}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
		const unknown = "10.0.0.9:7009"
		s, err := c.StreamTo(t.Context(), nodeA)
		if err != nil {
			t.Fatal(err)
		}
		s.Close()
		if _, err := c.StreamTo(t.Context(), unknown); !errors.Is(err, cluster.ErrLeft) || !strings.Contains(err.Error(), unknown) {
			t.Errorf("to an unknown node: %v, want that it has left", err)
		}
		c.Close()
		before := f.dials(nodeA)
		if _, err := c.StreamTo(t.Context(), nodeA); !errors.Is(err, conn.ErrClosed) {
			t.Errorf("after Close: %v, want ErrClosed", err)
		}
		if n := f.dials(nodeA) - before; n != 0 || f.dials(unknown) != 0 {
			t.Errorf("%d and %d dials, want none", n, f.dials(unknown))
		}
	})
}

// A MOVED that refuses a channel counts for its slot, also for one without a node so far.
func TestRefusedChannelNamesTheNode(t *testing.T) {
	bareBubble(t, func(t *testing.T, f *fakes, proto int) {
		f.serve(fakeRange{0, 5460, nodeA}, fakeRange{10923, 16383, nodeC})
		c := f.open(cluster.Config{Addrs: []string{nodeA}, Node: conn.Config{Protocol: proto}})
		before := c.Stats().Slots
		c.Refused(nodeA, resp.Error(fmt.Sprintf("MOVED %d %s", slotB, nodeC)))
		if n, at := c.Stats().Slots-before, c.Route(keyB); n != 1 || at != nodeC {
			t.Errorf("%d more slots are served, %s is at %q, want 1 and %s", n, keyB, at, nodeC)
		}
		wantText(t, c, "OK", "SET", keyB, 1)
		f.wantCounts("SET", 0, 0, 1)
	})
}

func TestCloseSubscriberOfACluster(t *testing.T) {
	for name, stage := range map[string]func(f *fakes){
		"subscribed": func(*fakes) {},
		"refused":    func(f *fakes) { f.answer(nodeA, "SSUBSCRIBE", "-CLUSTERDOWN", 0) },
		"swallowed": func(f *fakes) {
			f.hook(nodeA, func(cmd fakeredis.Cmd) *fakeredis.Action {
				act := fakeredis.Swallow()
				return &act
			})
		},
		"down": func(f *fakes) { f.nodes[nodeA].Refuse(true) },
		"mute": func(f *fakes) { f.nodes[nodeA].Mute(true) },
		"to and fro": func(f *fakes) {
			f.answer(nodeA, "SSUBSCRIBE", fmt.Sprintf("-MOVED %d %s", slotA, nodeB), 0)
			f.answer(nodeB, "SSUBSCRIBE", fmt.Sprintf("-MOVED %d %s", slotA, nodeA), 0)
		},
	} {
		t.Run(name, func(t *testing.T) {
			pubsubBubble(t, func(t *testing.T, f *fakes, s *pubsub.Subscriber) {
				stage(f)
				for _, key := range []string{keyA, keyB, keyC} {
					if _, err := s.SListen(key); err != nil {
						t.Fatal(err)
					}
				}
				waiting := make(chan error, 1)
				go func() {
					sub, err := s.SSubscribe(t.Context(), keyA, "another")
					if err == nil {
						sub.Close()
					}
					waiting <- err
				}()
				time.Sleep(777 * time.Millisecond)
				took(t, 0, 0, func() { s.Close() })
				if err := <-waiting; err != nil && !errors.Is(err, conn.ErrClosed) {
					t.Errorf("a Subscribe that waits: %v", err)
				}
				if got := s.Stats(); got.Channels != 0 || got.Subscriptions != 0 || got.Connected {
					t.Errorf("Stats = %+v after Close", got)
				}
				if _, err := s.SListen(keyA); !errors.Is(err, conn.ErrClosed) {
					t.Errorf("SListen after Close: %v", err)
				}
			})
		})
	}
}
