package redistest

import (
	"testing"

	"github.com/lockwire/lockwire/conn"
)

// Open opens a pool, closed at the end of t.
func Open(t testing.TB, cfg conn.Config) *conn.Pool {
	t.Helper()
	pool, err := conn.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := pool.Close(); err != nil {
			t.Errorf("Close() = %v", err)
		}
	})
	return pool
}
