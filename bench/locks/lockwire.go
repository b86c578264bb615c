package locks

import (
	"github.com/lockwire/lockwire/bench/measure"
	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/lock"
)

// take takes a lock of one kind. The object of the lock is made for each call, as for names like "order:1234".
type take func(c *lock.Client, name string) (*lock.Lease, error)

func takeReentrant(c *lock.Client, name string) (*lock.Lease, error) {
	return c.Reentrant(name).Lock(background)
}

// Lockwire is our own, with nothing set.
func Lockwire(env measure.Env, _ int) (Client, error) {
	return openLockwire(env, lock.Config{}, takeReentrant)
}

// LockwireApart never hands a lock over within a process.
func LockwireApart(env measure.Env, _ int) (Client, error) {
	return openLockwire(env, lock.Config{HandOvers: -1}, takeReentrant)
}

// LockwireOwners takes each lock by an Owner, so none is handed over.
func LockwireOwners(env measure.Env, _ int) (Client, error) {
	return openLockwire(env, lock.Config{}, func(c *lock.Client, name string) (*lock.Lease, error) {
		return c.Reentrant(name).Lock(background, lock.As(c.NewOwner()))
	})
}

// Kind is a kind of lock of ours.
type Kind struct {
	Name string
	Open Open
}

// Kinds are all kinds. A semaphore has a single permit.
func Kinds() []Kind {
	list := []struct {
		name string
		take take
	}{
		{"Reentrant", takeReentrant},
		{"NonReentrant", func(c *lock.Client, name string) (*lock.Lease, error) { return c.NonReentrant(name).Lock(background) }},
		{"Spin", func(c *lock.Client, name string) (*lock.Lease, error) {
			return c.Spin(name, lock.Backoff{}).Lock(background)
		}},
		{"Fenced", func(c *lock.Client, name string) (*lock.Lease, error) { return c.Fenced(name).Lock(background) }},
		{"Fair", func(c *lock.Client, name string) (*lock.Lease, error) { return c.Fair(name).Lock(background) }},
		{"Plain", func(c *lock.Client, name string) (*lock.Lease, error) { return c.Plain(name).Lock(background) }},
		{"write", func(c *lock.Client, name string) (*lock.Lease, error) {
			return c.ReadWrite(name).Write().Lock(background)
		}},
		{"read", func(c *lock.Client, name string) (*lock.Lease, error) {
			return c.ReadWrite(name).Read().Lock(background)
		}},
	}
	var kinds []Kind
	for _, k := range list {
		kinds = append(kinds, Kind{k.name, func(env measure.Env, _ int) (Client, error) {
			return openLockwire(env, lock.Config{}, k.take)
		}})
	}
	return append(kinds, Kind{"PermitSemaphore", openPermits}, Kind{"Semaphore", openSemaphores})
}

func openLockwire(env measure.Env, cfg lock.Config, t take) (*lockwire, error) {
	pool, err := conn.Open(background, conn.Config{Network: env.Network, Addr: env.Addr})
	if err != nil {
		return nil, err
	}
	locks, err := lock.New(pool, cfg)
	if err != nil {
		pool.Close()
		return nil, err
	}
	return &lockwire{pool: pool, locks: locks, take: t}, nil
}

// Redlock is a Redlock of all servers.
func Redlock(env measure.Env, _ int) (Client, error) {
	r := &redlocks{}
	for _, addr := range env.Servers() {
		env.Addr = addr
		c, err := openLockwire(env, lock.Config{}, nil)
		if err != nil {
			r.Close()
			return nil, err
		}
		r.servers = append(r.servers, c)
	}
	return r, nil
}

type redlocks struct{ servers []*lockwire }

func (r *redlocks) Locker(name string) (Locker, error) { return &redlock{r, name}, nil }

func (r *redlocks) Close() {
	for _, c := range r.servers {
		c.Close()
	}
}

// redlock makes a Redlock for each call.
type redlock struct {
	*redlocks
	name string
}

func (r *redlock) Lock() (Held, error) {
	var nodes []lock.Member
	for _, c := range r.servers {
		nodes = append(nodes, c.locks.Reentrant(r.name))
	}
	l, err := lock.NewRedlock(lock.RedlockConfig{Quarantine: -1}, nodes...) // the servers have just been started, and lose nothing
	if err != nil {
		return nil, err
	}
	lease, err := l.Lock(background)
	return lockwireLease{lease}, err
}

type lockwire struct {
	pool  *conn.Pool
	locks *lock.Client
	take  take
}

func (c *lockwire) Locker(name string) (Locker, error) { return &lockwireLock{c, name}, nil }

func (c *lockwire) Close() {
	c.locks.Close()
	c.pool.Close()
}

type lockwireLock struct {
	*lockwire
	name string
}

func (l *lockwireLock) Lock() (Held, error) {
	lease, err := l.take(l.locks, l.name)
	return lockwireLease{lease}, err
}

type lockwireLease struct{ *lock.Lease }

func (l lockwireLease) Unlock() error { return l.Lease.Unlock(background) }

// permits are locks by a PermitSemaphore with a single permit.
type permits struct{ *lockwire }

func openPermits(env measure.Env, _ int) (Client, error) {
	c, err := openLockwire(env, lock.Config{}, func(c *lock.Client, name string) (*lock.Lease, error) {
		return c.PermitSemaphore(name).Acquire(background)
	})
	return permits{c}, err
}

func (c permits) Locker(name string) (Locker, error) {
	if _, err := c.locks.PermitSemaphore(name).TrySetPermits(background, 1); err != nil {
		return nil, err
	}
	return c.lockwire.Locker(name)
}

// semaphores are locks by a Semaphore with a single permit.
type semaphores struct{ *lockwire }

func openSemaphores(env measure.Env, _ int) (Client, error) {
	c, err := openLockwire(env, lock.Config{}, nil)
	return semaphores{c}, err
}

func (c semaphores) Locker(name string) (Locker, error) {
	_, err := c.locks.Semaphore(name).TrySetPermits(background, 1)
	return &semaphore{c.locks, name}, err
}

type semaphore struct {
	locks *lock.Client
	name  string
}

func (s *semaphore) Lock() (Held, error) { return s, s.locks.Semaphore(s.name).Acquire(background, 1) }
func (s *semaphore) Unlock() error       { return s.locks.Semaphore(s.name).Release(background, 1) }
