package cluster_test

import (
	"fmt"
	"testing"

	"github.com/lockwire/lockwire/cluster"
	"github.com/lockwire/lockwire/internal/redistest"
	"github.com/lockwire/lockwire/resp"
)

func TestServerSmoke(t *testing.T) {
	redistest.RunClusters(t, redistest.Options{}, func(t *testing.T, rc *redistest.Cluster, proto int) {
		c := open(t, cluster.Config{Addrs: rc.Addrs()[:1], Node: rc.Config()})
		for i := range 1000 {
			if _, err := c.Do(t.Context(), "SET", fmt.Sprint("key:", i), i); err != nil {
				t.Fatal(err)
			}
		}
		var cmds []resp.Command
		for i := range 1000 {
			cmds = append(cmds, resp.Cmd("GET", fmt.Sprint("key:", i)))
		}
		values, err := c.SendBatch(t.Context(), cmds)
		if err != nil {
			t.Fatal(err)
		}
		for i, v := range values {
			if n, err := v.Int(); err != nil || int(n) != i {
				t.Fatalf("reply %d is %v, %v", i, n, err)
			}
		}
		t.Logf("%+v", c.Stats())
	})
}
