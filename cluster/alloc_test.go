//go:build !race

package cluster_test

import (
	"testing"

	"github.com/lockwire/lockwire/cluster"
	"github.com/lockwire/lockwire/internal/redistest"
	"github.com/lockwire/lockwire/resp"
)

// Routing allocates nothing: Send makes no allocation, and Do one for the encoded command.
func TestAllocServer(t *testing.T) {
	rc := redistest.StartCluster(t, redistest.Options{})
	c := open(t, cluster.Config{Addrs: rc.Addrs(), Node: rc.Config()})
	ctx, cmd := t.Context(), resp.Cmd("GET", "key")
	if n := testing.AllocsPerRun(1000, func() { c.Send(ctx, cmd) }); n != 0 {
		t.Errorf("Send allocates %v times", n)
	}
	if n := testing.AllocsPerRun(1000, func() { c.Do(ctx, "GET", "key") }); n > 1 {
		t.Errorf("Do allocates %v times", n)
	}
}
