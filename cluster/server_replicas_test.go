package cluster_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/lockwire/lockwire/cluster"
	"github.com/lockwire/lockwire/internal/redistest"
	"github.com/lockwire/lockwire/resp"
)

// Reads go to the replica of the key's master while there is one, and to the master without one.
func TestServerReplicas(t *testing.T) {
	redistest.RunClusters(t, redistest.Options{}, func(t *testing.T, rc *redistest.Cluster, proto int) {
		c := open(t, cluster.Config{Addrs: rc.Addrs()[:1], Node: rc.Config(), RefreshInterval: 50 * time.Millisecond})
		ctx := within(t)
		r := c.Replicas()
		awaitRole(ctx, t, r, "role:slave")
		values, err := c.SendBatch(ctx, []resp.Command{resp.Cmd("SET", "k", "v"), resp.Cmd("WAIT", 1, redistest.Patience.Milliseconds())})
		if n, _ := resp.As[int](values[1], err); n != 1 {
			t.Fatalf("SET = %v, %v", values, err)
		}
		for range 10 {
			wantText(t, r, "v", "GET", "k")
		}
		wantText(t, r, "OK", "SET", "k", "w")
		wantText(t, c, "w", "GET", "k")
		replica := rc.Replica(rc.Owner(cluster.Slot("k")))
		defer replica.Restart()
		replica.Kill()
		awaitRole(ctx, t, r, "role:master")
		wantText(t, r, "w", "GET", "k")
	})
}

// awaitRole waits until a server of this role answers reads of the key k.
func awaitRole(ctx context.Context, t *testing.T, r cluster.Replicas, role string) {
	t.Helper()
	for {
		info, err := resp.As[string](r.Send(ctx, resp.Cmd("INFO", "replication").On("k")))
		if strings.Contains(info, role) {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("no answer of %s: %q, %v", role, info, err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}
