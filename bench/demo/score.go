package main

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// tally is what is known of one worker.
type tally struct {
	pid      int
	client   string // identity of its lock client; "" until it is ready
	acquired int
	counted  int  // increments it has reported as done
	holding  hold // if holds
	holds    bool
	ended    bool
	killed   bool
}

// takeover is what happens to the lock of a worker that is killed.
type takeover struct {
	victim   int
	asked    time.Time     // before the server was asked how long the lease lasts
	left     time.Duration // what it answered
	killed   time.Time     // before the signal was sent
	complete bool          // somebody else has the lock
	by       int
	from     time.Time
}

// gap is how long after the kill the lock was taken.
func (t *takeover) gap() time.Duration { return t.from.Sub(t.killed) }

// score keeps account of what the workers report.
type score struct {
	workers []tally
	done    []hold
	counter int64     // last known, for show
	killing *takeover // nil until then
}

func newScore(workers int) *score { return &score{workers: make([]tally, workers)} }

// take enters what a worker says. It returns an error if that means that the run has failed.
func (s *score) take(e event) error {
	w := &s.workers[e.worker]
	if e.ended {
		return s.end(e)
	}
	switch r := e.report; r.Kind {
	case ready:
		w.client = r.Owner
	case acquired:
		w.acquired++
		w.holds, w.holding = true, hold{worker: e.worker, asked: r.Asked, from: r.At}
		s.counter = max(s.counter, r.Value)
		if k := s.killing; k != nil && !k.complete && r.At.After(k.killed) {
			k.complete, k.by, k.from = true, e.worker, r.At
		}
	case released:
		w.holding.until = r.At
		s.done = append(s.done, w.holding)
		w.holds = false
		if r.Wrote {
			w.counted++
			s.counter = max(s.counter, r.Value)
		}
	case failed:
		return fmt.Errorf("worker %d: %s", e.worker+1, r.Text)
	}
	return nil
}

// end enters that a worker has ended, which is an error if it neither was killed by the demo nor ended well.
func (s *score) end(e event) error {
	w := &s.workers[e.worker]
	w.ended = true
	if s.killing != nil && s.killing.victim == e.worker {
		w.killed = true
		if w.holds {
			w.holding.until, w.holding.killed = now(), true
			s.done = append(s.done, w.holding)
			w.holds = false
		}
		return nil
	}
	if e.err == nil && w.holds {
		e.err = errors.New("ended without a word about the lock it had")
	}
	if e.err != nil {
		return fmt.Errorf("worker %d: %w", e.worker+1, e.err)
	}
	return nil
}

func (s *score) allReady() bool {
	for i := range s.workers {
		if s.workers[i].client == "" {
			return false
		}
	}
	return true
}

// allEnded reports whether the first n workers, those that were started, have ended.
func (s *score) allEnded(n int) bool {
	for i := range s.workers[:n] {
		if !s.workers[i].ended {
			return false
		}
	}
	return true
}

// find returns whose owner that is as it stands in the lock, or nobody if it is no worker's.
func (s *score) find(owner string) int {
	for i := range s.workers {
		if c := s.workers[i].client; c != "" && strings.HasPrefix(owner, c+":") {
			return i
		}
	}
	return nobody
}

func totals(workers []tally) (acquired, counted int) {
	for i := range workers {
		acquired += workers[i].acquired
		counted += workers[i].counted
	}
	return acquired, counted
}
