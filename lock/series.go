package lock

import (
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
