package lock_test

import (
	"context"
	"testing"
	"time"

	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/lock"
)

// A caller whose answer was lost may have the permit for which those wait that stand in front of it.
func TestSemaphoreUnansweredBehindOthers(t *testing.T) {
	for name, opts := range map[string][]lock.Option{"alike": nil, "for the setup, too": {lock.WaitForSetup()}} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, w *world) { unansweredBehindOthers(t, w, opts) })
		})
	}
}

func unansweredBehindOthers(t *testing.T, w *world, inFront []lock.Option) {
	c := w.client(lock.Config{})
	s := setUp(t, c, 1)
	w.onKind("semaphore", "acquire", first(fakeredis.Run().Late(time.Minute)))
	taken, other := make(chan error, 1), make(chan error, 1)
	go func() { taken <- s.Acquire(t.Context(), 1) }()
	w.sleep(time.Millisecond)
	short, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	wantErr(t, "Acquire with a short deadline", s.Acquire(short, 1), context.DeadlineExceeded)
	go func() { other <- s.Acquire(t.Context(), 1, inFront...) }()
	w.sleep(100 * time.Millisecond)
	w.srv.KillConns(func(fakeredis.Conn) bool { return true })
	w.sleep(5 * time.Second)
	if len(taken) == 0 {
		t.Fatal("the caller that has the permit still waits behind another")
	}
	wantOK(t, "Acquire", <-taken)
	wantOK(t, "Release", s.Release(t.Context(), 1))
	w.sleep(time.Second)
	wantOK(t, "Acquire of the other", <-other)
	w.wantKey("sem", "0")
	w.settled("sem")
}

// Callers whose requests came to nothing ask behind others as long as these may arrive, and then wait like all.
func TestSemaphoreUnansweredAsksForAWhile(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		const callers = 10
		c := w.client(lock.Config{})
		s := setUp(t, c, 1)
		wantOK(t, "Acquire", s.Acquire(t.Context(), 1))
		w.onKind("semaphore", "acquire", func(n int) fakeredis.Action {
			if n <= callers {
				return fakeredis.Delay(time.Millisecond, fakeredis.Close())
			}
			return fakeredis.Run()
		})
		acquired := make(chan error, callers)
		for range callers {
			go func() { acquired <- s.Acquire(t.Context(), 1) }()
		}
		w.sleep(10 * time.Second)
		before := w.asked()
		w.sleep(time.Minute)
		if n := w.asked() - before; n > 61 { // the one in front asks once a second
			t.Errorf("%d requests of %d callers in a minute", n, callers)
		}
		for range callers {
			wantOK(t, "Release", s.Release(t.Context(), 1))
			wantOK(t, "Acquire", <-acquired)
		}
		wantOK(t, "Release", s.Release(t.Context(), 1))
		w.settled("sem")
	})
}
