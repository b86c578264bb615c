package lock_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/faultproxy"
	"github.com/lockwire/lockwire/internal/locktorture"
	"github.com/lockwire/lockwire/internal/redistest"
	"github.com/lockwire/lockwire/lock"
	"github.com/lockwire/lockwire/script"
)

// site is a client of its own connections to a server, through a proxy.
type site struct {
	t     *testing.T
	proxy *faultproxy.Proxy
	pool  *conn.Pool
	locks *lock.Client
}

// newSite returns one that speaks RESP proto; 0 is what the test asks for.
func newSite(t *testing.T, s *redistest.Server, proto int, cfg lock.Config) *site {
	t.Helper()
	x := &site{t: t, proxy: startProxy(t, s)}
	server := s.Config()
	server.Network, server.Addr = "tcp", x.proxy.Addr()
	if proto != 0 {
		server.Protocol = proto
	}
	server.Timeout, server.DialTimeout = 300*time.Millisecond, 300*time.Millisecond
	var err error
	if x.pool, err = conn.Open(t.Context(), server); err != nil {
		t.Fatal(err)
	}
	if x.locks, err = lock.New(x.pool, cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(x.close)
	return x
}

func (x *site) close() {
	if err := errors.Join(x.locks.Close(), x.pool.Close()); err != nil {
		x.t.Error(err)
	}
}

// loseReply has the server run the next script for an operation and its reply get lost. It returns what ends the fault.
func (x *site) loseReply(how, operation string) (end func()) {
	return x.loseReplyOf("reentrant", how, operation)
}

func (x *site) loseReplyOf(kind, how, operation string) (end func()) {
	scripts := scriptsFor(kind, operation)
	var lost atomic.Bool
	x.proxy.Intercept(func(cmd []string) faultproxy.Verdict {
		is := func(s *script.Script) bool { return len(cmd) > 1 && cmd[1] == s.Digest() }
		if !slices.ContainsFunc(scripts, is) || lost.Swap(true) {
			return faultproxy.Verdict{}
		}
		if how == "connection cut" {
			return faultproxy.Verdict{Fate: faultproxy.CutAfter}
		}
		x.proxy.HalfOpen(faultproxy.ToClient, true)
		return faultproxy.Verdict{}
	})
	before := x.proxy.Stats().Accepted
	return func() {
		if !eventually(patience, lost.Load) {
			x.t.Errorf("no %s was sent", operation)
		}
		if how == "connection cut" {
			return
		}
		if !eventually(patience, func() bool { return x.proxy.Stats().Accepted > before }) {
			x.t.Error("the client holds on to a connection that is silent")
		}
		mend(x.t, x.proxy)
	}
}

// eachLoss runs fn for each way of losing a reply, beside other tests.
func eachLoss(t *testing.T, fn func(t *testing.T, s *redistest.Server, how string)) {
	t.Helper()
	t.Parallel()
	redistest.RunProtocols(t, func(t *testing.T, s *redistest.Server, _ int) {
		for _, how := range []string{"connection cut", "connection silent"} {
			t.Run(how, func(t *testing.T) { fn(t, s, how) })
			s.Do("FLUSHALL") // latches
		}
	})
}

// while runs fn with a fault that end ends.
func while(end func(), fn func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		fn()
	}()
	end()
	<-done
}

// renewedSince reports whether ValidUntil has moved on by more than its clocks differ.
func renewedSince(lease *lock.Lease, until time.Time) bool {
	return lease.ValidUntil().Sub(until) > 100*time.Millisecond
}

func wantHolds(t *testing.T, s *redistest.Server, name, owner, want string) {
	t.Helper()
	v := s.Do("HGET", name, owner)
	got, err := v.Text()
	if v.IsNull() {
		got, err = "", nil
	}
	if err != nil || got != want {
		t.Errorf("hold count of %s on the server is %q, %v, want %q", owner, got, err, want)
	}
}

