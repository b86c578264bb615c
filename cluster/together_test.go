package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/lockwire/lockwire/cluster"
	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/resp"
)

// waiting returns cmds followed by a WAIT.
func waiting(cmds ...resp.Command) []resp.Command { return append(cmds, resp.Cmd("WAIT", 1, 100)) }

// If this program refuses a command, nothing of a batch that ends in WAIT is sent.
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

// A batch that ends in WAIT goes where its first command with a key leads, as a whole, if no command with a key was executed.
func TestWaitIsRedirected(t *testing.T) {
	bubble(t, cluster.Config{}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
		for _, reply := range []string{"-ASK %d %s", "-MOVED %d %s"} {
			f.answer(nodeA, "SET", fmt.Sprintf(reply, slotA, nodeB), 2)
			values, err := c.SendBatch(t.Context(), waiting(resp.Cmd("ECHO", "first"), resp.Cmd("SET", keyA, 1), resp.Cmd("SET", keyA, 2)))
			if err != nil || texts(values) != "first OK OK 0" {
				t.Errorf("behind %s: %q, %v", reply, texts(values), err)
			}
		}
		f.wantCounts("WAIT", 2, 2, 0)
		f.wantCounts("ASKING", 0, 3, 0) // in front of each command but WAIT
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
