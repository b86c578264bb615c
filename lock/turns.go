package lock

import (
	"strconv"
	"sync"
	"time"
)

// series is a run of consecutive hand-overs.
type series struct {
	length int
	since  time.Time // the time of the acquire before the series
}

// next returns the series extended by one hand-over.
func (s series) next() series { return series{s.length + 1, s.since} }

// mayGoOn reports whether a series of at most most hand-overs, that lasts for lasts at most, may continue. alone means that no other client waits for the lock.
func (s series) mayGoOn(most int, lasts, lease time.Duration, alone bool) bool {
	return (alone || s.length < most) && time.Since(s.since) <= min(lasts, lease/3)
}

// streak is a series of leases of one process, with other clients waiting at each release.
type streak struct {
	series   series
	released time.Time
	unit     time.Duration // of pauses
}

// streaks has the streaks of the Redlocks of a client. The zero streaks are ready.
type streaks[K comparable] struct {
	mu sync.Mutex
	of map[K]streak // by lock, of processes that others wait for; guarded by mu
}

// maxStreaks limits the streaks remembered.
const maxStreaks = 64

// longer adds a lease to a streak, acquired at since and just released.
func (s *streaks[K]) longer(key K, since time.Time, unit time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	last, ok := s.of[key]
	if !ok {
		last.series.since = since
	}
	if s.of == nil || len(s.of) > maxStreaks {
		s.of = make(map[K]streak)
	}
	s.of[key] = streak{last.series.next(), time.Now(), unit}
}

// end ends a streak: another client had the lock, or nobody waits.
func (s *streaks[K]) end(key K) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.of, key)
}

// full returns a streak that may not go on, and ends it.
func (s *streaks[K]) full(key K, mayGoOn func(series) bool) (last streak, full bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	last, ok := s.of[key]
	if !ok || mayGoOn(last.series) {
		return last, false
	}
	delete(s.of, key)
	return last, true
}

const (
	callFor     = 100 // ms of a turn of a near process
	sparePlaces = 64  // kept for later acquires
	maxDistance = 3   // doublings of callFor for a process far from the server
)

// places makes the places of a client. table.mu guards it.
//
// Each Lock draws a place, and most get the lock at once and never take it: without spare places a Lock and Unlock would make 10
// allocations in place of 6 (TestAllocations).
type places struct {
	spare    map[string][]any // drawn and never taken, by waiter
	drawn    int64            // number of places so far
	distance int              // doublings of the client's turns
	slow     bool             // the last acquire took more than half of a turn
}

// next returns a place of waiter that no acquire of the client has, and that is in no line.
func (p *places) next(waiter string) any {
	if spare := p.spare[waiter]; len(spare) > 0 {
		place := spare[len(spare)-1]
		p.spare[waiter] = spare[:len(spare)-1]
		return place
	}
	p.drawn++
	return waiter + ":" + strconv.FormatInt(p.drawn, 10) + ":" + strconv.Itoa(callFor<<p.distance)
}

// put keeps a place of waiter that was never taken for the next acquire.
func (p *places) put(waiter string, place any) {
	if p.spare == nil {
		p.spare = make(map[string][]any)
	}
	if spare := p.spare[waiter]; len(spare) < sparePlaces {
		p.spare[waiter] = append(spare, place)
	}
}

// measure lengthens the turns of the client if acquires take more than half of a turn, twice in a row, and reports
// whether it has.
func (p *places) measure(took time.Duration) bool {
	if p.distance == maxDistance || took < callFor<<p.distance*time.Millisecond/2 {
		p.slow = false
		return false
	}
	if !p.slow {
		p.slow = true
		return false
	}
	p.slow, p.distance, p.spare = false, p.distance+1, nil
	return true
}
