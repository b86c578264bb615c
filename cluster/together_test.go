package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/lockwire/lockwire/cluster"
	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/resp"
)

// waiting returns cmds followed by a WAIT.
func waiting(cmds ...resp.Command) []resp.Command { return append(cmds, resp.Cmd("WAIT", 1, 100)) }

// If this program refuses a command, nothing of a batch with WAIT is sent.
func TestWaitRefused(t *testing.T) {
	bubble(t, cluster.Config{}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
		for name, cmd := range map[string]resp.Command{
			"of one node": resp.Cmd("FLUSHALL"), "blocking": resp.Cmd("BLPOP", keyA, 1), "not encoded": {},
		} {
			values, err := c.SendBatch(t.Context(), waiting(resp.Cmd("SET", keyA, 1), cmd))
			if values != nil || !errors.Is(err, conn.ErrRefused) {
				t.Errorf("%s: %v, %v, want ErrRefused", name, values, err)
			}
		}
		f.wantCounts("SET", 0, 0, 0)
	})
}

// A batch with WAIT goes where its first command with a key leads, as a whole, if no command with a key was executed.
func TestWaitIsRedirected(t *testing.T) {
	bubble(t, cluster.Config{}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
		for _, reply := range []string{"-ASK %d %s", "-MOVED %d %s"} {
			f.answer(nodeA, "SET", fmt.Sprintf(reply, slotA, nodeB), 2)
			batch := append(waiting(resp.Cmd("ECHO", "first"), resp.Cmd("SET", keyA, 1), resp.Cmd("SET", keyA, 2)), resp.Cmd("ECHO", "last"))
			values, err := c.SendBatch(t.Context(), batch)
			if err != nil || texts(values) != "first OK OK 0 last" {
				t.Errorf("behind %s: %q, %v", reply, texts(values), err)
			}
		}
		f.wantCounts("WAIT", 2, 2, 0)
		f.wantCounts("ASKING", 0, 5, 0) // in front of each command
	})
}

// Refusals beside an executed command are the replies, and the next command follows their redirection at once.
func TestWaitAmongRefusals(t *testing.T) {
	bubble(t, cluster.Config{}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
		f.answer(nodeA, "INCR", fmt.Sprintf("-MOVED %d %s", slotA, nodeB), 0)
		f.serve(fakeRange{0, 10922, nodeB}, fakeRange{10923, 16383, nodeC}) // as MOVED says, for the refresh that follows
		values, err := c.SendBatch(t.Context(), waiting(resp.Cmd("SET", keyA, 1), resp.Cmd("INCR", keyA)))
		if err != nil || texts(values) != "OK MOVED 0" {
			t.Errorf("%q, %v, want the redirection as a reply", texts(values), err)
		}
		wantText(t, c, "1", "INCR", keyA)
		f.wantCounts("INCR", 1, 1, 0)
	})
}

// If a node goes on to refuse all commands, the refusals are the replies; redirections that lead nowhere are an error.
func TestWaitRefusedToTheEnd(t *testing.T) {
	cfg := cluster.Config{MaxRedirects: 2, Node: conn.Config{Retry: conn.Retry{Attempts: 4}}}
	bubble(t, cfg, func(t *testing.T, f *fakes, c *cluster.Cluster) {
		batch := waiting(resp.Cmd("SET", keyA, 1))
		f.answer(nodeA, "SET", "-LOADING busy", 0)
		if values, err := c.SendBatch(t.Context(), batch); err != nil || texts(values) != "LOADING 0" {
			t.Errorf("%q, %v, want the refusal as a reply", texts(values), err)
		}
		f.wantCounts("SET", 4, 0, 0)
		f.answer(nodeA, "SET", fmt.Sprintf("-MOVED %d %s", slotA, nodeB), 0)
		f.answer(nodeB, "SET", fmt.Sprintf("-MOVED %d %s", slotA, nodeA), 0)
		if values, err := c.SendBatch(t.Context(), batch); values != nil || !errors.Is(err, resp.ErrMoved) {
			t.Errorf("%q, %v, want MOVED as the error", texts(values), err)
		}
	})
}

