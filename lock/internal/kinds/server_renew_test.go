package kinds_test

import (
	"testing"
	"time"

	"github.com/lockwire/lockwire/internal/lockscripts"
	"github.com/lockwire/lockwire/internal/redistest"
	"github.com/lockwire/lockwire/lock/internal/kinds"
)

// A renewal writes even if it changes nothing. Otherwise WAIT behind it would not wait for an earlier renewal of another connection,
// which has made the change: Redis 8.0 and Valkey 9 count the replicas that have the last write of the connection itself.
func TestServerRenewalsWrite(t *testing.T) {
	const owner, id = "client:1", "0123456789abcdef"
	ends := time.Now().Add(time.Minute).UnixMilli()
	timeout := lockscripts.TimeoutKey("rw", owner, 1)
	redistest.Run(t, func(t *testing.T, s *redistest.Server) {
		for _, row := range []struct {
			kind    string
			held    [][]any
			renewal []any // KEYS and ARGV
			lease   []any // a command whose reply tells the lease
			scale   int64 // what it replies for the lease: the end, or the time left
		}{
			{"reentrant", [][]any{{"HSET", "lock", owner, 1}, {"PEXPIREAT", "lock", ends}}, []any{1, "lock", 1000, owner}, []any{"PTTL", "lock"}, 0},
			{"plain", [][]any{{"SET", "plain", owner}, {"PEXPIREAT", "plain", ends}}, []any{1, "plain", 1000, owner}, []any{"PTTL", "plain"}, 0},
			{"read", [][]any{
				{"HSET", "rw", "mode", "read", owner, 1}, {"PEXPIREAT", "rw", ends}, {"SET", timeout, 1}, {"PEXPIREAT", timeout, ends},
			}, []any{2, "rw", timeout, 1000, owner}, []any{"PTTL", timeout}, 0},
			{"fastermulti", [][]any{
				{"HSET", "group", "v", owner, "v:" + owner + ":expire_time", ends, "v:" + owner + ":lock_count", 1}, {"PEXPIREAT", "group", ends},
			}, []any{1, "group", 1000, owner + " v"}, []any{"PTTL", "group"}, 0},
			{"permits", [][]any{{"ZADD", "permits", ends, id}}, []any{1, "permits", 1000, id}, []any{"ZSCORE", "permits", id}, ends},
		} {
			for _, command := range row.held {
				if err := s.Do(command...).Err(); err != nil {
					t.Fatal(err)
				}
			}
			before := s.Changes()
			reply := s.Do(append([]any{"EVAL", kinds.All()[row.kind]["renew"].Source()}, row.renewal...)...)
			if n, err := reply.At(0).Int(); err != nil || n != 1 {
				t.Errorf("%s: renew returns %v, %v", row.kind, n, err)
			}
			if s.Changes() == before {
				t.Errorf("%s: a renewal that changes nothing writes nothing", row.kind)
			}
			left, err := s.Do(row.lease...).Float()
			if err != nil || int64(left) > max(row.scale, 60_000) || int64(left) < max(row.scale, 30_000) {
				t.Errorf("%s: %v has the reply %v, %v", row.kind, row.lease, left, err)
			}
			if n, _ := s.Do("ZCARD", "permits").Int(); row.kind == "permits" && n != 1 {
				t.Errorf("%d permits are taken, want 1", n)
			}
		}
	})
}
