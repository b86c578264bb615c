package locks

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockwire/lockwire/bench/measure"
)

// Contest says how one lock is contended for in each process.
type Contest struct {
	Callers int
	Hold    time.Duration // the critical section
	Pause   time.Duration // between giving the lock back and asking again
}

// patience is how long callers have to end when measuring is over. Those that poll rarely need some of it; a process whose
// callers have not ended is ended all the same.
const patience = 10 * time.Second

// Contended measures callers that all want the same lock. They run before Begin already and go on until after End, so the
// holdings between the two are those of a steady state.
func Contended(open Open, c Contest) measure.Work {
	return func(env measure.Env) (measure.Report, error) {
		client, err := open(env, c.Callers)
		if err != nil {
			return measure.Report{}, err
		}
		defer client.Close()
		contest := &contest{Contest: c, limit: env.Length.Ops, callers: make([]contestant, c.Callers)}
		for i := range contest.callers {
			p := &contest.callers[i]
			p.number = int32(env.Proc*c.Callers + i)
			if p.locker, err = client.Locker("bench:lock"); err != nil {
				return measure.Report{}, err
			}
			own, err := client.Locker(fmt.Sprint("bench:own:", p.number))
			if err != nil {
				return measure.Report{}, err
			}
			if err := once(own); err != nil { // connects, and loads scripts
				return measure.Report{}, err
			}
		}
		return contest.measure(env)
	}
}

func once(l Locker) error {
	held, err := l.Lock()
	if err != nil {
		return err
	}
	return held.Unlock()
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
	holds  []measure.Hold
	err    error
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
		return r, errors.New("locks: callers did not end")
	}
	for i := range c.callers {
		p := &c.callers[i]
		if p.err != nil {
			return r, p.err
		}
		for _, h := range p.holds {
			if h.Got >= begin && h.Got <= end {
				r.Holds = append(r.Holds, h)
			}
		}
	}
	r.Ops = int64(len(r.Holds))
	return r, nil
}

func (c *contest) run(p *contestant) {
	for !c.stop.Load() {
		h := measure.Hold{Caller: p.number, Asked: measure.Now()}
		held, err := p.locker.Lock()
		if err != nil {
			p.err = err
			return
		}
		h.Got = measure.Now()
		if c.Hold > 0 {
			time.Sleep(c.Hold)
		}
		h.Released = measure.Now()
		if p.err = held.Unlock(); p.err != nil {
			return
		}
		p.holds = append(p.holds, h)
		if len(p.holds) == c.limit {
			return
		}
		if c.Pause > 0 {
			time.Sleep(c.Pause)
		}
	}
}