// Nothing is sent to a slot without a node. The Trace has no address for such an attempt.
func TestBatchesWithoutANode(t *testing.T) {
	bareBubble(t, func(t *testing.T, f *fakes, proto int) {
		f.serve(fakeRange{0, 5460, nodeA}, fakeRange{10923, 16383, nodeC})
		var seen []conn.RetryInfo
		node := conn.Config{Protocol: proto, Retry: conn.Retry{Attempts: 2}, Trace: retries(&seen)}
		c := f.open(cluster.Config{Addrs: []string{nodeA}, Node: node})
		for name, batch := range map[string][]resp.Command{
			"alone":       {resp.Cmd("SET", keyB, 1)},
			"ending WAIT": waiting(resp.Cmd("SET", keyB, 1)),
		} {
			seen = nil
			values, err := c.SendBatch(t.Context(), batch)
			if len(values) != 0 || !conn.SafeToRetry(err) || !strings.Contains(err.Error(), fmt.Sprint("slot ", slotB, " ")) {
				t.Errorf("%s: %q, %v, want the slot named", name, texts(values), err)
			}
			if len(seen) != 1 || seen[0].Addr != "" || seen[0].Name != "SET" {
				t.Errorf("%s: retries %+v, want one without an address", name, seen)
			}
		}
		values, err := c.SendBatch(t.Context(), []resp.Command{resp.Cmd("SET", keyB, 1), resp.Cmd("SET", keyC, 1)})
		all, ok := errors.AsType[*cluster.BatchError](err)
		if len(values) != 0 || !ok {
			t.Fatalf("beside another: %q, %v, want a BatchError", texts(values), err)
		}
		if v, err := all.At(1); err != nil || texts([]resp.Value{v}) != "OK" {
			t.Errorf("beside another: %v, %v, want that it ran", v, err)
		}
		f.wantCounts("SET", 0, 0, 1)
	})
}

// retries returns a Trace that notes the repetitions.
func retries(seen *[]conn.RetryInfo) *conn.Trace {
	return &conn.Trace{Retry: func(_ context.Context, i conn.RetryInfo) { *seen = append(*seen, i) }}
}

// With conn.NoRepeat a node that redirects to itself is redialled for the next command, as it has been replaced under its name.
func TestNoRepeatAfterMovedToItself(t *testing.T) {
	for name, together := range map[string]bool{"alone": false, "before WAIT": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, cluster.Config{}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
				wantText(t, c, "1", "INCR", keyA)
				before := f.dials(nodeA)
				f.answer(nodeA, "INCR", fmt.Sprintf("-MOVED %d %s", slotA, nodeA), 1)
				ctx := context.WithValue(t.Context(), conn.NoRepeat, true)
				for _, want := range []string{"MOVED", "2"} {
					cmds := []resp.Command{resp.Cmd("INCR", keyA)}
					if together {
						cmds = waiting(cmds...)
						want += " 0"
					}
					if values, err := c.SendBatch(ctx, cmds); err != nil || texts(values) != want {
						t.Errorf("%q, %v, want %s", texts(values), err, want)
					}
				}
				if n := f.dials(nodeA) - before; n < 1 {
					t.Errorf("%s was dialled %d times, want at least once", nodeA, n)
				}
			})
		})
	}
}

// With conn.NoRepeat all refusals of a batch with WAIT are learnt from, and not the first alone.
func TestNoRepeatLearnsFromAllRefusals(t *testing.T) {
	for _, first := range []string{fmt.Sprintf("MOVED %d %s", slotA, nodeB), "CLUSTERDOWN Hash slot not served"} {
		bubble(t, cluster.Config{}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
			other := "k1"
			for i := 0; c.Route(other) != nodeA || cluster.Slot(other) == slotA; i++ {
				other = fmt.Sprint("k", i)
			}
			f.hook(nodeA, func(cmd fakeredis.Cmd) *fakeredis.Action {
				answer := fakeredis.Reply("-" + first + "\r\n")
				switch {
				case cmd.Name != "INCR":
					return nil
				case cmd.Args[1] == other:
					answer = fakeredis.Reply(fmt.Sprintf("-MOVED %d %s\r\n", cluster.Slot(other), nodeB))
				}
				return &answer
			})
			ctx := context.WithValue(t.Context(), conn.NoRepeat, true)
			for _, addr := range []string{nodeA, nodeB, nodeC} {
				f.says(addr, "-ERR nobody knows|") // so all knowledge comes from the refusals
			}
			before := f.refreshes()
			word, _, _ := strings.Cut(first, " ")
			values, err := c.SendBatch(ctx, waiting(resp.Cmd("INCR", keyA), resp.Cmd("INCR", other)))
			if err != nil || texts(values) != word+" MOVED 0" {
				t.Errorf("%q, %v", texts(values), err)
			}
			if got := c.Route(other); got != nodeB {
				t.Errorf("the owner of the second key is %s, want %s", got, nodeB)
			}
			synctest.Wait()
			if f.refreshes() == before {
				t.Error("the topology has not been asked for")
			}
		})
	}
}
