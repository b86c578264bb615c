package locks

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockwire/lockwire/bench/measure"
)

// Contest is the contention for a lock in each process.
type Contest struct {
	Callers int
	Apart   bool          // each caller has a client with private connections
	Hold    time.Duration // the critical section
	Pause   time.Duration // between giving the lock back and asking again
}

// patience is the time for callers to end after the measurement. Some callers never end: a library that loses a wake-up leaves
// its caller waiting. Such callers are counted, and end with the process.
const patience = 3 * time.Second

// Contended measures callers in contention for a single lock. The callers run before Begin and go on until after End, so the
// holdings in between are a steady state.
func Contended(open Open, c Contest) measure.Work {
	return func(env measure.Env) (measure.Report, error) {
		contest := &contest{Contest: c, limit: env.Length.Ops, callers: make([]contestant, c.Callers)}
		var clients []Client
		defer func() {
			for _, client := range clients {
				client.Close()
			}
		}()
		for i := range contest.callers {
			if i == 0 || c.Apart {
				client, err := open(env, c.clientCallers())
				if err != nil {
					return measure.Report{}, err
				}
				clients = append(clients, client)
			}
			p := &contest.callers[i]
			p.number = int32(env.Proc*c.Callers + i)
			if err := p.prepare(clients[len(clients)-1]); err != nil {
				return measure.Report{}, err
			}
		}
		return contest.measure(env)
	}
}

// clientCallers is the number of callers of a client.
func (c Contest) clientCallers() int {
	if c.Apart {
		return 1
	}
	return c.Callers
}

// Beside runs first in the first process, and others in all further processes.
func Beside(first, others measure.Work) measure.Work {
	return func(env measure.Env) (measure.Report, error) {
		if env.Proc == 0 {
			return first(env)
		}
		return others(env)
	}
}

// once takes and releases a lock, within patience.
func once(l Locker) error {
	took := make(chan error, 1)
	go func() {
		held, err := l.Lock()
		if err == nil {
			err = held.Unlock()
		}
		took <- err
	}()
	select {
	case err := <-took:
		return err
	case <-time.After(patience):
		return errors.New("locks: a lock that nobody has cannot be had")
	}
}

// prepare connects, and loads scripts, by a lock of the caller's own.
func (p *contestant) prepare(client Client) error {
	own, err := client.Locker(fmt.Sprint("bench:own:", p.number))
	if err == nil {
		err = once(own)
	}
	if err == nil {
		p.locker, err = client.Locker("bench:lock")
	}
	return err
}

type contest struct {
	Contest
	limit   int // acquisitions of each caller; 0 is until stop
	stop    atomic.Bool
	callers []contestant
}

type contestant struct {
	number int32
	locker Locker

	mu    sync.Mutex // guards the following
	holds []measure.Hold
	err   error
	ended bool
}

func (c *contest) measure(env measure.Env) (measure.Report, error) {
	var r measure.Report
	var running sync.WaitGroup
	start := func() {
		for i := range c.callers {
			running.Go(func() { c.run(&c.callers[i]) })
		}
	}
	if c.limit == 0 {
		start()
		time.Sleep(env.Length.Warm)
	}
	m := measure.Start(env)
	begin := measure.Now()
	if c.limit > 0 {
		start()
		running.Wait()
	} else {
		time.Sleep(env.Length.For)
	}
	end := measure.Now()
	m.Stop(&r)
	c.stop.Store(true)
	ended := make(chan struct{})
	go func() { running.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(patience):
	}
	return r, c.collect(&r, begin, end)
}

// collect puts the holdings in between into r.
func (c *contest) collect(r *measure.Report, begin, end int64) error {
	stuck := 0
	for i := range c.callers {
		p := &c.callers[i]
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.err != nil {
			return p.err
		}
		if !p.ended {
			stuck++
		}
		for _, h := range p.holds {
			if h.Got >= begin && h.Got <= end {
				r.Holds = append(r.Holds, h)
			}
		}
	}
	r.Ops = int64(len(r.Holds))
	r.Set("callers stuck", float64(stuck))
	return nil
}

func (c *contest) run(p *contestant) {
	err := c.repeat(p)
	p.mu.Lock()
	p.err, p.ended = err, true
	p.mu.Unlock()
}

// repeat takes and releases the lock for a number of times, or until the stop of all.
func (c *contest) repeat(p *contestant) error {
	for n := 1; !c.stop.Load(); n++ {
		h := measure.Hold{Caller: p.number, Asked: measure.Now()}
		held, err := p.locker.Lock()
		if err != nil {
			return err
		}
		h.Got = measure.Now()
		if c.Hold > 0 && !c.stop.Load() {
			time.Sleep(c.Hold)
		}
		h.Released = measure.Now()
		if err := held.Unlock(); err != nil {
			return err
		}
		p.mu.Lock()
		p.holds = append(p.holds, h)
		p.mu.Unlock()
		if n == c.limit {
			return nil
		}
		if c.Pause > 0 {
			time.Sleep(c.Pause)
		}
	}
	return nil
}
