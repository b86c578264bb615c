package lock_test

import (
	"testing"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/redistest"
)

// On a real server, whose time cannot be turned, a pause is as long as it takes until the server has what Redisson left
// behind. Files whose pauses are for renewals are replayed in virtual time alone.
func TestServerGolden(t *testing.T) {
	for name, file := range goldenFiles {
		if !file.virtual {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				replayOnServers(t, name, file)
			})
		}
	}
}

func replayOnServers(t *testing.T, name string, file goldenFile) {
	_, _, steps := readGolden(t, name)
	redistest.RunProtocols(t, func(t *testing.T, s *redistest.Server, _ int) {
		r := newReplay(t, file.cfg, func() *conn.Pool {
			pool, err := conn.Open(t.Context(), s.Config())
			if err != nil {
				t.Fatal(err)
			}
			return pool
		})
		r.inLine, r.anyOrder, r.slow = file.inLine, file.anyOrder, true
		r.settle = func(done func() bool) {
			timeout := time.After(patience)
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
