package lock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/faultproxy"
	"github.com/lockwire/lockwire/internal/locktorture"
	"github.com/lockwire/lockwire/internal/redistest"
	"github.com/lockwire/lockwire/lock"
	"github.com/lockwire/lockwire/resp"
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
	x := &site{t: t, proxy: locktorture.StartProxy(t, s)}
	server := s.Config()
	server.Network, server.Addr = "tcp", x.proxy.Addr()
	if proto != 0 {
		server.Protocol = proto
	}
	server.Timeout, server.DialTimeout = 300*time.Millisecond, 2*time.Second
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
		if !locktorture.Eventually(patience, lost.Load) {
			x.t.Errorf("no %s was sent", operation)
		}
		if how == "connection cut" {
			return
		}
		if !locktorture.Eventually(patience, func() bool { return x.proxy.Stats().Accepted > before }) {
			x.t.Error("the client holds on to a connection that is silent")
		}
		locktorture.Mend(x.t, x.proxy)
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
		return func() { locktorture.Mend(t, p) }
	}},
	{"all swallowed", func(t *testing.T, _ *redistest.Server, p *faultproxy.Proxy) func() {
		p.HalfOpen(faultproxy.ToServer, true)
		p.HalfOpen(faultproxy.ToClient, true)
		return func() { locktorture.Mend(t, p) }
	}},
	{"refused", func(t *testing.T, _ *redistest.Server, p *faultproxy.Proxy) func() {
		locktorture.Refuse(t, p, true)
		p.Cut()
		return func() { locktorture.Refuse(t, p, false) }
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

// renewedOnce returns a lease that has been renewed. A machine that stands still loses leases before.
func renewedOnce(t *testing.T, c *lock.Client, name string) (lease *lock.Lease) {
	t.Helper()
	if !locktorture.Eventually(patience, func() bool {
		lease = mustLock(t, c, name)
		granted := lease.ValidUntil()
		return locktorture.Eventually(patience, func() bool { return renewedSince(lease, granted) || lease.Err() != nil }) && lease.Err() == nil
	}) {
		t.Fatal("no lease is renewed")
	}
	return lease
}

func toldInTime(t *testing.T, s *redistest.Server, proto int, begin func(*testing.T, *redistest.Server, *faultproxy.Proxy) func()) {
	const term = 3 * time.Second
	x := newSite(t, s, proto, lock.Config{Lease: term})
	lease := renewedOnce(t, x.locks, "job")
	work, cancel := lease.Context(t.Context())
	defer cancel()
	slowest := slowestTick()
	end := begin(t, s, x.proxy)
	<-work.Done()
	told := locktorture.Now()
	late := slowest()
	if late < term/3 { // else a machine that stood still may have tried no renewal in time
		lostBecause(t, context.Cause(work), lock.Unreachable)
	}
	wantErr(t, "the cause", context.Cause(work), lock.ErrLost)
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
	locktorture.NothingLeft(t, s)
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
		locktorture.NothingLeft(t, s)
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
		locktorture.LatchesLeft(t, s, latchLife/2, 1) // that of the inner hold, whose release may still be on its way
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
		locktorture.LatchesLeft(t, s, latchLife/2, 1) // that of the owner's acquire, which may still be on its way
	})
}

