package kinds_test

import (
	"cmp"
	"maps"
	"strings"
	"testing"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/netfail"
	"github.com/lockwire/lockwire/internal/redistest"
	"github.com/lockwire/lockwire/lock/internal/kinds"
	"github.com/lockwire/lockwire/resp"
)

// limited returns a Pool of the user limited, who has all keys and commands, of which tests take some away. The user has no channel: Redis 6.0
// has no rules for channels, and nobody listens.
func limited(t *testing.T, s *redistest.Server) *conn.Pool {
	s.Do("ACL", "SETUSER", "limited", "on", ">secret", "~*", "+@all")
	cfg := s.Config()
	cfg.Username, cfg.Password = "limited", "secret"
	return redistest.Open(t, cfg)
}

// A change refused halfway, for lack of the right to its last command, is refused again to a repeat under the same latch, also at once, and
// runs as soon as the right is there.
func TestServerChangeRefusedHalfway(t *testing.T) {
	redistest.Run(t, func(t *testing.T, s *redistest.Server) {
		pool := limited(t, s)
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

// A release of one of several holds that may not leave its latch leaves the hold: a repeat, or an earlier request, would end another one.
func TestServerReleaseRefusedHalfway(t *testing.T) {
	redistest.Run(t, func(t *testing.T, s *redistest.Server) {
		pool := limited(t, s)
		const latch, lease = "latch", 60_000
		common := []any{lease, "owner", "PUBLISH", 20_000, 0, soon()}
		line := append(append([]any{}, common...), "1", "client", "place", "")
		for _, c := range []struct {
			kind  string
			keys  []string
			args  []any
			field string
		}{
			{"reentrant", []string{"l", "channel", latch, "line"}, line, "owner"},
			{"fair", []string{"l", "channel", "queue", "timeouts", "idle", latch}, append(append([]any{}, common...), "1"), "owner"},
			{"read", []string{"l", "channel", "writers", "{l}:owner:rwlock_timeout:1", latch, "{l}:owner:rwlock_timeout:2", "{l}:owner:rwlock_timeout:3"}, line, "owner"},
			{"write", []string{"l", "channel", "writers", "{l}:owner:rwlock_timeout:1", latch}, append([]any{lease, "owner:write"}, line[2:]...), "owner:write"},
		} {
			run := func() error {
				v, err := kinds.All()[c.kind]["release"].Run(t.Context(), pool, c.keys, c.args...)
				if err == nil {
					err = v.Err()
				}
				return err
			}
			s.Do("FLUSHALL")
			s.Do("HSET", "l", c.field, 3)
			s.Do("PEXPIRE", "l", lease)
			switch c.kind {
			case "read":
				s.Do("HSET", "l", "mode", "read")
				for _, n := range []string{"1", "2", "3"} {
					s.Do("SET", "{l}:owner:rwlock_timeout:"+n, 1, "PX", lease)
				}
			case "write":
				s.Do("HSET", "l", "mode", "write")
			}
			for _, right := range strings.Fields("set hget hmget hset hdel hincrby hlen hgetall pttl pexpire del") {
				s.Do("ACL", "SETUSER", "limited", "-"+right)
				for n := range 2 {
					err := run()
					if err == nil { // the script does not need the right
						s.Do("HSET", "l", c.field, 3)
						s.Do("DEL", latch)
						if c.kind == "read" {
							s.Do("SET", "{l}:owner:rwlock_timeout:3", 1, "PX", lease)
						}
						continue
					}
					if got, _ := resp.As[string](s.Do("HGET", "l", c.field), nil); !netfail.DeniedInside(err) || got != "3" {
						t.Errorf("%s without %s, request %d: %v, and %s holds", c.kind, right, n+1, err, got)
						s.Do("HSET", "l", c.field, 3)
					}
				}
				s.Do("ACL", "SETUSER", "limited", "+"+right)
			}
			for n := range 2 {
				err := run()
				if got, _ := resp.As[string](s.Do("HGET", "l", c.field), nil); err != nil || got != "2" {
					t.Errorf("%s, request %d with the right: %v, and %s holds", c.kind, n+1, err, got)
				}
			}
		}
	})
}

// TestServerWriterRefusedHalfway has an Owner that reads beneath its only write hold give the write hold back, and one that only writes
// downgrade, without one of the rights: the writer has the lock as before, and with the right the owner only reads.
func TestServerWriterRefusedHalfway(t *testing.T) {
	redistest.Run(t, func(t *testing.T, s *redistest.Server) {
		pool := limited(t, s)
		const lease, hold = 60_000, "{l}:owner:rwlock_timeout:1"
		keys := []string{"l", "channel", "writers", hold, "latch"}
		state := func() map[string]string {
			fields, err := resp.As[map[string]string](s.Do("HGETALL", "l"), nil)
			if err != nil {
				t.Fatal(err)
			}
			return fields
		}
		for operation, args := range map[string][]any{
			"release":   {0, "owner:write", "PUBLISH", 20_000, 0, soon(), "1", "client", "place", ""},
			"downgrade": {lease, "owner", "PUBLISH", 0, soon(), "1", "client"},
		} {
			run := func() error {
				v, err := kinds.All()["write"][operation].Run(t.Context(), pool, keys, args...)
				return cmp.Or(err, v.Err())
			}
			for _, right := range []string{"hset", "hdel"} {
				s.Do("FLUSHALL")
				s.Do("HSET", "l", "mode", "write", "owner:write", 1)
				if operation == "release" {
					s.Do("HSET", "l", "owner", 1)
					s.Do("SET", hold, 1, "PX", lease)
				}
				s.Do("PEXPIRE", "l", lease)
				s.Do("ACL", "SETUSER", "limited", "-"+right)
				for range 2 {
					err := run()
					if got := state(); !netfail.DeniedInside(err) || got["mode"] != "write" || got["owner:write"] != "1" {
						t.Errorf("%s without %s: %v, and the lock is %v", operation, right, err, got)
					}
				}
				s.Do("ACL", "SETUSER", "limited", "+"+right)
				err := run()
				if got := state(); err != nil || !maps.Equal(got, map[string]string{"mode": "read", "owner": "1"}) {
					t.Errorf("%s with the right: %v, and the lock is %v", operation, err, got)
				}
			}
		}
	})
}
