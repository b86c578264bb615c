package lock

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/lock/internal/kinds"
	"github.com/lockwire/lockwire/lock/internal/remote"
	"github.com/lockwire/lockwire/resp"
)

// Shape is the kind of a lock or synchronizer, guessed from its key's type and content.
type Shape string

// The shapes distinguished by List.
const (
	ShapeLock      Shape = "lock"      // [Reentrant], [NonReentrant] or [Spin], stored alike
	ShapeFair      Shape = "fair"      // [Fair] with waiters; without waiters a Fair lock is a ShapeLock
	ShapeFenced    Shape = "fenced"    // [Fenced]
	ShapeReadWrite Shape = "readwrite" // [ReadWrite]
	ShapePlain     Shape = "plain"     // [Plain], or any other random-looking string with a lease
	ShapePermits   Shape = "permits"   // [PermitSemaphore], while a permit is taken

	ShapeFasterMulti Shape = "fastermulti" // the group of a [FasterMulti]: the Info is about all its values
)

// kind returns the kind whose info script reads the shape; nil for an unknown shape.
func (s Shape) kind() *kind {
	lazy := map[Shape]*kinds.Lazy[*kind]{
		ShapeLock: reentrantKind, ShapeFair: fairKind, ShapeFenced: fencedKind, ShapeReadWrite: writeKind, ShapePermits: permitsKind,
		ShapePlain: plainKind, ShapeFasterMulti: fasterMultiKind,
	}[s]
	if lazy == nil {
		return nil
	}
	return lazy.Get()
}

// Listed is a held lock, or a semaphore with a taken permit.
type Listed struct {
	Name  string
	Shape Shape
	Info  Info // for a [ReadWrite] lock, the Info of both halves: Holders has the readers and the writer
}

// listChunk is the COUNT of each SCAN.
const listChunk = 100

// List yields the held locks with names matching pattern, a glob of the server ("orders:*"); "" matches all names. List does
// not find:
//
//   - a free lock, because it has no key
//   - a [Semaphore] or [CountDownLatch], because its key is a number like any other
//
// List scans the whole keyspace in small steps, with SCAN and a short script per matching key, and other clients are served
// between the steps. A lock acquired or released during the scan may be missing, and a name may appear twice. In a
// cluster List scans the masters one after the other. The first error ends the iteration.
func (c *Client) List(ctx context.Context, pattern string) iter.Seq2[Listed, error] {
	return func(yield func(Listed, error) bool) {
		ctx := remote.Patient(ctx)
		for server, err := range c.nature.masters(ctx, c.server) {
			more := err == nil
			if more {
				more, err = c.listOn(ctx, server, cmp.Or(pattern, "*"), yield)
			} else {
				err = serverError(err)
			}
			if err != nil {
				yield(Listed{}, err)
			}
			if !more {
				return
			}
		}
	}
}

// listOn lists the locks of a single server. more is false after an error, and if yield returned false.
func (c *Client) listOn(ctx context.Context, server conn.Doer, pattern string, yield func(Listed, error) bool) (more bool, err error) {
	var names []string
	tell := func() bool {
		var found []Listed
		found, err = c.recognise(ctx, names)
		names = names[:0]
		return err == nil && !slices.ContainsFunc(found, func(l Listed) bool { return !yield(l, nil) })
	}
	for name, failed := range conn.Scan(ctx, server, "MATCH", pattern, "COUNT", listChunk) {
		if failed != nil {
			return false, serverError(failed)
		}
		if names = append(names, name); len(names) == listChunk && !tell() {
			return false, err
		}
	}
	more = tell()
	return more, err
}

// masters yields the servers with keys.
func (n *nature) masters(ctx context.Context, outer Server) iter.Seq2[conn.Doer, error] {
	if n.spread != nil {
		return n.spread.Doers(ctx)
	}
	return func(yield func(conn.Doer, error) bool) { yield(outer, nil) }
}

// recognise returns the locks among keys.
func (c *Client) recognise(ctx context.Context, keys []string) ([]Listed, error) {
	var names []string
	var calls []*remote.Call
	for _, name := range keys {
		if checkName(name) == nil && !strings.HasPrefix(name, kinds.LatchPrefix) {
			names = append(names, name)
			calls = append(calls, shapeCall(name))
		}
	}
	var locks []Listed
	var infos []*remote.Call
	for i, shape := range c.scripts.RunBatch(ctx, calls) {
		text, err := remote.Text(shape.Reply, shape.Err)
		if err != nil {
			return nil, c.unrecognised(names[i], err)
		}
		if k := Shape(text).kind(); k != nil {
			t := newTarget(k, names[i])
			locks = append(locks, Listed{Name: t.Name, Shape: Shape(text)})
			infos = append(infos, t.infoCall())
		}
	}
	return c.addInfos(ctx, locks, infos)
}

// shapeCall returns a call of the script that tells the shape of a key.
func shapeCall(name string) *remote.Call {
	return &remote.Call{Script: kinds.Shape.Get(), Lock: remote.Lock{Name: name}, Keys: kinds.ShapeKeys(name), Apart: remote.Apart{OnSource: true}}
}

// unrecognised is the error of a batch of calls, of which one about the lock with the given name has failed.
func (c *Client) unrecognised(name string, err error) error {
	if remote.TryAgain(err) { // of this lock alone
		return c.failed(name, err)
	}
	return serverError(err)
}

// addInfos adds the Info of each lock by the calls infos, and drops locks freed in the meantime, and semaphores whose permits have come back by
// the ends of their leases.
func (c *Client) addInfos(ctx context.Context, locks []Listed, infos []*remote.Call) ([]Listed, error) {
	there := locks[:0]
	for i, info := range c.scripts.RunBatch(ctx, infos) {
		l, err := locks[i], info.Err
		if reply, _ := errors.AsType[resp.Error](err); remote.WrongType(reply) {
			continue // the key has changed its type since the scan
		}
		if err == nil {
			l.Info, err = l.Shape.kind().parseBothHalves(info.Reply)
		}
		if err != nil {
			return nil, c.unrecognised(l.Name, err)
		}
		if l.Info.Permits.Taken > 0 || l.Info.Locked && l.Shape != ShapePermits {
			there = append(there, l)
		}
	}
	return there, nil
}

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
			return nil, c.failed(name, err)
		}
		for key, err := range conn.Scan(ctx, server, "MATCH", pattern, "COUNT", listChunk) {
			if err != nil {
				return nil, c.failed(name, err)
			}
			left, err := resp.Milliseconds(c.server.Send(ctx, resp.Cmd("PTTL", key)))
			if err != nil {
				return nil, c.failed(name, err)
			}
			if left > 0 {
				found = append(found, Latch{Key: key, Remaining: left})
			}
		}
	}
	byKey := func(a, b Latch) int { return cmp.Compare(a.Key, b.Key) }
	slices.SortFunc(found, byKey)
	return slices.CompactFunc(found, func(a, b Latch) bool { return a.Key == b.Key }), nil
}
