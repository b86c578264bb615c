package dashboard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/lock"
	"github.com/lockwire/lockwire/lock/leader"
)

// alertCase is what happens to a program, and the alerts that have to fire, in the order of their names. No other alert may.
type alertCase struct {
	name  string
	cfg   lock.Config
	do    func(t *testing.T, p *program)
	fires []string
	// within bounds the time from the beginning to the first of them.
	within [2]time.Duration
}

// Each alert fires on the series of a program that has the trouble, and on no others.
func TestAlertsFire(t *testing.T) {
	for _, tt := range slices.Concat(lossCases, renewalCases, waitCases, otherCases) {
		t.Run(tt.name, func(t *testing.T) {
			for _, interval := range []time.Duration{15 * time.Second, time.Minute} {
				fired := fire(t, observe(t, interval, tt.cfg, tt.do), interval)
				var names []string
				first := time.Duration(-1)
				for _, f := range fired {
					if names = append(names, f.alert); first < 0 || f.after < first {
						first = f.after
					}
				}
				slices.Sort(names)
				if names = slices.Compact(names); !slices.Equal(names, tt.fires) {
					t.Errorf("scraped every %v: %v, want %q", interval, fired, tt.fires)
				} else if len(names) > 0 && tt.within[1] > 0 && (first < tt.within[0] || first > tt.within[1]) {
					t.Errorf("scraped every %v: %v, want the first between %v and %v", interval, fired, tt.within[0], tt.within[1])
				}
			}
		})
	}
}

var lossCases = []alertCase{
	{name: "a lock in use", do: func(t *testing.T, p *program) {
		for range 80 {
			p.hold(t, "job", 5*time.Second)
			p.pass(10 * time.Second)
		}
	}},
	{name: "a lock deleted", fires: []string{"LockwireLockLost"}, within: [2]time.Duration{time.Minute, 5 * time.Minute},
		do: func(t *testing.T, p *program) {
			p.mustLock(t, "job")
			p.pass(2 * time.Minute)
			p.srv.Do("DEL", "job")
			p.pass(15 * time.Minute)
		}},
	{name: "a client closed while it holds a lock", do: func(t *testing.T, p *program) {
		p.mustLock(t, "job")
		p.pass(2 * time.Minute)
		_ = p.Close()
		p.pass(10 * time.Minute)
	}},
}

var renewalCases = []alertCase{
	{name: "a server away for a part of a lease", do: func(t *testing.T, p *program) {
		lease := p.mustLock(t, "job")
		p.pass(2 * time.Minute)
		p.away(15 * time.Second)
		p.pass(10 * time.Minute)
		if err := lease.Err(); err != nil {
			t.Fatal(err)
		}
	}},
	{name: "renewals without an answer, with a long lease", cfg: lock.Config{Lease: 30 * time.Minute, RenewEvery: time.Minute},
		fires: []string{"LockwireCommandErrors", "LockwireRenewalsFail"}, within: [2]time.Duration{5 * time.Minute, 9 * time.Minute},
		do: func(t *testing.T, p *program) {
			p.mustLock(t, "job")
			p.pass(2 * time.Minute)
			p.away(8 * time.Minute)
			p.pass(10 * time.Minute)
		}},
	{name: "a round of renewals late by less than a third of the lease", do: func(_ *testing.T, p *program) {
		p.rounds(6 * time.Second)
	}},
	{name: "a round of renewals late by more", fires: []string{"LockwireRenewalsLate"}, do: func(_ *testing.T, p *program) {
		p.rounds(12 * time.Second)
	}},
}

var waitCases = []alertCase{
	{name: "a lock that nobody gives back", fires: []string{"LockwireWaitsWithoutProgress"},
		within: [2]time.Duration{7 * time.Minute, 11 * time.Minute},
		do: func(t *testing.T, p *program) {
			p.hold(t, "job", time.Second)
			p.pass(2 * time.Minute)
			p.mustLock(t, "job")
			p.pass(10 * time.Second)
			p.wait(t, "job", 20*time.Minute)
		}},
	{name: "a wait for a minute behind a long job", do: func(t *testing.T, p *program) {
		p.mustLock(t, "job")
		p.pass(20 * time.Minute)
		p.wait(t, "job", time.Minute)
		p.pass(5 * time.Minute)
	}},
	{name: "candidates behind a leader", do: func(t *testing.T, p *program) {
		ctx, cancel := context.WithCancel(t.Context())
		for range 3 {
			p.others.Go(func() {
				_ = leader.Run(ctx, p.Client, "billing", leader.Config{}, func(ctx context.Context) error {
					<-ctx.Done()
					return nil
				})
			})
		}
		p.pass(30 * time.Minute)
		cancel()
	}},
	{name: "a wait at a latch", do: func(t *testing.T, p *program) {
		latch := p.CountDownLatch("ready")
		if _, err := latch.TrySetCount(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		p.others.Go(func() { _ = latch.Wait(t.Context()) })
		p.pass(20 * time.Minute)
		if err := latch.CountDown(t.Context()); err != nil {
			t.Fatal(err)
		}
	}},
}

var otherCases = []alertCase{
	{name: "releases without an answer", cfg: lock.Config{Lease: 10 * time.Minute},
		fires: []string{"LockwireCommandErrors", "LockwireReleasesPending"}, within: [2]time.Duration{time.Minute, 5 * time.Minute},
		do: func(t *testing.T, p *program) {
			lease := p.mustLock(t, "job")
			p.pass(time.Minute)
			p.srv.Mute(true)
			if err := lease.Unlock(t.Context()); !errors.Is(err, lock.ErrUncertain) {
				t.Fatal(err)
			}
			p.pass(4 * time.Minute)
			p.srv.Mute(false)
			p.pass(5 * time.Minute)
		}},
	{name: "a grant without replicas", fires: []string{"LockwireGrantsUnacknowledged"}, do: func(_ *testing.T, p *program) {
		for i := range 4 {
			end := lock.AcquireEnd{AcquireStart: lock.AcquireStart{Kind: "reentrant", Name: "job", Try: true}, Outcome: lock.OutcomeAcquired}
			end.Unacknowledged = i == 2 // the fake server never lacks replicas that it once had
			p.metrics.Lock().AcquireEnd(context.Background(), end)
			p.pass(time.Minute)
		}
	}},
	{name: "a right that is missing", fires: []string{"LockwireCommandErrors"}, do: func(t *testing.T, p *program) {
		p.srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
			if cmd.Name == "GET" {
				return fakeredis.Reply("-NOPERM no right\r\n")
			}
			return fakeredis.Run()
		})
		for range 120 {
			_, _ = p.Server().Send(t.Context(), get)
			p.pass(10 * time.Second)
		}
	}},
	{name: "a missing right, once", do: func(t *testing.T, p *program) {
		for range 2 {
			_, _ = p.Server().Send(t.Context(), unknown)
			p.pass(time.Minute)
		}
		p.pass(10 * time.Minute)
	}},
}

func (f firing) String() string { return fmt.Sprintf("%s %s after %v", f.alert, f.labels, f.after) }
