package lock

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"iter"
	"strings"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/resp"
	"github.com/lockwire/lockwire/script"
)

//go:embed any_shape.lua
var anyShape string

var shapeScript = &lazy[*script.Script]{make: func() *script.Script { return script.New(anyShape) }}

// Shape is what kind of lock or synchronizer a key is by its looks.
type Shape string

// The shapes that List tells apart.
const (
	ShapeLock      Shape = "lock"      // [Reentrant], [NonReentrant] or [Spin], which look alike
	ShapeFair      Shape = "fair"      // [Fair], while somebody stands in its line; otherwise it is a ShapeLock
	ShapeFenced    Shape = "fenced"    // [Fenced]
	ShapeReadWrite Shape = "readwrite" // [ReadWrite]
	ShapePlain     Shape = "plain"     // [Plain], or another text with a lease that looks random
	ShapePermits   Shape = "permits"   // [PermitSemaphore], while a permit is taken
)

// kind is the one whose info tells about what has the shape; nil if there is no such shape.
func (s Shape) kind() *kind {
	switch s {
	case ShapeLock:
		return reentrantKind.get()
	case ShapeFair:
		return fairKind.get()
	case ShapeFenced:
		return fencedKind.get()
	case ShapeReadWrite:
		return writeKind.get()
	case ShapePermits:
		return permitsKind.get()
	case ShapePlain:
		return plainKind.get()
	}
	return nil
}

// Listed is a lock or synchronizer that is taken, or set up.
type Listed struct {
	Name  string
	Shape Shape
	Info  Info // of a [ReadWrite] lock that of both halves: readers and writer are among its Holders
}

// listChunk is how many keys the server is asked to go through at a time.
const listChunk = 100

// List finds the locks whose names match pattern, a glob of the server's ("orders:*"); "" is all. A lock that is free is no key and
// not found, nor are a [Semaphore] and a [CountDownLatch], which look like any other number. It goes through the whole keyspace in small steps, by SCAN and one short script for each key that
// matches, so other clients are served in between; what is taken or released meanwhile may be found or not, and a name
// may be found twice. In a cluster every master is gone through, one after the other. The first error ends it.
func (c *Client) List(ctx context.Context, pattern string) iter.Seq2[Listed, error] {
	return func(yield func(Listed, error) bool) {
		ctx := c.patient(ctx)
		for server, err := range c.masters(ctx) {
			if err == nil {
				var more bool
				if more, err = c.listOn(ctx, server, pattern, yield); !more {
					return
				}
			}
			if err != nil {
				yield(Listed{}, serverError(err))
				return
			}
		}
	}
}

// masters are the servers that have the keys.
func (c *Client) masters(ctx context.Context) iter.Seq2[conn.Doer, error] {
	if c.nature.spread != nil {
		return c.nature.spread.Doers(ctx)
	}
	return func(yield func(conn.Doer, error) bool) { yield(c.server, nil) }
}

// listOn lists the locks of one server. It reports false when yield has had enough.
func (c *Client) listOn(ctx context.Context, server conn.Doer, pattern string, yield func(Listed, error) bool) (more bool, err error) {
	if pattern == "" {
		pattern = "*"
	}
	for cursor := "0"; ; {
		v, err := server.Send(ctx, resp.Cmd("SCAN", cursor, "MATCH", pattern, "COUNT", listChunk))
		if err != nil {
			return true, err
		}
		if cursor, err = v.At(0).Text(); err != nil {
			return true, fmt.Errorf("lock: list: %w", err)
		}
		found, err := c.recognise(ctx, v.At(1))
		if err != nil {
			return true, err
		}
		for _, l := range found {
			if !yield(l, nil) {
				return false, nil
			}
		}
		if cursor == "0" {
			return true, nil
		}
	}
}

// recognise returns what is a lock among keys.
func (c *Client) recognise(ctx context.Context, keys resp.Value) ([]Listed, error) {
	var found []Listed
	var calls []script.Call
	for key := range keys.All() {
		name, err := key.Text()
		if err != nil {
			return nil, fmt.Errorf("lock: list: %w", err)
		}
		if checkName(name) == nil && !strings.HasPrefix(name, latchPrefix) {
			found = append(found, Listed{Name: name})
			calls = append(calls, shapeScript.get().Call(shapeKeys(name)))
		}
	}
	if len(calls) == 0 {
		return nil, nil
	}
	replies, err := script.RunBatch(ctx, c.server, calls)
	if err != nil {
		return nil, err
	}
	locks := found[:0]
	for i, reply := range replies {
		shape, err := reply.Text()
		if err != nil {
			return nil, err
		}
		if l := found[i]; Shape(shape).kind() != nil {
			l.Shape = Shape(shape)
			locks = append(locks, l)
		}
	}
	return c.inform(ctx, locks)
}

// inform adds what the server knows about each lock, and leaves out those that it has no more.
func (c *Client) inform(ctx context.Context, locks []Listed) ([]Listed, error) {
	if len(locks) == 0 {
		return nil, nil
	}
	calls := make([]script.Call, len(locks))
	for i, l := range locks {
		k := l.Shape.kind()
		calls[i] = k.info.Call(newTarget(k, l.Name).seeing())
	}
	replies, err := script.RunBatch(ctx, c.server, calls)
	if err != nil {
		return nil, err
	}
	there := locks[:0]
	for i, reply := range replies {
		if reply, isErr := errors.AsType[resp.Error](reply.Err()); isErr && wrongType(reply) {
			continue // it has become something else since
		}
		l, parse := locks[i], locks[i].Shape.kind().parseInfo
		if l.Shape == ShapeReadWrite {
			parse = parseBothHalves
		}
		if l.Info, err = parse(reply); err != nil {
			return nil, err
		}
		if l.Info.Locked || l.Info.Permits.Set {
			there = append(there, l)
		}
	}
	return there, nil
}
