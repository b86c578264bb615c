package measure

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// Callers runs and measures n goroutines, each of which repeats the operation returned by caller(i). An operation counts as
// weight operations in Report.Ops: a batch of 100 is 100. The first error ends the measurement.
func Callers(env Env, n, weight int, caller func(i int) (func() error, error)) (Report, error) {
	ops := make([]func() error, n)
	for i := range ops {
		op, err := caller(i)
		if err != nil {
			return Report{}, err
		}
		ops[i] = op
	}
	warm := Length{For: env.Length.Warm, Ops: min(env.Length.Ops, 1)}
	if _, err := repeat(ops, warm); err != nil {
		return Report{}, err
	}
	var r Report
	m := Start(env)
	hists, err := repeat(ops, env.Length)
	m.Stop(&r)
	for i := range hists {
		r.Latency.Add(&hists[i])
	}
	for _, count := range r.Latency.Counts {
		r.Ops += count * int64(weight)
	}
	return r, err
}

// repeat runs all ops at once until the length is over.
func repeat(ops []func() error, length Length) ([]Histogram, error) {
	var stop atomic.Bool
	if length.Ops == 0 {
		end := time.AfterFunc(length.For, func() { stop.Store(true) })
		defer end.Stop()
	}
	hists := make([]Histogram, len(ops))
	errs := make([]error, len(ops))
	var wg sync.WaitGroup
	for i, op := range ops {
		wg.Go(func() {
			last := time.Now()
			for n := 1; !stop.Load(); n++ {
				if errs[i] = op(); errs[i] != nil {
					stop.Store(true)
					return
				}
				now := time.Now()
				hists[i].Record(now.Sub(last))
				last = now
				if n == length.Ops {
					return
				}
			}
		})
	}
	if length.Ops > 0 {
		wg.Wait()
	} else if !within(length.For+patience, wg.Wait) {
		return nil, errors.New("measure: callers did not end")
	}
	return hists, errors.Join(errs...)
}

// patience is how long the last operations may take.
const patience = 5 * time.Second

// within says whether fn returned within a time.
func within(limit time.Duration, fn func()) bool {
	returned := make(chan struct{})
	go func() { fn(); close(returned) }()
	select {
	case <-returned:
		return true
	case <-time.After(limit):
		return false
	}
}