// The server cannot be reached any more: the holder is told before it could give the lock to somebody else.
func TestLossIsToldInTime(t *testing.T) {
	redistest.Run(t, func(t *testing.T, like *redistest.Server) {
		for i, o := range outages {
			t.Run(o.name, func(t *testing.T) {
				t.Parallel() // each takes a lease
				s := redistest.Start(t, redistest.Options{Binary: like.Binary()})
				toldInTime(t, s, 2+i%2, o.begin)
			})
		}
	})
}

var outages = []struct {
	name  string
	begin func(t *testing.T, s *redistest.Server, p *faultproxy.Proxy) (end func())
}{
	{"server stopped", func(_ *testing.T, s *redistest.Server, _ *faultproxy.Proxy) func() {
		s.Pause()
		return s.Continue
	}},
	{"requests swallowed", func(t *testing.T, _ *redistest.Server, p *faultproxy.Proxy) func() {
		p.HalfOpen(faultproxy.ToServer, true)
		return func() { mend(t, p) }
	}},
	{"all swallowed", func(t *testing.T, _ *redistest.Server, p *faultproxy.Proxy) func() {
		p.HalfOpen(faultproxy.ToServer, true)
		p.HalfOpen(faultproxy.ToClient, true)
		return func() { mend(t, p) }
	}},
	{"refused", func(t *testing.T, _ *redistest.Server, p *faultproxy.Proxy) func() {
		refuse(t, p, true)
		p.Cut()
		return func() { refuse(t, p, false) }
	}},
}

// slowestTick starts a ticker. What it returns ends it, and tells by how much its worst tick was late.
func slowestTick() (stop func() time.Duration) {
	const tick = time.Millisecond
	end, worst := make(chan struct{}), make(chan time.Duration)
	go func() {
		var late time.Duration
		ticker, last := time.NewTicker(tick), locktorture.Now()
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				now := locktorture.Now()
				late, last = max(late, now-last-tick), now
			case <-end:
				worst <- max(late, locktorture.Now()-last-tick)
				return
			}
		}
	}()
	return func() time.Duration {
		close(end)
		return <-worst
	}
}

func toldInTime(t *testing.T, s *redistest.Server, proto int, begin func(*testing.T, *redistest.Server, *faultproxy.Proxy) func()) {
	const term = 3 * time.Second
	x := newSite(t, s, proto, lock.Config{Lease: term})
	lease := mustLock(t, x.locks, "job")
	work, cancel := lease.Context(t.Context())
	defer cancel()
	granted := lease.ValidUntil()
	if !eventually(patience, func() bool { return renewedSince(lease, granted) }) {
		t.Fatal("the lease is not renewed")
	}
	slowest := slowestTick()
	end := begin(t, s, x.proxy)
	<-work.Done()
	told := locktorture.Now()
	late := slowest()
	lostBecause(t, context.Cause(work), lock.Unreachable)
	// The server counts from when the renewal reached it, ValidUntil from before it was sent. Of a machine that is short of
	// CPU no more can be asked than it does for any timer.
	if free := locktorture.At(lease.ValidUntil()) + term/100 + 2*time.Millisecond; told > free+2*late {
		t.Errorf("told %v after the server may have given the lock away, with timers late by %v", told-free, late)
	}
	end()
	if err := lease.Unlock(t.Context()); err != nil && !errors.Is(err, lock.ErrNotHeld) {
		t.Errorf("Unlock = %v", err)
	}
	x.close()
	nothingLeft(t, s)
}

func TestUnlockUnderACancelledContextOnAServer(t *testing.T) {
	redistest.RunProtocols(t, func(t *testing.T, s *redistest.Server, _ int) {
		x := newSite(t, s, 0, lock.Config{})
		lease := mustLock(t, x.locks, "job")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := lease.Unlock(ctx); err != nil {
			t.Errorf("Unlock = %v", err)
		}
		other, err := x.locks.Reentrant("job").TryLock(t.Context())
		if err != nil {
			t.Fatalf("TryLock after Unlock = %v", err)
		}
		mustUnlock(t, other)
		x.close()
		nothingLeft(t, s)
	})
}

