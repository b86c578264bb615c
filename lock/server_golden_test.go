package lock_test

import (
	"testing"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/redistest"
	"github.com/lockwire/lockwire/lock"
)

// On a real server, whose time cannot be turned, a pause is as long as it takes until the server has what Redisson left
// behind. The watchdog's file, where pauses are for renewals, is replayed in virtual time alone.
func TestServerGolden(t *testing.T) {
	for _, file := range []string{"lock.txt", "readwrite.txt"} {
		t.Run(file, func(t *testing.T) { serverGolden(t, readGolden(t, file)) })
	}
}

func serverGolden(t *testing.T, steps []goldenStep) {
	redistest.RunProtocols(t, func(t *testing.T, s *redistest.Server, _ int) {
		r := newReplay(t, lock.Config{}, func() *conn.Pool {
			pool, err := conn.Open(t.Context(), s.Config())
			if err != nil {
				t.Fatal(err)
			}
			return pool
		})
		r.settle = func(done func() bool) {
			timeout := time.After(10 * time.Second)
			for !done() {
				select {
				case <-time.After(2 * time.Millisecond):
				case <-timeout:
					return
				}
			}
		}
		r.run(steps)
	})
}
