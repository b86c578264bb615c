package cluster_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/lockwire/lockwire/cluster"
	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/internal/redistest"
	"github.com/lockwire/lockwire/resp"
)

// The table of reads has no write of the server.
func TestServerReads(t *testing.T) {
	redistest.Run(t, func(t *testing.T, s *redistest.Server) {
		reads := 0
		for cmd := range s.Do("COMMAND").All() {
			name, _ := cmd.At(0).Text()
			flags, err := resp.As[[]string](cmd.At(2), nil)
			if err != nil {
				t.Fatalf("COMMAND about %s: %v", name, err)
			}
			known := cluster.IsRead(resp.Cmd(name))
			if known && slices.Contains(flags, "write") {
				t.Errorf("%s is a write", name)
			}
			if known {
				reads++
			}
		}
		if reads < 50 {
			t.Errorf("the server knows %d reads", reads)
		}
	})
}

func TestIsRead(t *testing.T) {
	for _, name := range []string{"get", "GET", "Mget", "EVAL_RO", "georadiusbymember_ro"} {
		if !cluster.IsRead(resp.Cmd(name)) {
			t.Errorf("%s is no read", name)
		}
	}
	for _, name := range []string{"SET", "EVAL", "EVALSHA", "FCALL", "GETEX", "SORT", "HSCAN", "JSON.GET", "georadiusbymember_roo", "@GET"} {
		if cluster.IsRead(resp.Cmd(name)) {
			t.Errorf("%s is a read", name)
		}
	}
}

// What is not known to be a read does not touch a replica.
func TestReplicasAndWrites(t *testing.T) {
	withReplicas(t, cluster.Config{}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
		r := c.Replicas()
		for _, args := range [][]any{{"SET", keyB, "v"}, {"EVAL", "return redis.call('SET', KEYS[1], 'x')", 1, keyB}, {"FCALL", "f", 1, keyB}, {"JSON.GET", keyB}} {
			_, _ = r.Do(t.Context(), args...) // the fake does not know all of them
		}
		if n := f.dials(replicaB1) + f.dials(replicaB2); n != 0 {
			t.Errorf("%d connections to replicas", n)
		}
	})
}

// A batch that also writes in a slot goes to its master in whole, so that reads see the writes before them.
func TestReplicasAndBatchesThatWrite(t *testing.T) {
	withReplicas(t, cluster.Config{}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
		f.nodes[nodeA].Do("SET", keyA, "a")
		values, err := c.Replicas().SendBatch(t.Context(), []resp.Command{
			resp.Cmd("GET", keyB), resp.Cmd("SET", keyB, "new"), resp.Cmd("GET", keyB), resp.Cmd("GET", keyA)})
		if got := texts(values); got != nodeB+" OK new a" || err != nil {
			t.Errorf("batch = %s, %v", got, err)
		}
	})
}

// A replica that has not heard of a failover does not change which node is asked for the locks.
func TestReplicasDoNotChangeTheTopology(t *testing.T) {
	withReplicas(t, cluster.Config{}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
		f.answerReads(replicaB1, moved(nodeC))
		f.answerReads(replicaB2, moved(nodeC))
		r := c.Replicas()
		wantText(t, r, nodeB, "GET", keyB)
		if _, err := r.SendBatch(t.Context(), []resp.Command{resp.Cmd("GET", keyB), resp.Cmd("TTL", keyB)}); err != nil {
			t.Error(err)
		}
		if n, _ := c.Owner(keyB); n.Addr() != nodeB {
			t.Errorf("the owner is %s now", n.Addr())
		}
	})
}

// An attempt at a replica counts neither as an attempt nor as a redirection.
func TestReplicasWithoutRepeats(t *testing.T) {
	for _, cfg := range []cluster.Config{
		{Node: conn.Config{Retry: conn.Retry{Attempts: 1}}}, {Node: conn.Config{Retry: conn.Retry{Attempts: -1}}}, {MaxRedirects: -1},
	} {
		for name, spoil := range map[string]func(f *fakes, addr string){
			"down":    func(f *fakes, addr string) { f.nodes[addr].Refuse(true) },
			"moved":   func(f *fakes, addr string) { f.answerReads(addr, moved(nodeB)) },
			"loading": func(f *fakes, addr string) { f.answerReads(addr, fakeredis.Reply("-LOADING busy\r\n")) },
		} {
			t.Run(fmt.Sprint(name, cfg.Node.Retry.Attempts, cfg.MaxRedirects), func(t *testing.T) {
				withReplicas(t, cfg, func(t *testing.T, f *fakes, c *cluster.Cluster) {
					spoil(f, replicaB1)
					spoil(f, replicaB2)
					r := c.Replicas()
					wantText(t, r, nodeB, "GET", keyB)
					values, err := r.SendBatch(t.Context(), []resp.Command{resp.Cmd("GET", keyB), resp.Cmd("GET", keyA)})
					if err != nil || texts(values[:1]) != nodeB {
						t.Errorf("batch = %v, %v", values, err)
					}
				})
			})
		}
	}
}

// A user who may not send READONLY is told so.
func TestReplicasWithoutPermission(t *testing.T) {
	withReplicas(t, cluster.Config{}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
		for _, addr := range []string{replicaB1, replicaB2} {
			f.answer(addr, "READONLY", "-NOPERM User x has no permissions to run the 'readonly' command", 0)
		}
		if _, err := c.Replicas().Do(t.Context(), "GET", keyB); !errors.Is(err, resp.ErrNoPerm) {
			t.Errorf("GET = %v", err)
		}
	})
}
