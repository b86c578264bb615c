package main

import (
	"context"
	"slices"
	"strings"

	"github.com/lockwire/lockwire"
	"github.com/lockwire/lockwire/lock"
)

// locker is a lock, or a permit of a semaphore.
type locker interface {
	Lock(ctx context.Context, opts ...lock.Option) (*lock.Lease, error)
	TryLock(ctx context.Context, opts ...lock.Option) (*lock.Lease, error)
	Info(ctx context.Context) (lock.Info, error)
}

// kinds are the values of --kind.
var kinds = []string{"fenced", "reentrant", "fair", "read", "write", "spin", "plain", "permit"}

func checkKind(kind string) error {
	if !slices.Contains(kinds, kind) {
		return usageError("--kind is one of %s", strings.Join(kinds, ", "))
	}
	return nil
}

// lockerOf returns the lock with a name and a kind.
func lockerOf(c *lockwire.Client, kind, name string) locker {
	switch kind {
	case "reentrant":
		return c.Reentrant(name)
	case "fair":
		return c.Fair(name)
	case "read":
		return c.ReadWrite(name).Read()
	case "write":
		return c.ReadWrite(name).Write()
	case "spin":
		return c.Spin(name, lock.Backoff{})
	case "plain":
		return c.Plain(name)
	case "permit":
		return permits{c.PermitSemaphore(name)}
	}
	return c.Fenced(name)
}

// permits is a semaphore as a locker.
type permits struct{ *lock.PermitSemaphore }

func (p permits) Lock(ctx context.Context, opts ...lock.Option) (*lock.Lease, error) {
	return p.Acquire(ctx, opts...)
}

func (p permits) TryLock(ctx context.Context, opts ...lock.Option) (*lock.Lease, error) {
	return p.TryAcquire(ctx, opts...)
}
