package lock_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/lock"
)

// counting is a handler of logs that counts.
type counting struct {
	slog.Handler
	n atomic.Int64
}

func (h *counting) Enabled(context.Context, slog.Level) bool      { return true }
func (h *counting) Handle(_ context.Context, _ slog.Record) error { h.n.Add(1); return nil }

// An outage is told of, and not once for each of the leases it concerns.
func TestOutageIsNotLoggedForEachLease(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		var h counting
		c := w.client(lock.Config{Logger: slog.New(&h)})
		for i := range 1000 {
			mustLock(t, c, fmt.Sprint(i))
		}
		w.sleep(9 * time.Second)
		w.srv.Refuse(true)
		w.srv.KillConns(nil)
		w.sleep(8 * time.Second)
		w.srv.Refuse(false)
		w.sleep(time.Minute)
		if n := h.n.Load(); n == 0 || n > 20 {
			t.Errorf("%d lines in the log, want some and not many", n)
		}
		if s := c.Stats(); s.Lost != 0 {
			t.Errorf("%d leases were lost", s.Lost)
		}
	})
}

// A machine that has slept for most of a lease renews it as soon as it is awake, and not only when it was due.
func TestRenewalAfterSleep(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		lease := mustLock(t, c, "job")
		work, cancel := lease.Context(t.Context())
		defer cancel()
		w.sleep(time.Second)
		w.machine.Sleep(24 * time.Second)
		w.sleep(12 * time.Second)
		if err := context.Cause(work); err != nil {
			t.Errorf("with 4.7s of the lease left when the machine woke: %v", err)
		}
	})
}

// A server that needs longer for a round of renewals than one may take gets smaller rounds.
func TestSlowRenewals(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{RenewBatch: 10})
		for i := range 160 {
			mustLock(t, c, fmt.Sprint(i))
		}
		w.srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
			if isScript(cmd, "renew") {
				return fakeredis.Delay(350*time.Millisecond, fakeredis.Run())
			}
			return fakeredis.Run()
		})
		w.sleep(5 * time.Minute)
		if s := c.Stats(); s.Lost != 0 {
			t.Errorf("%d leases were lost although a server that slow could have renewed all: %+v", s.Lost, s)
		}
	})
}
