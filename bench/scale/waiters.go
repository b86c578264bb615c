package scale

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/lockwire/lockwire/bench/floor"
	"github.com/lockwire/lockwire/bench/measure"
)

// Waiters makes n callers wait for n locks held by a second client, and measures the cost of waiting.
func Waiters(n int) measure.Work {
	return func(env measure.Env) (measure.Report, error) {
		if err := occupy(env, n); err != nil {
			return measure.Report{}, err
		}
		c, err := open(env)
		if err != nil {
			return measure.Report{}, err
		}
		defer c.close()
		if err := c.take(1); err != nil { // the first lock costs more
			return measure.Report{}, err
		}
		before := memory()
		leave, err := c.wait(n)
		defer leave()
		if err != nil {
			return measure.Report{}, err
		}
		var r measure.Report
		r.Set("KiB per waiter", (memory()-before)/1024/float64(n))
		m := measure.Start(env)
		time.Sleep(env.Length.For)
		m.Stop(&r)
		r.Ops = int64(c.locks.Stats().Waiting)
		return r, nil
	}
}

// occupy gives the locks to an owner that is nobody, for longer than the measurement.
func occupy(env measure.Env, n int) error {
	c, err := floor.Dial(env.Network, env.Addr, nil)
	if err != nil {
		return err
	}
	defer c.Close()
	const hold = `redis.call('hset', KEYS[1], 'nobody:1', 1) return redis.call('pexpire', KEYS[1], 600000)`
	for i := range n {
		if _, err := c.Do(floor.Request("EVAL", hold, "1", waited(i))); err != nil {
			return err
		}
	}
	return nil
}

func waited(i int) string { return fmt.Sprint("bench:waited:", i) }

// wait returns when n callers wait and the server has had time to confirm their subscriptions. leave ends the callers.
func (c *client) wait(n int) (leave func(), err error) {
	ctx, cancel := context.WithCancel(background)
	var waiting sync.WaitGroup
	for i := range n {
		l := c.locks.Reentrant(waited(i))
		waiting.Go(func() {
			if _, err := l.Lock(ctx); err == nil {
				panic("scale: got a lock that somebody else has")
			}
		})
	}
	leave = func() {
		cancel()
		waiting.Wait()
	}
	for end := time.Now().Add(time.Minute); c.locks.Stats().Waiting < n; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			return leave, errors.New("scale: callers do not wait")
		}
	}
	return leave, nil
}

// memory is the heap and the stacks in use.
func memory() float64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapInuse + m.StackInuse)
}
