package lock_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockwire/lockwire/lock"
)

func TestBootClock(t *testing.T) {
	first := lock.SinceBoot()
	if first <= 0 {
		t.Fatalf("the boot clock says %v", first)
	}
	for lock.SinceBoot() == first {
	}
	if second := lock.SinceBoot(); second < first || second-first > time.Minute {
		t.Errorf("the boot clock went from %v to %v", first, second)
	}
}

// The machine sleeps for longer than the lease: the monotonic clock has not noticed, and neither has the lease's timer.
func TestSleepingMachine(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		asked, watched := mustLock(t, c, "asked"), mustLock(t, c, "watched")
		awake := mustLock(t, c, "awake", lock.For(time.Hour))
		lost := watched.Lost()
		lock.MachineSlept(c, 20*time.Second)
		if err := asked.Err(); err != nil {
			t.Fatalf("Err() after 20s of sleep = %v", err)
		}
		lock.MachineSlept(c, 10*time.Second)
		synctest.Wait()
		<-lost
		lostBecause(t, asked.Err(), lock.ClockJump)
		lostBecause(t, watched.Err(), lock.ClockJump)
		if err := awake.Err(); err != nil {
			t.Errorf("Err() of a lease of an hour = %v", err)
		}
		for _, l := range []*lock.Lease{asked, watched, awake} {
			mustUnlock(t, l)
		}
		w.free()
	})
}
