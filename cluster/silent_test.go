package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockwire/lockwire/cluster"
	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/pubsub"
	"github.com/lockwire/lockwire/resp"
)

// ways are all methods that wait for an answer of keyA's node.
var ways = map[string]func(ctx context.Context, c *cluster.Cluster) error{
	"Do": func(ctx context.Context, c *cluster.Cluster) error {
		_, err := c.Do(ctx, "INCR", keyA)
		return err
	},
	"SendBatch": func(ctx context.Context, c *cluster.Cluster) error {
		_, err := c.SendBatch(ctx, []resp.Command{resp.Cmd("INCR", keyA), resp.Cmd("INCR", keyA)})
		return err
	},
	"SendBatch over nodes": func(ctx context.Context, c *cluster.Cluster) error {
		_, err := c.SendBatch(ctx, []resp.Command{resp.Cmd("INCR", keyC), resp.Cmd("INCR", keyA)})
		return err
	},
	"Tx": func(ctx context.Context, c *cluster.Cluster) error {
		_, err := c.Tx(ctx, []resp.Command{resp.Cmd("INCR", keyA)})
		return err
	},
	"With": func(ctx context.Context, c *cluster.Cluster) error {
		return c.With(ctx, keyA, func(k *conn.Conn) error {
			_, err := k.Do(ctx, "INCR", keyA)
			return err
		})
	},
	"With, a transaction": func(ctx context.Context, c *cluster.Cluster) error {
		return c.With(ctx, keyA, func(k *conn.Conn) error {
			_, err := k.Tx(ctx, []resp.Command{resp.Cmd("INCR", keyA)})
			return err
		})
	},
	"Node.Do": func(ctx context.Context, c *cluster.Cluster) error {
		n, _ := c.Owner(keyA)
		_, err := n.Do(ctx, "INCR", keyA)
		return err
	},
	"Node.SendBatch": func(ctx context.Context, c *cluster.Cluster) error {
		n, _ := c.Owner(keyA)
		_, err := n.SendBatch(ctx, []resp.Command{resp.Cmd("INCR", keyA)})
		return err
	},
	"Node.With": func(ctx context.Context, c *cluster.Cluster) error {
		n, _ := c.Owner(keyA)
		return n.With(ctx, func(k *conn.Conn) error {
			_, err := k.Do(ctx, "INCR", keyA)
			return err
		})
	},
}

// warm makes a connection of each kind to nodeA.
func warm(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	for _, name := range []string{"Do", "With"} {
		if err := ways[name](t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
}

// replace moves the slots of nodeA to nodeB.
func (f *fakes) replace() {
	f.serve(fakeRange{0, 10922, nodeB}, fakeRange{10923, 16383, nodeC})
}

// wantReplaced checks the error of a call that waits for a replaced master.
func wantReplaced(t *testing.T, name string, err error) {
	t.Helper()
	if err == nil || errors.Is(err, conn.ErrClosed) || !errors.Is(err, conn.ErrUncertain) ||
		!strings.Contains(err.Error(), "another node has become the master") {
		t.Errorf("%s: %v, want that it is uncertain as another node has become the master", name, err)
	}
}

// A hung master is silent. The Cluster asks other nodes again and again until another master serves
// its slots, however long callers are willing to wait, with and without a Timeout for connections.
func TestSilentMasterIsReplaced(t *testing.T) {
	for name, call := range ways {
		for _, timeout := range []time.Duration{time.Minute, -1} {
			for _, deadline := range []time.Duration{20 * time.Second, 0} {
				t.Run(fmt.Sprint(name, "/", timeout, "/", deadline), func(t *testing.T) {
					node := conn.Config{Timeout: timeout}
					if timeout < 0 {
						node.PingInterval = -1
					}
					bubble(t, cluster.Config{Node: node}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
						warm(t, c)
						f.nodes[nodeA].Mute(true)
						time.AfterFunc(4*time.Second, f.replace)
						ctx := t.Context()
						if deadline > 0 {
							var cancel context.CancelFunc
							ctx, cancel = context.WithTimeout(ctx, deadline)
							defer cancel()
						}
						took(t, 4*time.Second, 5*time.Second, func() { wantReplaced(t, name, call(ctx, c)) })
						took(t, 0, 0, func() { wantText(t, c, "1", "INCR", "{"+keyA+"}n") })
						if n := f.refreshes(); n > 15 {
							t.Errorf("the topology was asked for %d times in 4 s", n)
						}
						time.Sleep(10 * time.Second)
						if n := f.refreshes(); n > 17 {
							t.Errorf("the topology was asked for %d times, want that it ends when nobody waits", n)
						}
					})
				})
			}
		}
	}
}

// TestSilentMasterNamedLately: a redirection has named the hung master some seconds ago. Its successor is known before or
// after the silence.
func TestSilentMasterNamedLately(t *testing.T) {
	for _, known := range []time.Duration{100 * time.Millisecond, 1500 * time.Millisecond} {
		bubble(t, cluster.Config{Node: conn.Config{Timeout: time.Minute}}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
			warm(t, c)
			f.answer(nodeB, "INCR", fmt.Sprintf("-MOVED %d %s", slotB, nodeA), 1)
			wantText(t, c, "1", "INCR", keyB)
			time.Sleep(time.Second)
			f.nodes[nodeA].Mute(true)
			time.AfterFunc(known, func() {
				f.replace()
				f.answer(nodeC, "INCR", fmt.Sprintf("-MOVED %d %s", slotC, nodeB), 1)
				wantText(t, c, "1", "INCR", keyC)
			})
			took(t, known, 2500*time.Millisecond, func() { wantReplaced(t, "Do", ways["Do"](t.Context(), c)) })
		})
	}
}