// The reply to a release is lost: it is repeated, and done once.
func TestUnlockUnansweredByAServer(t *testing.T) {
	eachLoss(t, func(t *testing.T, s *redistest.Server, how string) {
		x := newSite(t, s, 0, lock.Config{})
		lease := mustLock(t, x.locks, "job")
		while(x.loseReply(how, "release"), func() { mustUnlock(t, lease) })
		wantHolds(t, s, "job", lease.Owner(), "")

		owner := lock.As(x.locks.NewOwner())
		outer := mustLock(t, x.locks, "job", owner)
		inner := mustLock(t, x.locks, "job", owner)
		while(x.loseReply(how, "release"), func() { mustUnlock(t, inner) })
		wantHolds(t, s, "job", outer.Owner(), "1")
		if err := outer.Check(t.Context()); err != nil {
			t.Errorf("the outer hold: %v", err)
		}
		mustUnlock(t, outer)
		x.close()
		latchesLeft(t, s, latchLife/2, 1) // that of the inner hold, whose release may still be on its way
	})
}

// The reply to an acquire is lost, with a lease of an hour: what the server granted is taken back at once.
func TestAcquireUnansweredByAServer(t *testing.T) {
	eachLoss(t, func(t *testing.T, s *redistest.Server, how string) {
		x := newSite(t, s, 0, lock.Config{Lease: time.Hour})
		other := newSite(t, s, 0, lock.Config{Lease: time.Hour})
		while(x.loseReply(how, "acquire"), func() {
			lease, err := x.locks.Reentrant("job").TryLock(t.Context())
			if lease != nil || !errors.Is(err, conn.ErrUncertain) {
				t.Errorf("TryLock = %v, %v, want ErrUncertain", lease, err)
			}
		})
		lost := locktorture.Now()
		mustUnlock(t, mustLock(t, other.locks, "job"))
		if took := locktorture.Now() - lost; took > patience {
			t.Errorf("the lock could be had after %v", took)
		}

		// Lock goes on, as another owner.
		while(x.loseReply(how, "acquire"), func() {
			lease := mustLock(t, x.locks, "job")
			if info, err := x.locks.Reentrant("job").Info(t.Context()); err != nil || len(info.Holders) != 1 ||
				info.Holders[0] != (lock.Holder{Owner: lease.Owner(), Holds: 1, Remaining: info.Remaining}) {
				t.Errorf("Info = %+v, %v, want one hold of %s", info, err, lease.Owner())
			}
			mustUnlock(t, lease)
		})

		// Of an owner's holds the one that was not answered goes, and the other stays.
		owner := lock.As(x.locks.NewOwner())
		outer := mustLock(t, x.locks, "job", owner)
		while(x.loseReply(how, "acquire"), func() {
			if _, err := x.locks.Reentrant("job").TryLock(t.Context(), owner); !errors.Is(err, conn.ErrUncertain) {
				t.Errorf("TryLock = %v, want ErrUncertain", err)
			}
		})
		lost = locktorture.Now()
		mustUnlock(t, mustLock(t, x.locks, "job", owner))
		wantHolds(t, s, "job", outer.Owner(), "1")
		mustUnlock(t, outer)
		if took := locktorture.Now() - lost; took > patience {
			t.Errorf("the owner had to wait %v", took)
		}
		other.close()
		x.close()
		latchesLeft(t, s, latchLife/2, 1) // that of the owner's acquire, which may still be on its way
	})
}

// A renewal whose reply is lost is followed by another one, and the lock is kept.
func TestRenewalUnansweredByAServer(t *testing.T) {
	eachLoss(t, func(t *testing.T, s *redistest.Server, how string) {
		x := newSite(t, s, 0, lock.Config{Lease: 3 * time.Second})
		lease := mustLock(t, x.locks, "job")
		granted := lease.ValidUntil()
		while(x.loseReply(how, "renew"), func() {
			if !eventually(patience, func() bool { return renewedSince(lease, granted) || lease.Err() != nil }) {
				t.Error("the lease is neither renewed nor lost")
			}
		})
		if err := lease.Check(t.Context()); err != nil {
			t.Errorf("Check = %v", err)
		}
		if x.locks.Stats().RenewalErrors == 0 {
			t.Error("no renewal failed")
		}
		mustUnlock(t, lease)
		x.close()
		nothingLeft(t, s)
	})
}
