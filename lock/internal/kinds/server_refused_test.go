package kinds_test

import (
	"testing"

	"github.com/lockwire/lockwire/internal/netfail"
	"github.com/lockwire/lockwire/internal/redistest"
	"github.com/lockwire/lockwire/lock/internal/kinds"
	"github.com/lockwire/lockwire/resp"
)

// A change refused halfway, for lack of the right to its last command, is refused again to a repeat under the same latch, also at once, and
// runs as soon as the right is there.
func TestServerChangeRefusedHalfway(t *testing.T) {
	redistest.Run(t, func(t *testing.T, s *redistest.Server) {
		s.Do("ACL", "SETUSER", "limited", "on", ">secret", "~*", "+@all") // no channel: Redis 6.0 has no rules for channels, and nobody listens
		cfg := s.Config()
		cfg.Username, cfg.Password = "limited", "secret"
		pool := redistest.Open(t, cfg)
		const life, publish, latch = 60_000, "PUBLISH", "latch"
		for _, c := range []struct {
			kind, operation, right string
			keys                   []string
			args                   []any
			want                   string
		}{
			{"semaphore", "add", "incrby", []string{"n", "channel", latch, "line"}, []any{life, publish, 2, 0, soon(), "1", "client"}, "7"},
			{"semaphore", "drain", "decrby", []string{"n", "channel", latch}, []any{life, publish, soon()}, "0"},
			{"permits", "add", "incrby", []string{"n", "channel", "taken", latch, "line"}, []any{life, publish, 2, 0, soon(), "1", "client"}, "7"},
			{"latch", "down", "decr", []string{"n", "channel", latch}, []any{life, publish, soon()}, "4"},
		} {
			run := func() error {
				v, err := kinds.All()[c.kind][c.operation].Run(t.Context(), pool, c.keys, c.args...)
				if err == nil {
					err = v.Err()
				}
				return err
			}
			s.Do("FLUSHALL")
			s.Do("SET", "n", 5)
			s.Do("ACL", "SETUSER", "limited", "-"+c.right)
			for n := range 3 {
				if err := run(); !netfail.DeniedInside(err) {
					t.Errorf("%s %s, request %d without %s: %v", c.kind, c.operation, n+1, c.right, err)
				}
			}
			s.Do("ACL", "SETUSER", "limited", "+"+c.right)
			for n := range 2 { // the second is a repeat of the first
				err := run()
				if got, _ := resp.As[string](s.Do("GET", "n"), nil); err != nil || got != c.want {
					t.Errorf("%s %s, request %d with %s: %v, and %s of %s", c.kind, c.operation, n+1, c.right, err, got, c.want)
				}
			}
		}
	})
}
