package lock

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/lock/internal/kinds"
	"github.com/lockwire/lockwire/lock/internal/remote"
	"github.com/lockwire/lockwire/resp"
)

// Latch is a key in which the server remembers a request about a lock, so that the request does not take effect twice, or after it
// was taken back. Latches expire by themselves; no lock waits for their end. Redisson's clients have such keys too.
type Latch struct {
	Key       string
	Remaining time.Duration // until the key expires
}

// globEscapes escapes what has a meaning in the server's patterns.
var globEscapes = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`)

// Latches returns the latches that are left of the lock with the given name, of any kind, sorted by key. Some are there for an instant
// beside each release; many, or old ones, belong to processes that repeat releases, that take back acquires without an answer, or
// that have died.
//
// Latches scans the whole keyspace in small steps, as [Client.List] does: it is for people, not for programs that run all the time.
// The names job and {job} have the same latches.
func (c *Client) Latches(ctx context.Context, name string) ([]Latch, error) {
	if err := checkName(name); err != nil {
		return nil, c.about(name, err)
	}
	ctx = remote.Patient(ctx)
	pattern := globEscapes.Replace(string(kinds.AppendLatch(nil, name))) + "*"
	var found []Latch
	for server, err := range c.nature.masters(ctx, c.server) {
		if err != nil {
			return nil, c.refused(name, err)
		}
		for key, err := range conn.Scan(ctx, server, "MATCH", pattern, "COUNT", listChunk) {
			if err != nil {
				return nil, c.refused(name, err)
			}
			left, err := resp.As[int64](c.server.Send(ctx, resp.Cmd("PTTL", key)))
			if err != nil {
				return nil, c.refused(name, err)
			}
			if left > 0 {
				found = append(found, Latch{Key: key, Remaining: time.Duration(left) * time.Millisecond})
			}
		}
	}
	byKey := func(a, b Latch) int { return cmp.Compare(a.Key, b.Key) }
	slices.SortFunc(found, byKey)
	return slices.CompactFunc(found, func(a, b Latch) bool { return a.Key == b.Key }), nil
}
