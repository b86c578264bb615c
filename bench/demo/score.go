package main

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// tally is the record of a worker.
type tally struct {
	pid      int
	client   string // identity of the worker's lock client; "" before ready
	acquired int
	counted  int  // increments reported as done
	holding  hold // if holds
	holds    bool
	ended    bool
	killed   bool
}

// takeover is the fate of the lock of a killed worker.
type takeover struct {
	victim   int
	asked    time.Time     // before the server was asked how long the lease lasts
	left     time.Duration // the new holder's report
	killed   time.Time     // before the signal was sent
	complete bool          // somebody else has the lock
	by       int
	from     time.Time
}

// gap is how long after the kill the lock was taken.
func (t *takeover) gap() time.Duration { return t.from.Sub(t.killed) }

// score records the workers' reports.
type score struct {
	workers []tally
	done    []hold
	counter int64     // last known, for show
	killing *takeover // nil until then
}

func newScore(workers int) *score { return &score{workers: make([]tally, workers)} }

// take enters a worker's report. It returns an error if the run has failed by the report.
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

// end enters the end of a worker. The end is an error unless the demo killed the worker or the worker ended well.
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

// allEnded reports whether the first n workers have ended.
func (s *score) allEnded(n int) bool {
	for i := range s.workers[:n] {
		if !s.workers[i].ended {
			return false
		}
	}
	return true
}

// find returns the worker with an owner as stored in the lock, or nobody.
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
