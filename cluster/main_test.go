package cluster_test

import (
	"context"
	"testing"

	"github.com/lockwire/lockwire/cluster"
	"github.com/lockwire/lockwire/internal/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// within returns a context that ends with the test, or after a time longer than any step of a test.
func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), redistest.Patience)
	t.Cleanup(cancel)
	return ctx
}

// open opens a Cluster that is closed at the end of the test.
func open(t testing.TB, cfg cluster.Config) *cluster.Cluster {
	t.Helper()
	c, err := cluster.Open(within(t), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}
