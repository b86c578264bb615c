package scale

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lockwire/lockwire/bench/floor"
	"github.com/lockwire/lockwire/bench/measure"
	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/lock"
)

var background = context.Background()

// client is lockwire with nothing set.
type client struct {
	pool  *conn.Pool
	locks *lock.Client
}

func open(env measure.Env) (*client, error) {
	pool, err := conn.Open(background, conn.Config{Network: env.Network, Addr: env.Addr})
	if err != nil {
		return nil, err
	}
	locks, err := lock.New(pool, lock.Config{})
	if err != nil {
		pool.Close()
		return nil, err
	}
	return &client{pool, locks}, nil
}

func (c *client) close() {
	c.locks.Close()
	c.pool.Close()
}

// The defaults of the watchdog.
const (
	lease  = 30 * time.Second
	period = lease / 3
)

// Leases takes n locks, then measures the cost of keeping the locks for the length of the measurement, a period of the watchdog
// or more.
func Leases(n int) measure.Work {
	return func(env measure.Env) (measure.Report, error) {
		c, err := open(env)
		if err != nil {
			return measure.Report{}, err
		}
		defer c.close()
		if err := c.take(n); err != nil {
			return measure.Report{}, err
		}
		var r measure.Report
		m := measure.Start(env)
		time.Sleep(env.Length.For)
		m.Stop(&r)
		s := c.locks.Stats()
		r.Ops = int64(s.Leases)
		r.Set("lost", float64(s.Lost))
		r.Set("late by its own count %", 100*s.MaxLateness.Seconds()/period.Seconds())
		oldest, err := oldestRenewal(env, n)
		r.Set("late by PTTL %", 100*max(0, oldest-period).Seconds()/period.Seconds())
		return r, err
	}
}

const takers = 64

func (c *client) take(n int) error {
	errs := make([]error, takers)
	var wg sync.WaitGroup
	for t := range takers {
		wg.Go(func() {
			for i := t; i < n && errs[t] == nil; i += takers {
				_, errs[t] = c.locks.Reentrant(name(i)).Lock(background)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

func name(i int) string { return fmt.Sprint("bench:lease:", i) }

// oldestRenewal asks the server for how long each lease still is, and returns the age of the one renewed longest ago.
func oldestRenewal(env measure.Env, n int) (time.Duration, error) {
	c, err := floor.Dial(env.Network, env.Addr, nil)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	shortest := lease
	for i := range n {
		r, err := c.Do(floor.Request("PTTL", name(i)))
		if err != nil {
			return 0, err
		}
		if r.N < 0 {
			return 0, fmt.Errorf("scale: lease %d is gone", i)
		}
		shortest = min(shortest, time.Duration(r.N)*time.Millisecond)
	}
	return lease - shortest, nil
}
