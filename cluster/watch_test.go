package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/lockwire/lockwire/cluster"
	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/resp"
)

// Watch begins anew after a change of the key, and on another node after MOVED.
func TestWatch(t *testing.T) {
	bubble(t, cluster.Config{}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
		f.nodes[nodeC].Do("SET", keyB, "5")
		f.answer(nodeB, "WATCH", fmt.Sprintf("-MOVED %d %s", slotB, nodeC), 1)
		calls := 0
		double := func(c *conn.Conn) ([]resp.Command, error) {
			n, err := resp.As[int](c.Do(t.Context(), "GET", keyB))
			if calls++; calls == 1 {
				f.nodes[nodeC].Do("INCR", keyB)
			}
			return []resp.Command{resp.Cmd("INCRBY", keyB, n)}, err
		}
		values, err := c.Watch(t.Context(), []string{keyB}, double)
		if n, _ := resp.As[int](values[0], err); n != 12 || calls != 2 {
			t.Errorf("Watch = %v, %v after %d calls, want 12", values, err, calls)
		}
		if _, err := c.Watch(t.Context(), nil, double); !errors.Is(err, conn.ErrRefused) {
			t.Errorf("Watch without keys = %v", err)
		}
	})
}

// Nodes that redirect Watch to and fro do not hold it for ever.
func TestWatchRedirectedForEver(t *testing.T) {
	bubble(t, cluster.Config{MaxRedirects: 3}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
		for _, n := range []struct{ from, to string }{{nodeB, nodeC}, {nodeC, nodeB}} {
			f.hook(n.from, func(cmd fakeredis.Cmd) *fakeredis.Action {
				act := fakeredis.Reply(fmt.Sprintf("-MOVED %d %s\r\n", slotB, n.to))
				if cmd.Name != "WATCH" {
					return nil
				}
				return &act
			})
		}
		_, err := c.Watch(t.Context(), []string{keyB}, nil)
		if n := f.nodes[nodeB].Count("WATCH") + f.nodes[nodeC].Count("WATCH"); !errors.Is(err, resp.ErrMoved) || n != 4 {
			t.Errorf("Watch = %v after %d attempts, want 4", err, n)
		}
	})
}

// An error of fn ends Watch, whatever it matches, and does not change the topology.
func TestWatchReturnsTheErrorOfFn(t *testing.T) {
	bubble(t, cluster.Config{}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
		for _, cause := range []error{conn.ErrTxAborted, resp.Error(fmt.Sprintf("MOVED %d %s", slotA, nodeC))} {
			mine := fmt.Errorf("mine: %w", cause)
			calls := 0
			_, err := c.Watch(t.Context(), []string{keyB}, func(*conn.Conn) ([]resp.Command, error) {
				if calls++; calls > 1 {
					return nil, nil
				}
				return nil, mine
			})
			if n, _ := c.Owner(keyA); err != mine || calls != 1 || n.Addr() != nodeA {
				t.Errorf("Watch = %v after %d calls, and the owner of another slot is %s", err, calls, n.Addr())
			}
		}
	})
}

// Watch waits where the node is not ready, or the slot moves, as long as fn has not been called.
func TestWatchWaits(t *testing.T) {
	for _, text := range []string{"CLUSTERDOWN x", "TRYAGAIN x", "LOADING x", fmt.Sprintf("ASK %d %s", slotB, nodeC)} {
		bubble(t, cluster.Config{Node: conn.Config{Retry: conn.Retry{Attempts: 5}}}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
			f.answer(nodeB, "WATCH", "-"+text, 3)
			calls := 0
			set := func(*conn.Conn) ([]resp.Command, error) {
				calls++
				return []resp.Command{resp.Cmd("SET", keyB, 1)}, nil
			}
			values, err := c.Watch(t.Context(), []string{keyB}, set)
			if texts(values) != "OK" || err != nil || calls != 1 {
				t.Errorf("Watch after %s = %v, %v after %d calls", text, values, err, calls)
			}
			f.answer(nodeB, "WATCH", "-"+text, 0)
			_, err = c.Watch(t.Context(), []string{keyB}, set)
			if prefix := resp.Error(resp.Error(text).Prefix()); !errors.Is(err, prefix) || calls != 1 {
				t.Errorf("Watch while %s = %v after %d calls", text, err, calls)
			}
			f.wantCounts("WATCH", 0, 4+5, 0)
		})
	}
}

// A transaction that is not ready to run is not repeated: fn has been called. The end of ctx ends the pause after an
// aborted one.
func TestWatchEnds(t *testing.T) {
	bubble(t, cluster.Config{}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		calls := 0
		change := func(*conn.Conn) ([]resp.Command, error) {
			calls++
			f.nodes[nodeB].Do("INCR", keyB)
			return []resp.Command{resp.Cmd("SET", keyB, 1)}, nil
		}
		if _, err := c.Watch(ctx, []string{keyB}, change); !errors.Is(err, context.DeadlineExceeded) || calls < 5 || calls > 50 {
			t.Errorf("Watch of a key that always changes = %v after %d calls", err, calls)
		}
		calls = 0
		f.refuseTx(nodeB, "-LOADING x")
		_, err := c.Watch(t.Context(), []string{keyB}, func(*conn.Conn) ([]resp.Command, error) {
			calls++
			return []resp.Command{resp.Cmd("INCR", keyB)}, nil
		})
		if !errors.Is(err, resp.ErrLoading) || calls != 1 {
			t.Errorf("Watch = %v after %d calls", err, calls)
		}
	})
}