// A blocking command may be silent for any time. The Cluster refreshes the topology as often as it
// checks an idle connection.
func TestSilentMasterUnderABlockingCommand(t *testing.T) {
	bubble(t, cluster.Config{}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
		warm(t, c)
		pop := func(k *conn.Conn) error {
			_, err := k.Do(t.Context(), "BLPOP", "{"+keyA+"}list", 0)
			return err
		}
		done := make(chan error, 1)
		go func() { done <- c.With(t.Context(), keyA, pop) }()
		time.Sleep(20 * time.Second)
		if n := f.refreshes(); n > 6 {
			t.Errorf("the topology was asked for %d times in 20 s", n)
		}
		f.nodes[nodeA].Mute(true)
		f.replace()
		took(t, 0, 7*time.Second, func() { wantReplaced(t, "BLPOP", <-done) })
	})
}

// A connection being dialled is treated as silent too.
func TestSilentMasterThatIsDialled(t *testing.T) {
	for name, call := range ways {
		if strings.HasPrefix(name, "Node.") {
			continue // bound to the node
		}
		bubble(t, cluster.Config{Node: conn.Config{DialTimeout: 20 * time.Second}}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
			time.Sleep(time.Second)
			f.nodes[nodeA].Mute(true)
			f.nodes[nodeA].KillConns(nil)
			time.AfterFunc(4*time.Second, f.replace)
			took(t, 4*time.Second, 5*time.Second, func() {
				if err := call(t.Context(), c); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			})
		})
	}
}

// Streams and subscriptions end with the node, and report the reason.
func TestSilentMasterOfStreams(t *testing.T) {
	bubble(t, cluster.Config{}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
		s := pubsub.New(c, pubsub.Config{})
		defer s.Close()
		sub, err := s.Subscribe(t.Context(), keyA)
		if err != nil {
			t.Fatal(err)
		}
		stream, err := c.StreamTo(t.Context(), nodeA)
		if err != nil {
			t.Fatal(err)
		}
		defer stream.Close()
		time.Sleep(time.Second)
		f.nodes[nodeA].Mute(true)
		time.AfterFunc(7*time.Second, f.replace) // the subscriber's next PING is on its way
		// Up to a second of the time is the question for the topology to the silent master.
		took(t, 7*time.Second, 9*time.Second, func() {
			ev := event(t, sub, pubsub.Interrupted)
			if errors.Is(ev.Err, conn.ErrClosed) || ev.Err == nil || !strings.Contains(ev.Err.Error(), "another node has become the master") {
				t.Errorf("interrupted by %v", ev.Err)
			}
			event(t, sub, pubsub.Resumed)
		})
		if err := stream.Err(); err == nil || errors.Is(err, conn.ErrClosed) {
			t.Errorf("the stream ended by %v", err)
		}
		if _, err := stream.Read(); errors.Is(err, conn.ErrClosed) {
			t.Errorf("Read: %v", err)
		}
		if _, err := c.StreamTo(t.Context(), nodeA); err == nil || errors.Is(err, conn.ErrClosed) {
			t.Errorf("StreamTo a node that has left: %v", err)
		}
	})
}

