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
// Another program may have set a lease of a number of milliseconds that Lua writes with an exponent.
func TestServerRenewalsWrite(t *testing.T) {
	const owner, id, minute, ages = "client:1", "0123456789abcdef", 60_000, 200_000_000_000_000_000
	redistest.Run(t, func(t *testing.T, s *redistest.Server) {
		for _, lasts := range []int64{minute, ages} {
			begin := time.Now().UnixMilli()
			ends, timeout := begin+lasts, lockscripts.TimeoutKey("rw", owner, 1)
			for _, row := range []struct {
				kind    string
				held    [][]any
				renewal []any // KEYS and ARGV
				lease   []any // a command whose reply tells the lease
				since   int64 // what the reply counts from: 1970, or 0 for the time left
			}{
				{"reentrant", [][]any{{"HSET", "lock", owner, 1}, {"PEXPIREAT", "lock", ends}}, []any{1, "lock", 1000, owner}, []any{"PTTL", "lock"}, 0},
				{"plain", [][]any{{"SET", "plain", owner}, {"PEXPIREAT", "plain", ends}}, []any{1, "plain", 1000, owner}, []any{"PTTL", "plain"}, 0},
				{"read", [][]any{
					{"HSET", "rw", "mode", "read", owner, 1}, {"PEXPIREAT", "rw", ends}, {"SET", timeout, 1}, {"PEXPIREAT", timeout, ends},
				}, []any{2, "rw", timeout, 1000, owner}, []any{"PTTL", timeout}, 0},
				{"fastermulti", [][]any{
					{"HSET", "group", "v", owner, "v:" + owner + ":expire_time", ends, "v:" + owner + ":lock_count", 1}, {"PEXPIREAT", "group", ends},
				}, []any{1, "group", 1000, owner + " v"}, []any{"PTTL", "group"}, 0},
				{"permits", [][]any{{"ZADD", "permits", ends, id}}, []any{1, "permits", 1000, id}, []any{"ZSCORE", "permits", id}, begin},
			} {
				for _, command := range row.held {
					if err := s.Do(command...).Err(); err != nil {
						t.Fatal(err)
					}
				}
				before := s.Changes()
				reply := s.Do(append([]any{"EVAL", kinds.All()[row.kind]["renew"].Source()}, row.renewal...)...)
				if n, err := reply.At(0).Int(); reply.Err() != nil || err != nil || n != 1 {
					t.Errorf("%s: renew returns %v, %v, %v", row.kind, n, err, reply.Err())
				}
				if s.Changes() == before {
					t.Errorf("%s: a renewal that changes nothing writes nothing", row.kind)
				}
				score, err := s.Do(row.lease...).Float()
				if left := int64(score) - row.since; err != nil || left > lasts+100 || left < lasts/2 { // a score has 53 bits
					t.Errorf("%s: a lease of %d ms is %d ms long after the renewal, %v", row.kind, lasts, left, err)
				}
				if n, _ := s.Do("ZCARD", "permits").Int(); row.kind == "permits" && n != 1 {
					t.Errorf("%d permits are taken, want 1", n)
				}
			}
		}
	})
}