// A renewal whose reply is lost is followed by another one, and the lock is kept.
func TestRenewalUnansweredByAServer(t *testing.T) {
	eachLoss(t, func(t *testing.T, s *redistest.Server, how string) {
		x := newSite(t, s, 0, lock.Config{Lease: 9 * time.Second})
		lease := mustLock(t, x.locks, "job")
		granted := lease.ValidUntil()
		while(x.loseReply(how, "renew"), func() {
			if !locktorture.Eventually(patience, func() bool { return renewedSince(lease, granted) || lease.Err() != nil }) {
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
		locktorture.NothingLeft(t, s)
	})
}

// TestFailovers loses masters while goroutines lock and unlock, others wait for one lock, and a lock is held that the
// new master does not know. In the short form two of the ways, with LOCKWIRE_TORTURE=1 all of them twice.
func TestFailovers(t *testing.T) {
	ways := []redistest.Failover{redistest.Failovers[rand.IntN(2)], redistest.Failovers[2+rand.IntN(2)]}
	torture := os.Getenv("LOCKWIRE_TORTURE") == "1"
	if torture {
		ways = slices.Repeat(redistest.Failovers, 2)
	}
	redistest.RunSentinels(t, redistest.Options{}, func(t *testing.T, s *redistest.Sentinels, proto int) {
		x := &failing{t: t, s: s, torture: torture}
		before := locktorture.CountResources()
		cfg := s.Config()
		cfg.Retry = conn.Retry{Attempts: 1 << 20, Budget: -1} // sentinels may have to vote twice
		pool, err := conn.Open(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		if x.locks, err = lock.New(pool, lock.Config{Lease: 3 * time.Second}); err != nil {
			t.Fatal(err)
		}
		if x.swift, err = lock.New(pool, lock.Config{Lease: 3 * time.Second, Acks: lock.AcksOff}); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		x.listen(ctx)
		x.workers.Go(func() { x.probe(ctx) })
		for range 64 {
			x.workers.Go(func() { x.work(ctx) })
		}
		for _, way := range ways {
			x.fail(way)
		}
		cancel()
		x.workers.Wait()
		if err := errors.Join(x.locks.Close(), x.swift.Close(), pool.Close()); err != nil {
			t.Error(err)
		}
		if after, ok := locktorture.ResourcesBack(before); !ok {
			t.Errorf("after Close %+v, before %+v", after, before)
		}
	})
}

// failing is one run of TestFailovers.
type failing struct {
	t       *testing.T
	s       *redistest.Sentinels
	torture bool
	locks   *lock.Client
	swift   *lock.Client // which does not wait for replicas: those of a new master may take a second to follow it
	workers sync.WaitGroup
	at      atomic.Int64 // the first +switch-master, in Unix ns
	lastAt  atomic.Int64 // the last one
	first   atomic.Int64 // when a lock was granted that was asked for after the first; 0: none yet
	granted atomic.Int64
	failed  atomic.Int64
}

// listen takes the times of the first and the last +switch-master, until ctx ends. Sentinels that did not lead the failover learn
// of it up to a second later, and nobody knows which of them the pool listens to.
func (x *failing) listen(ctx context.Context) {
	for _, sentinel := range x.s.Sentinels() {
		stream, err := conn.DialStream(x.t.Context(), sentinel.Config())
		if err == nil {
			err = stream.Write(x.t.Context(), resp.Cmd("SUBSCRIBE", "+switch-master"))
		}
		if err != nil {
			x.t.Fatal(err)
		}
		x.workers.Go(func() {
			for {
				v, err := stream.Read()
				if err != nil {
					return
				}
				if kind, _ := v.At(0).Text(); kind == "message" {
					now := time.Now().UnixNano()
					x.at.CompareAndSwap(0, now)
					x.lastAt.Store(now)
				}
			}
		})
		context.AfterFunc(ctx, func() { stream.Close() })
	}
}

// due reports whether an error is one that a failover must give: what was sent to the old master and not answered, or was
// granted by it and is lost, or what the new one has no replica for yet.
func due(err error) bool {
	for _, reason := range []error{conn.ErrUncertain, lock.ErrUncertain, lock.ErrNotHeld, lock.ErrLost, lock.ErrNotReplicated} {
		if errors.Is(err, reason) {
			return true
		}
	}
	return false
}

// probe takes locks that nobody has had before. Others may be taken for as long as their leases last: the new master may
// not know of a release.
func (x *failing) probe(ctx context.Context) {
	for n := 0; ctx.Err() == nil; n++ {
		begin := time.Now().UnixNano()
		x.take(ctx, x.swift, fmt.Sprint("probe-", n), func() {
			if at := x.at.Load(); at > 0 && begin > at {
				x.first.CompareAndSwap(0, time.Now().UnixNano())
			}
		})
		locktorture.Pause(ctx, time.Millisecond)
	}
}

// work locks and unlocks any of 100 locks.
func (x *failing) work(ctx context.Context) {
	for ctx.Err() == nil {
		x.take(ctx, x.locks, fmt.Sprint("job-", rand.IntN(100)), func() {})
	}
}

// take has a lock for as long as do takes, if it is not in the way of a failover.
func (x *failing) take(ctx context.Context, locks *lock.Client, name string, do func()) {
	lease, err := locks.Reentrant(name).Lock(ctx)
	if err != nil {
		if ctx.Err() == nil && !due(err) {
			x.t.Errorf("Lock = %v", err)
		}
		x.failed.Add(1)
		return
	}
	x.granted.Add(1)
	do()
	if err := lease.Unlock(ctx); err != nil {
		x.failed.Add(1)
		if !due(err) {
			x.t.Errorf("Unlock = %v", err)
		}
	}
}

// fail loses the master in one way, and sees to it that all who wait are served, and who has lost is told.
func (x *failing) fail(way redistest.Failover) {
	x.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*patience)
	defer cancel()
	name := "held-" + strings.ReplaceAll(way.Name, " ", "-")
	held, err := x.locks.Reentrant(name).Lock(ctx)
	if err != nil {
		x.t.Fatalf("%s: Lock = %v", way.Name, err)
	}
	var waiters sync.WaitGroup
	var served atomic.Int64
	for range 20 {
		waiters.Go(func() {
			for {
				lease, err := x.locks.Reentrant(name).Lock(ctx)
				if err == nil {
					served.Add(1)
					if err := lease.Unlock(ctx); err != nil && !due(err) {
						x.t.Errorf("%s: Unlock of a waiter = %v", way.Name, err)
					}
					return
				}
				if !due(err) || ctx.Err() != nil {
					x.t.Errorf("%s: Lock of a waiter = %v", way.Name, err)
					return
				}
			}
		})
	}
	x.at.Store(0)
	x.first.Store(0)
	old := x.s.Master()
	way.Begin(x.s, old)
	master := x.s.AwaitMaster(old)
	master.Do("DEL", name) // as if it had never heard of it
	select {
	case <-held.Lost():
	case <-ctx.Done():
		x.t.Errorf("%s: the holder is not told", way.Name)
	}
	if err := held.Err(); !errors.Is(err, lock.ErrLost) {
		x.t.Errorf("%s: Err of the lost lease = %v", way.Name, err)
	}
	waiters.Wait()
	if n := served.Load(); n != 20 {
		x.t.Errorf("%s: %d of 20 waiters were served", way.Name, n)
	}
	if !locktorture.Eventually(patience, func() bool { return x.first.Load() > 0 }) {
		x.t.Errorf("%s: no lock was granted after the switch", way.Name)
	}
	first := max(time.Duration(x.first.Load()-x.lastAt.Load()), 0)
	x.t.Logf("%s: first lock %v after +switch-master; %d granted, %d lost or uncertain", way.Name, first, x.granted.Load(), x.failed.Load())
	if x.torture && first > 500*time.Millisecond {
		x.t.Errorf("%s: first lock %v after +switch-master", way.Name, first)
	}
	way.End(x.s, old)
	x.s.AwaitHealthy()
}
