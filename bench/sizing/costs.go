package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockwire/lockwire/lock"
)

// processes measures processes at rest, then each with a lock, then each waiting for a lock of its own.
func processes(b *bench, s size) ([]cost, error) {
	before, err := b.look()
	if err == nil {
		err = b.open(s.processes, lock.Config{Lease: s.lease})
	}
	if err != nil {
		return nil, err
	}
	costs := []cost{}
	add := func(what string) error {
		l, err := b.look()
		server := l.server.Memory - before.server.Memory
		connections := float64(l.server.Clients-before.server.Clients) / float64(s.processes)
		costs = append(costs, cost{fmt.Sprintf("%s, connections: %.0f", what, connections),
			bytes(server, s.processes), bytes(l.memory-before.memory, s.processes)})
		return err
	}
	if err := add("a process that is connected"); err != nil {
		return nil, err
	}
	err = each(s.processes, func(i int) error {
		_, err := b.clients[i].Reentrant(name("process", i)).Lock(background)
		return err
	})
	if err == nil {
		err = add("a process with a lock")
	}
	if err != nil {
		return nil, err
	}
	renewal, err := b.renewal(s, s.processes, "a renewal for a process with one lock, PINGs included")
	if err != nil {
		return nil, err
	}
	costs = append(costs, renewal)
	leave, err := wait(b.clients, func(i int) *lock.Reentrant {
		return b.clients[i].Reentrant(name("process", (i+1)%s.processes))
	}, s.processes)
	if err == nil {
		err = add("a process with a lock that waits for another")
	}
	leave()
	return costs, err
}

func name(what string, i int) string { return fmt.Sprintf("sizing:%s:%07d", what, i) }

// wait makes n callers wait for the locks of taken, and returns when all wait. leave ends the callers.
func wait(clients []*lock.Client, taken func(i int) *lock.Reentrant, n int) (leave func(), err error) {
	ctx, cancel := context.WithCancel(background)
	var callers sync.WaitGroup
	for i := range n {
		callers.Go(func() { _, _ = taken(i).Lock(ctx) })
	}
	leave = func() {
		cancel()
		callers.Wait()
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		waiting := 0
		for _, c := range clients {
			waiting += c.Stats().Waiting
		}
		if waiting >= n {
			return leave, nil
		}
		if time.Now().After(end) {
			return leave, errors.New("callers do not wait")
		}
	}
}

// locks measures the locks of a client, and their renewal.
func locks(b *bench, s size) ([]cost, error) {
	if err := b.open(1, lock.Config{Lease: s.lease}); err != nil {
		return nil, err
	}
	c := b.clients[0]
	before, err := b.look()
	if err != nil {
		return nil, err
	}
	err = each(s.locks, func(i int) error {
		_, err := c.Reentrant(name("lock", i)).Lock(background)
		return err
	})
	if err != nil {
		return nil, err
	}
	held, err := b.look()
	if err != nil {
		return nil, err
	}
	renewal, err := b.renewal(s, s.locks, "a renewal of a lock, of one process with all")
	return []cost{
		{"a lock, with a name of 19 bytes", bytes(held.server.Memory-before.server.Memory, s.locks), bytes(held.memory-before.memory, s.locks)},
		renewal,
	}, err
}

// renewal measures the renewals of n locks held by the clients.
func (b *bench) renewal(s size, n int, what string) (cost, error) {
	var begin, end look
	err := b.now(&begin)
	time.Sleep(s.length)
	if err = errors.Join(err, b.now(&end)); err != nil {
		return cost{}, err
	}
	held := 0
	for _, c := range b.clients {
		held += c.Stats().Leases
	}
	if held != n {
		return cost{}, fmt.Errorf("%d locks of %d are left", held, n)
	}
	renewals := max(1, int(float64(n)*end.at.Sub(begin.at).Seconds()/(s.lease.Seconds()/3)))
	return cost{what, micros(end.server.CPU-begin.server.CPU, renewals), micros(end.cpu-begin.cpu, renewals)}, nil
}

// waiters measures waiting callers of a client, for a single lock and for a lock each.
func waiters(b *bench, s size) ([]cost, error) {
	if err := b.open(2, lock.Config{Lease: time.Minute}); err != nil {
		return nil, err
	}
	err := each(s.waiters, func(i int) error {
		_, err := b.clients[0].Reentrant(name("waited", i)).Lock(background)
		return err
	})
	if err != nil {
		return nil, err
	}
	var costs []cost
	for _, test := range []struct {
		what string
		of   int
	}{{"a caller that waits, all for one lock", 1}, {"a caller that waits, each for its own lock", s.waiters}} {
		before, err := b.look()
		if err != nil {
			return nil, err
		}
		leave, err := wait(b.clients[1:], func(i int) *lock.Reentrant {
			return b.clients[1].Reentrant(name("waited", i%test.of))
		}, s.waiters)
		if err != nil {
			leave()
			return nil, err
		}
		after, err := b.look()
		leave()
		if err != nil {
			return nil, err
		}
		costs = append(costs, cost{test.what,
			bytes(after.server.Memory-before.server.Memory, s.waiters), bytes(after.memory-before.memory, s.waiters)})
	}
	return costs, nil
}

// pairs measures Lock and Unlock of uncontended locks.
func pairs(b *bench, s size) ([]cost, error) {
	if err := b.open(1, lock.Config{}); err != nil {
		return nil, err
	}
	return b.work(s, "Lock and Unlock, 64 callers, a lock each", 64, func(i int) *lock.Reentrant {
		return b.clients[0].Reentrant(name("pair", i))
	})
}

// contention measures processes with a caller each that take a lock in turn.
func contention(b *bench, s size) ([]cost, error) {
	var costs []cost
	for _, n := range s.contenders {
		if err := b.open(n-len(b.clients), lock.Config{}); err != nil {
			return nil, err
		}
		c, err := b.work(s, fmt.Sprintf("Lock and Unlock of one lock by %d processes", n), n, func(i int) *lock.Reentrant {
			return b.clients[i].Reentrant("sizing:contended")
		})
		if err != nil {
			return nil, err
		}
		costs = append(costs, c...)
	}
	return costs, nil
}

// work makes n callers lock and unlock their locks until the time is up.
func (b *bench) work(s size, what string, n int, of func(i int) *lock.Reentrant) ([]cost, error) {
	var done atomic.Int64
	var begin, end look
	ctx, cancel := context.WithCancel(background)
	defer cancel()
	var callers sync.WaitGroup
	errs := make([]error, n)
	for i := range n {
		callers.Go(func() {
			for ctx.Err() == nil && errs[i] == nil {
				lease, err := of(i).Lock(ctx)
				if err != nil && ctx.Err() != nil {
					return
				}
				if err == nil {
					err = lease.Unlock(background)
				}
				errs[i] = err
				done.Add(1)
			}
		})
	}
	time.Sleep(s.length / 3)
	first := done.Load()
	err := b.now(&begin)
	time.Sleep(s.length)
	count := int(max(1, done.Load()-first))
	err = errors.Join(err, b.now(&end))
	cancel()
	callers.Wait()
	if err = errors.Join(append(errs, err)...); err != nil {
		return nil, err
	}
	rate := float64(count) / end.at.Sub(begin.at).Seconds()
	return []cost{{fmt.Sprintf("%s: %.0f a second", what, rate),
		micros(end.server.CPU-begin.server.CPU, count), micros(end.cpu-begin.cpu, count)}}, nil
}
