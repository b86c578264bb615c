package locks

import (
	"github.com/lockwire/lockwire/bench/measure"
	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/lock"
)

// Lockwire is our own, with nothing set.
func Lockwire(env measure.Env, _ int) (Client, error) { return openLockwire(env, lock.Config{}) }

// LockwireApart never hands a lock over within a process.
func LockwireApart(env measure.Env, _ int) (Client, error) {
	return openLockwire(env, lock.Config{HandOvers: -1})
}

func openLockwire(env measure.Env, cfg lock.Config) (Client, error) {
	pool, err := conn.Open(background, conn.Config{Network: env.Network, Addr: env.Addr})
	if err != nil {
		return nil, err
	}
	locks, err := lock.New(pool, cfg)
	if err != nil {
		pool.Close()
		return nil, err
	}
	return &lockwire{pool, locks}, nil
}

type lockwire struct {
	pool  *conn.Pool
	locks *lock.Client
}

func (c *lockwire) Locker(name string) (Locker, error) {
	return lockwireLock{c.locks.Reentrant(name)}, nil
}

func (c *lockwire) Close() {
	c.locks.Close()
	c.pool.Close()
}

type lockwireLock struct{ *lock.Reentrant }

func (l lockwireLock) Lock() (Held, error) {
	lease, err := l.Reentrant.Lock(background)
	return lockwireLease{lease}, err
}

type lockwireLease struct{ *lock.Lease }

func (l lockwireLease) Unlock() error { return l.Lease.Unlock(background) }
