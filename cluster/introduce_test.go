package cluster_test

import (
	"testing"
	"testing/synctest"

	"github.com/lockwire/lockwire/cluster"
	"github.com/lockwire/lockwire/resp"
)

// Nodes dialed before Introduce and after it have the name, until stop.
func TestIntroduce(t *testing.T) {
	bubble(t, cluster.Config{}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
		ask := func(keys ...string) {
			for _, key := range keys {
				if _, err := c.Send(t.Context(), resp.Cmd("GET", key)); err != nil {
					t.Fatal(err)
				}
			}
			synctest.Wait()
		}
		want := func(name string) {
			t.Helper()
			for addr, srv := range f.nodes {
				for _, conn := range srv.Conns() {
					if conn.Name != name {
						t.Errorf("a connection to %s is named %q, want %q", addr, conn.Name, name)
					}
				}
			}
		}
		ask(keyA)
		stop := c.Introduce("web-7:id")
		ask(keyA, keyB, keyC)
		want("web-7:id")
		stop()
		synctest.Wait()
		want("")
	})
}