// Nodes that answer slowly cause no refresh.
func TestNoRefreshWhereNothingIsSilent(t *testing.T) {
	bubble(t, cluster.Config{RefreshInterval: -1}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
		for _, srv := range f.nodes {
			srv.Latency(200 * time.Millisecond)
		}
		var callers sync.WaitGroup
		for name, call := range ways {
			callers.Go(func() {
				for range 100 {
					if err := call(t.Context(), c); err != nil {
						t.Errorf("%s: %v", name, err)
					}
				}
			})
		}
		callers.Wait()
		time.Sleep(time.Hour)
		if n := f.refreshes(); n != 1 {
			t.Errorf("the topology was asked for %d times", n)
		}
	})
}

// A live node that has left the cluster may answer earlier commands, however slowly. Only a hung
// node is given up.
func TestSlowNodeLeaves(t *testing.T) {
	bubble(t, cluster.Config{}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
		warm(t, c)
		f.hook(nodeA, func(cmd fakeredis.Cmd) *fakeredis.Action {
			if cmd.Name != "INCR" {
				return nil
			}
			act := fakeredis.Run().Late(4 * time.Second)
			return &act
		})
		f.replace()
		took(t, 4*time.Second, 4*time.Second, func() {
			if err := ways["With"](t.Context(), c); err != nil {
				t.Error(err)
			}
		})
	})
}

// A Node is bound to one node: after the node has left, calls end at once with the reason.
func TestNodeThatHasLeft(t *testing.T) {
	bubble(t, cluster.Config{RefreshInterval: time.Second}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
		n, _ := c.Owner(keyA)
		f.replace()
		time.Sleep(5 * time.Second)
		for name, call := range map[string]func() error{
			"Do":        func() error { _, err := n.Do(t.Context(), "GET", keyA); return err },
			"SendBatch": func() error { _, err := n.SendBatch(t.Context(), []resp.Command{resp.Cmd("GET", keyA)}); return err },
			"With":      func() error { return n.With(t.Context(), func(*conn.Conn) error { return nil }) },
		} {
			took(t, 0, 0, func() {
				err := call()
				if !conn.SafeToRetry(err) || errors.Is(err, conn.ErrClosed) || !strings.Contains(err.Error(), "another node has become the master") {
					t.Errorf("%s: %v", name, err)
				}
			})
		}
	})
}

// After Close every error is ErrClosed.
func TestClosedWhileReplaced(t *testing.T) {
	for name, call := range ways {
		bubble(t, cluster.Config{}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
			warm(t, c)
			f.nodes[nodeA].Mute(true)
			done := make(chan error, 1)
			go func() { done <- call(t.Context(), c) }()
			synctest.Wait()
			c.Close()
			if err := <-done; !errors.Is(err, conn.ErrClosed) {
				t.Errorf("%s, in flight: %v", name, err)
			}
		})
	}
}

// A question about a node by its id is for the other nodes, and their answer is kept. A node without slots that another report knows with
// slots was replaced.
func TestSuccessionOf(t *testing.T) {
	bubble(t, cluster.Config{}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
		asked := 0
		ids := map[string]string{nodeA: "aa", nodeB: "bb", nodeC: "cc"}
		for addr, id := range ids {
			f.hook(addr, func(cmd fakeredis.Cmd) *fakeredis.Action {
				if !strings.EqualFold(cmd.String(), "CLUSTER NODES") {
					return nil
				}
				asked++
				text := "dd 10.0.0.9:7009@17009 slave bb 0 1 2 connected\n"
				for at, other := range ids {
					flags := "master"
					if other == id {
						flags = "myself,master"
					}
					text += other + " " + at + "@1 " + flags + " - 0 1 2 connected 0-1\n"
				}
				act := fakeredis.Reply(strings.ReplaceAll(str(text), "|", "\r\n"))
				return &act
			})
		}
		before := time.Now()
		s, err := c.SuccessionOf(t.Context(), "bb", before)
		if want := (conn.Succession{Master: "bb", Addr: nodeB, Replicas: 1, Asked: s.Asked}); err != nil || !reflect.DeepEqual(s, want) {
			t.Errorf("SuccessionOf() = %+v, %v, want %+v", s, err, want)
		}
		if asked > 2 { // bb itself, and another node
			t.Errorf("%d nodes were asked", asked)
		}
		asked = 0
		if again, err := c.SuccessionOf(t.Context(), "bb", before); err != nil || asked != 0 || !reflect.DeepEqual(again, s) {
			t.Errorf("the second answer is %+v, %v after %d questions, want the first", again, err, asked)
		}
		time.Sleep(time.Second)
		if later, err := c.SuccessionOf(t.Context(), "bb", time.Now()); err != nil || asked == 0 || !later.Asked.After(s.Asked) {
			t.Errorf("a later answer is %+v, %v after %d questions", later, err, asked)
		}
		asked = 0
		for _, id := range []string{"dd", "unknown"} {
			if s, err := c.SuccessionOf(t.Context(), id, time.Now()); err == nil || !strings.Contains(err.Error(), "do not know it as a master") {
				t.Errorf("SuccessionOf(%s) = %+v, %v, want an error", id, s, err)
			}
		}
		if asked != 2 {
			t.Errorf("%d questions about two nodes that are no masters, want one each", asked)
		}
	})
}

