package cluster_test

import (
	"errors"
	"fmt"
	"testing"

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
