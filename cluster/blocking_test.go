package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/lockwire/lockwire/cluster"
	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/resp"
)

// Block goes to the node of the key, and follows redirections.
func TestBlock(t *testing.T) {
	bubble(t, cluster.Config{}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
		pop := func() string {
			job, err := resp.As[*[]string](c.Block(t.Context(), "BLPOP", keyB, 1))
			if err != nil || job == nil {
				return fmt.Sprint(job, err)
			}
			return (*job)[1]
		}
		f.nodes[nodeB].Do("RPUSH", keyB, "one")
		if got := pop(); got != "one" {
			t.Errorf("BLPOP = %s", got)
		}
		if got := pop(); got != "<nil> <nil>" {
			t.Errorf("BLPOP of nothing = %s", got)
		}
		f.nodes[nodeC].Do("RPUSH", keyB, "asked", "moved")
		f.answer(nodeB, "BLPOP", fmt.Sprintf("-ASK %d %s", slotB, nodeC), 1)
		if got := pop(); got != "asked" || f.nodes[nodeC].Count("ASKING") != 1 {
			t.Errorf("BLPOP after ASK = %s, with %d ASKING", got, f.nodes[nodeC].Count("ASKING"))
		}
		f.answer(nodeB, "BLPOP", fmt.Sprintf("-MOVED %d %s", slotB, nodeC), 1)
		if got := pop(); got != "moved" {
			t.Errorf("BLPOP after MOVED = %s", got)
		}
		if _, err := c.Block(t.Context(), "BLPOP", nil); !errors.Is(err, conn.ErrRefused) {
			t.Errorf("Block of an argument that cannot be encoded = %v", err)
		}
		if _, err := c.Block(t.Context(), "LPUSH", keyA); !errors.Is(err, resp.ErrGeneral) {
			t.Errorf("Block of a command that fails = %v", err)
		}
	})
}

// Block goes on at the new master if its node becomes a replica, and ends if somebody has unblocked it.
func TestBlockOverAFailover(t *testing.T) {
	bubble(t, cluster.Config{}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
		f.nodes[nodeB].Do("RPUSH", keyB, "one")
		f.answer(nodeB, "BLPOP", "-UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)", 1)
		if job, err := resp.As[[]string](c.Block(t.Context(), "BLPOP", keyB, 1)); err != nil || job[1] != "one" {
			t.Errorf("BLPOP = %v, %v", job, err)
		}
		f.answer(nodeB, "BLPOP", "-UNBLOCKED client unblocked via CLIENT UNBLOCK", 1)
		if _, err := c.Block(t.Context(), "BLPOP", keyB, 1); !errors.Is(err, resp.ErrUnblocked) {
			t.Errorf("BLPOP that was unblocked = %v", err)
		}
	})
}

// A call of Block is reported once, with its attempts.
func TestBlockTraced(t *testing.T) {
	bubble(t, cluster.Config{}, func(t *testing.T, f *fakes, _ *cluster.Cluster) {
		var ends []conn.CommandEnd
		end := func(_ context.Context, i conn.CommandEnd) {
			if i.Name == "BLPOP" {
				ends = append(ends, i)
			}
		}
		c := f.open(cluster.Config{Addrs: []string{nodeA}, Node: conn.Config{Trace: &conn.Trace{CommandEnd: end}}})
		f.answer(nodeB, "BLPOP", fmt.Sprintf("-MOVED %d %s", slotB, nodeC), 1)
		if _, err := c.Block(t.Context(), "BLPOP", keyB, 1); err != nil {
			t.Error(err)
		}
		if len(ends) != 1 || ends[0].Attempts != 2 {
			t.Errorf("reported: %+v", ends)
		}
	})
}