// The latest report of another node answers a question that needs no newer one. One caller at a time asks; the others leave with
// their contexts, or with the Cluster.
func TestSuccession(t *testing.T) {
	bubble(t, cluster.Config{}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
		f.says(nodeB, strings.ReplaceAll(f.slotsLocked(), "\r\n", "|"))
		asked := f.refreshes()
		if s, err := c.Succession(t.Context(), keyA, time.Time{}); err != nil || s.Addr != nodeA || f.refreshes() != asked {
			t.Errorf("Succession() = %+v, %v after %d questions, want %s after none", s, err, f.refreshes()-asked, nodeA)
		}
		since := time.Now()
		for range 2 {
			if s, err := c.Succession(t.Context(), keyA, since); err != nil || s.Addr != nodeA || s.Asked.Before(since) {
				t.Errorf("Succession() = %+v, %v, want an answer since %v", s, err, since)
			}
		}
		if n := f.refreshes() - asked; n != 1 {
			t.Errorf("%d questions, want one for both", n)
		}
		for _, srv := range f.nodes {
			srv.Mute(true)
		}
		time.Sleep(time.Second)
		failed := make(chan error, 2)
		for range 2 {
			go func() {
				_, err := c.Succession(t.Context(), keyA, time.Now())
				failed <- err
			}()
		}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		took(t, 100*time.Millisecond, 100*time.Millisecond, func() {
			if _, err := c.Succession(ctx, keyA, time.Now()); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("behind another question: %v, want the end of the context", err)
			}
		})
		took(t, 0, 0, func() {
			c.Close()
			for range 2 {
				if err := <-failed; !errors.Is(err, conn.ErrClosed) {
					t.Errorf("after Close: %v, want ErrClosed", err)
				}
			}
		})
	})
}

// The answers about nodes by their ids are kept for so many nodes only.
func TestSuccessionOfMany(t *testing.T) {
	bubble(t, cluster.Config{}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
		const most = 64
		asked, text := 0, ""
		for i := range most + 1 {
			text += fmt.Sprintf("id%d 10.0.1.%d:7000@17000 master - 0 1 2 connected 0-1\n", i, i)
		}
		for addr := range f.nodes {
			f.hook(addr, func(cmd fakeredis.Cmd) *fakeredis.Action {
				if !strings.EqualFold(cmd.String(), "CLUSTER NODES") {
					return nil
				}
				asked++
				act := fakeredis.Reply(strings.ReplaceAll(str(text), "|", "\r\n"))
				return &act
			})
		}
		since := time.Now()
		ask := func(id, questions int) {
			t.Helper()
			asked = 0
			s, err := c.SuccessionOf(t.Context(), fmt.Sprint("id", id), since)
			if err != nil || s.Addr != fmt.Sprintf("10.0.1.%d:7000", id) || asked != questions {
				t.Errorf("SuccessionOf(id%d) = %+v, %v after %d questions, want %d", id, s, err, asked, questions)
			}
		}
		for id := range most {
			ask(id, 1)
		}
		ask(0, 0)
		ask(most, 1)
		ask(0, 1)
		ask(most, 0)
	})
}
