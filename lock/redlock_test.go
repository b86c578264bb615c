package lock_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/lock"
)

// redlock is the Redlock of a process named job, with Redisson's format or the plain one.
func (p process) redlock(t testing.TB, cfg lock.RedlockConfig, plain bool) *lock.Redlock {
	t.Helper()
	var nodes []lock.Member
	for _, c := range p {
		if plain {
			nodes = append(nodes, c.Plain("job"))
		} else {
			nodes = append(nodes, c.Reentrant("job"))
		}
	}
	r, err := lock.NewRedlock(cfg, nodes...)
	if err != nil {
		t.Fatalf("NewRedlock() = %v", err)
	}
	return r
}

func lockRed(t testing.TB, r *lock.Redlock, opts ...lock.Option) *lock.Lease {
	t.Helper()
	lease, err := r.Lock(t.Context(), opts...)
	if err != nil {
		t.Fatalf("Lock() = %v", err)
	}
	return lease
}

func TestRedlock(t *testing.T) {
	for _, plain := range []bool{false, true} {
		inFleet(t, 5, func(t *testing.T, f fleet) {
			mine := f.process(lock.Config{}).redlock(t, lock.RedlockConfig{}, plain)
			other := f.process(lock.Config{}).redlock(t, lock.RedlockConfig{}, plain)
			lease := lockRed(t, mine)
			synctest.Wait()
			if n := f.taken("job"); n != 5 || len(lease.Members()) != 5 {
				t.Errorf("taken on %d servers, %d members, want 5", n, len(lease.Members()))
			}
			if left := time.Until(lease.ValidUntil()); left > 30*time.Second-302*time.Millisecond || left < 29*time.Second {
				t.Errorf("valid for %v", left)
			}
			_, err := other.TryLock(t.Context())
			wantErr(t, "TryLock() of another process", err, lock.ErrNotAcquired)
			_, err = mine.TryLock(t.Context())
			wantErr(t, "TryLock() in this process", err, lock.ErrNotAcquired)
			time.Sleep(10 * time.Minute)
			if err := lease.Check(t.Context()); err != nil {
				t.Errorf("Check() after ten minutes = %v", err)
			}
			infos, err := other.Info(t.Context())
			if err != nil || len(infos) != 5 || !slices.ContainsFunc(lease.Members(), func(l *lock.Lease) bool {
				return l.Owner() == infos[0].Holders[0].Owner
			}) {
				t.Errorf("Info() = %+v, %v", infos, err)
			}
			work, cancel := lease.Context(t.Context())
			defer cancel()
			mustUnlock(t, lease)
			wantErr(t, "cause of the context", context.Cause(work), lock.ErrReleased)
			mustUnlock(t, lease)
			mustUnlock(t, lockRed(t, other))
			forced := lockRed(t, other)
			if did, err := mine.ForceUnlock(t.Context()); err != nil || !did {
				t.Errorf("ForceUnlock() = %v, %v", did, err)
			}
			wantErr(t, "Check() after ForceUnlock", forced.Check(t.Context()), lock.ErrLost)
			wantErr(t, "Unlock() after ForceUnlock", forced.Unlock(t.Context()), lock.ErrNotHeld)
			wantErr(t, "Do()", mine.Do(t.Context(), func(context.Context) error { return errBoom }), errBoom)
			f.free()
		})
	}
}

var errBoom = errors.New("boom")

func TestRedlockNodes(t *testing.T) {
	inFleet(t, 5, func(t *testing.T, f fleet) {
		p := f.process(lock.Config{})
		inCluster, err := lock.New(slotted{f[1].pools[0]}, lock.Config{})
		if err != nil {
			t.Fatal(err)
		}
		f[1].clients = append(f[1].clients, inCluster)
		for name, nodes := range map[string][]lock.Member{
			"none":           {},
			"one":            {p[0].Reentrant("a")},
			"four":           {p[0].Reentrant("a"), p[1].Reentrant("a"), p[2].Reentrant("a"), p[3].Reentrant("a")},
			"two kinds":      {p[0].Reentrant("a"), p[1].Plain("a"), p[2].Reentrant("a")},
			"fenced":         {p[0].Fenced("a"), p[1].Fenced("a"), p[2].Fenced("a")},
			"a client twice": {p[0].Reentrant("a"), p[0].Reentrant("b"), p[2].Reentrant("a")},
			"a cluster":      {p[0].Reentrant("a"), inCluster.Reentrant("a"), p[2].Reentrant("a")},
			"nil":            {p[0].Reentrant("a"), nil, p[2].Reentrant("a")},
			"a bad name":     {p[0].Reentrant("a"), p[1].Reentrant(""), p[2].Reentrant("a")},
		} {
			if _, err := lock.NewRedlock(lock.RedlockConfig{}, nodes...); !errors.Is(err, lock.ErrInvalid) {
				t.Errorf("NewRedlock of %s = %v, want ErrInvalid", name, err)
			}
		}
		nodes := []lock.Member{p[0].Reentrant("a"), p[1].Reentrant("a"), p[2].Reentrant("a")}
		for _, cfg := range []lock.RedlockConfig{{NodeTimeout: -1}, {MinValidity: 0.91}, {MinValidity: math.NaN()}, {Pause: 1}, {Quarantine: time.Second}} {
			if r, err := lock.NewRedlock(cfg, nodes...); r != nil || !errors.Is(err, lock.ErrInvalid) {
				t.Errorf("NewRedlock(%+v) = %v, %v, want ErrInvalid", cfg, r, err)
			}
		}
		r := p.redlock(t, lock.RedlockConfig{}, false)
		for _, opt := range []lock.Option{lock.As(p[0].NewOwner()), lock.For(time.Minute), lock.For(time.Millisecond)} {
			_, err := r.Lock(t.Context(), opt)
			wantErr(t, "Lock()", err, lock.ErrInvalid)
			_, err = r.TryLock(t.Context(), opt)
			wantErr(t, "TryLock()", err, lock.ErrInvalid)
		}
	})
}

// Two nodes on one server are refused even if only the server can tell.
func TestRedlockServerWithTwoNames(t *testing.T) {
	inFleet(t, 2, func(t *testing.T, f fleet) {
		p := process{f[0].client(lock.Config{}), f[1].client(lock.Config{}), f[0].client(lock.Config{})}
		r := p.redlock(t, lock.RedlockConfig{}, false)
		_, err := r.TryLock(t.Context())
		wantErr(t, "TryLock()", err, lock.ErrInvalid)
		_, err = r.Lock(t.Context())
		wantErr(t, "Lock()", err, lock.ErrInvalid)
		f.free()
	})
}

// Nor does one server grant a majority when it has not said who it is before it votes.
func TestRedlockServerWithTwoNamesVotes(t *testing.T) {
	for _, cfg := range []lock.RedlockConfig{{}, {Quarantine: -1}} {
		inFleet(t, 2, func(t *testing.T, f fleet) {
			nodes := []lock.Member{
				f[0].client(lock.Config{}).Reentrant("a"), f[0].client(lock.Config{}).Reentrant("b"), f[1].client(lock.Config{}).Reentrant("c"),
			}
			f[0].srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
				if cmd.Name == "INFO" && cmd.N <= 2 {
					return fakeredis.Reply("-ERR not now\r\n")
				}
				return fakeredis.Run()
			})
			f[1].srv.Stall(true)
			r, err := lock.NewRedlock(cfg, nodes...)
			if err != nil {
				t.Fatal(err)
			}
			_, err = r.TryLock(t.Context())
			wantErr(t, "TryLock()", err, lock.ErrInvalid)
			f[1].srv.Stall(false)
			f[0].sleep(40 * time.Second)
			f.free()
		})
	}
}

// The other format is an error that says so, and does not look like a lock that is taken.
func TestRedlockOfTheOtherFormat(t *testing.T) {
	for _, plain := range []bool{false, true} {
		inFleet(t, 3, func(t *testing.T, f fleet) {
			lease := lockRed(t, f.process(lock.Config{}).redlock(t, lock.RedlockConfig{}, plain))
			r := f.process(lock.Config{}).redlock(t, lock.RedlockConfig{}, !plain)
			_, err := r.TryLock(t.Context())
			wantErr(t, "TryLock()", err, lock.ErrWrongType)
			start := time.Now()
			_, err = r.Lock(t.Context())
			wantErr(t, "Lock()", err, lock.ErrWrongType)
			if took := time.Since(start); took > time.Second {
				t.Errorf("Lock() took %v", took)
			}
			mustUnlock(t, lease)
			f.free()
		})
	}
}

// down are the ways in which a server may not answer.
var down = map[string]func(s *fakeredis.Server, on bool){
	"refuses": func(s *fakeredis.Server, on bool) {
		s.Refuse(on)
		s.KillConns(nil)
	},
	"unreachable": func(s *fakeredis.Server, on bool) { s.Unreachable(on); s.Mute(on) },
	"stopped":     func(s *fakeredis.Server, on bool) { s.Stall(on) },
}

// With two of five servers down the lock is taken, kept and released; with three it is not, and that is not called taken.
func TestRedlockServersDown(t *testing.T) {
	for how, set := range down {
		t.Run(how, func(t *testing.T) {
			inFleet(t, 5, func(t *testing.T, f fleet) {
				p := f.process(lock.Config{})
				r := p.redlock(t, lock.RedlockConfig{}, false)
				set(f[1].srv, true)
				set(f[3].srv, true)
				start := time.Now()
				lease := lockRed(t, r)
				if took := time.Since(start); took > time.Second {
					t.Errorf("taken after %v", took)
				}
				_, err := f.reach(0, 2, 4).TryLock(t.Context())
				wantErr(t, "TryLock() of another", err, lock.ErrNotAcquired)
				time.Sleep(time.Minute)
				start = time.Now()
				if err := lease.Check(t.Context()); err != nil {
					t.Errorf("Check() = %v", err)
				}
				mustUnlock(t, lease)
				if took := time.Since(start); took > time.Second {
					t.Errorf("checked and released after %v", took)
				}
				set(f[4].srv, true)
				_, err = r.TryLock(t.Context())
				wantErr(t, "TryLock() with three of five down", err, lock.ErrNoQuorum)
				if errors.Is(err, lock.ErrNotAcquired) {
					t.Errorf("%v says that it is taken", err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				_, err = r.Lock(ctx)
				wantErr(t, "Lock() with three of five down", err, context.DeadlineExceeded)
				start = time.Now()
				_, err = r.Lock(t.Context())
				wantErr(t, "Lock() with three of five down", err, lock.ErrNoQuorum)
				if took := time.Since(start); took < 30*time.Second || took > 40*time.Second {
					t.Errorf("gave up after %v", took)
				}
				if errors.Is(err, context.DeadlineExceeded) || strings.Contains(err.Error(), "not acquired") {
					t.Errorf("%v: its context has not ended", err)
				}
				set(f[1].srv, false)
				set(f[3].srv, false)
				set(f[4].srv, false)
				time.Sleep(40 * time.Second)
				f.free()
				mustUnlock(t, lockRed(t, r))
			})
		})
	}
}

// reach is the Redlock of another process that knows these servers.
func (f fleet) reach(at ...int) *lock.Redlock {
	var p process
	for _, i := range at {
		p = append(p, f[i].client(lock.Config{}))
	}
	return p.redlock(f[0].t, lock.RedlockConfig{}, false)
}

// The lock is held while a majority has it, and lost with the first that makes it less, however it went.
func TestRedlockLossOfTheMajority(t *testing.T) {
	inFleet(t, 5, func(t *testing.T, f fleet) {
		lease := lockRed(t, f.process(lock.Config{}).redlock(t, lock.RedlockConfig{}, false))
		synctest.Wait() // for all five
		work, cancel := lease.Context(t.Context())
		defer cancel()
		f[0].srv.Do("DEL", "job")
		f[1].srv.Mute(true)
		time.Sleep(time.Minute)
		if err := lease.Err(); err != nil {
			t.Fatalf("lost with three of five: %v", err)
		}
		if until := lease.ValidUntil(); time.Until(until) < 15*time.Second {
			t.Errorf("valid until %v, the majority is renewed", until)
		}
		f[2].srv.Do("DEL", "job")
		time.Sleep(12 * time.Second)
		<-lease.Lost()
		lostBecause(t, context.Cause(work), lock.Forced)
		lostBecause(t, lease.Err(), lock.Forced)
		wantErr(t, "Unlock()", lease.Unlock(t.Context()), lock.ErrNotHeld)
		if n := f.taken("job"); n != 0 {
			t.Errorf("taken on %d servers after Unlock", n)
		}
		f[1].srv.Mute(false)
		time.Sleep(12 * time.Second)
		f.free()
	})
}

// When the majority cannot be reached any more the lock is lost with its lease, whatever the network does.
func TestRedlockCutOff(t *testing.T) {
	inFleet(t, 5, func(t *testing.T, f fleet) {
		lease := lockRed(t, f.process(lock.Config{Lease: 3 * time.Second}).redlock(t, lock.RedlockConfig{}, false))
		for _, w := range f[:3] {
			w.srv.Stall(true)
		}
		start := time.Now()
		<-lease.Lost()
		if took := time.Since(start); took > 3*time.Second {
			t.Errorf("told after %v", took)
		}
		lostBecause(t, lease.Err(), lock.Unreachable)
		for _, w := range f[:3] {
			w.srv.Stall(false)
		}
		if err := lease.Unlock(t.Context()); err != nil && !errors.Is(err, lock.ErrNotHeld) {
			t.Errorf("Unlock() = %v", err)
		}
		time.Sleep(6 * time.Second)
		f.free()
	})
}

// A release that only a minority answers is not confirmed, until the lease has ended everywhere.
func TestRedlockUnlockWithoutAMajority(t *testing.T) {
	inFleet(t, 3, func(t *testing.T, f fleet) {
		r := f.process(lock.Config{}).redlock(t, lock.RedlockConfig{}, false)
		lease := lockRed(t, r, lock.For(20*time.Second))
		synctest.Wait()
		f[1].srv.Mute(true)
		f[2].srv.Mute(true)
		wantErr(t, "Unlock()", lease.Unlock(t.Context()), lock.ErrUncertain)
		time.Sleep(20 * time.Second)
		if err := lease.Unlock(t.Context()); err != nil {
			t.Errorf("Unlock() when all leases have ended = %v", err)
		}
		f[1].srv.Mute(false)
		f[2].srv.Mute(false)
		time.Sleep(20 * time.Second)
		f.free()
	})
}

// A grant that comes after the decision becomes a part of the lease while that is held, and is given back when it is not.
func TestRedlockLateGrants(t *testing.T) {
	for _, unlocked := range []bool{false, true} {
		inFleet(t, 5, func(t *testing.T, f fleet) {
			r := f.process(lock.Config{}).redlock(t, lock.RedlockConfig{}, false)
			mustUnlock(t, lockRed(t, r))
			f.free()
			f[4].onScript("acquire", func(int) fakeredis.Action { return fakeredis.Delay(100*time.Millisecond, fakeredis.Run()) })
			lease := lockRed(t, r)
			synctest.Wait()
			if n := len(lease.Members()); n != 4 {
				t.Errorf("%d members before the late grant", n)
			}
			if unlocked {
				mustUnlock(t, lease)
			}
			time.Sleep(time.Second)
			want := 5
			if unlocked {
				want = 0
			}
			if n := f.taken("job"); n != want {
				t.Errorf("unlocked %v: taken on %d servers", unlocked, n)
			}
			if !unlocked {
				if n := len(lease.Members()); n != 5 {
					t.Errorf("%d members after the late grant", n)
				}
				f[4].srv.Intercept(nil)
				mustUnlock(t, lease)
			}
			f.free()
		})
	}
}

// What was sent and not answered in time is taken back where it arrives.
func TestRedlockGrantsNobodyWaitsFor(t *testing.T) {
	inFleet(t, 3, func(t *testing.T, f fleet) {
		r := f.process(lock.Config{}).redlock(t, lock.RedlockConfig{}, false)
		mustUnlock(t, lockRed(t, r))
		f.free()
		for _, w := range f[1:] {
			w.onScript("acquire", func(int) fakeredis.Action { return fakeredis.Delay(400*time.Millisecond, fakeredis.Run()) })
		}
		_, err := r.TryLock(t.Context())
		wantErr(t, "TryLock()", err, lock.ErrNoQuorum)
		time.Sleep(7 * time.Second)
		f.free()
	})
}

// A majority that took too long is not taken: too little would be left.
// The share of the lease that must remain is a share of what AtMost leaves of the lease.
func TestRedlockMinValidityOfAtMost(t *testing.T) {
	inFleet(t, 3, func(t *testing.T, f fleet) {
		for _, cfg := range []lock.Config{{}, {AtMost: 5 * time.Second}} {
			opts := []lock.Option{lock.AtMost(5 * time.Second)}
			if cfg.AtMost > 0 {
				opts = nil
			}
			r := f.process(cfg).redlock(t, lock.RedlockConfig{}, false)
			lease, err := r.TryLock(t.Context(), opts...)
			if err != nil {
				t.Errorf("TryLock() with AtMost of 5 s, and a lease of 30 s = %v", err)
				continue
			}
			if left := time.Until(lease.ValidUntil()); left > 5*time.Second || left < 4*time.Second {
				t.Errorf("valid for %v, want 5 s", left)
			}
			mustUnlock(t, lease)
		}
	})
}

func TestRedlockMinValidity(t *testing.T) {
	inFleet(t, 3, func(t *testing.T, f fleet) {
		p := f.process(lock.Config{})
		slow := lock.RedlockConfig{NodeTimeout: time.Second}
		anything := lock.RedlockConfig{NodeTimeout: time.Second, MinValidity: -1}
		mustUnlock(t, lockRed(t, p.redlock(t, slow, false)))
		for _, w := range f {
			w.srv.Latency(150 * time.Millisecond)
		}
		_, err := p.redlock(t, slow, false).TryLock(t.Context(), lock.For(500*time.Millisecond))
		lostBecause(t, err, lock.Expired)
		time.Sleep(time.Second)
		if n := f.taken("job"); n != 0 {
			t.Errorf("taken on %d servers", n)
		}
		lease, err := p.redlock(t, anything, false).TryLock(t.Context(), lock.For(500*time.Millisecond))
		if err != nil {
			t.Fatal(err)
		}
		if left := time.Until(lease.ValidUntil()); left > 195*time.Millisecond {
			t.Errorf("valid for %v of 500ms, of which 300ms went with the request", left)
		}
		mustUnlock(t, lease)
		time.Sleep(time.Second)
		f.free()
	})
}

// A Lock whose caller leaves, at whatever step, leaves nothing behind.
func TestRedlockCancelledAtEachStep(t *testing.T) {
	for step := range 8 {
		inFleet(t, 3, func(t *testing.T, f fleet) {
			for _, w := range f {
				w.srv.Latency(5 * time.Millisecond)
			}
			r := f.process(lock.Config{}).redlock(t, lock.RedlockConfig{}, false)
			other := f.process(lock.Config{}).redlock(t, lock.RedlockConfig{}, false)
			holder := lockRed(t, other)
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(step)*5*time.Millisecond+2*time.Millisecond)
			defer cancel()
			start := time.Now()
			_, err := r.Lock(ctx)
			wantErr(t, "Lock()", err, context.DeadlineExceeded)
			if waited := time.Since(start); waited > 50*time.Millisecond {
				t.Errorf("step %d: returned %v after its start", step, waited)
			}
			mustUnlock(t, holder)
			cancelled, end := context.WithTimeout(t.Context(), time.Duration(step)*5*time.Millisecond+2*time.Millisecond)
			defer end()
			if lease, err := r.Lock(cancelled); err == nil {
				mustUnlock(t, lease)
			}
			time.Sleep(7 * time.Second)
			f.free()
			mustUnlock(t, lockRed(t, other))
		})
	}
}

// Five processes that begin at the same instant share out the votes; still one of them gets a majority before long.
func TestRedlockSplitVotes(t *testing.T) {
	inFleet(t, 5, func(t *testing.T, f fleet) {
		var locks []*lock.Redlock
		for i := range 5 {
			p := f.process(lock.Config{})
			p = slices.Concat(p[i:], p[:i])
			locks = append(locks, p.redlock(t, lock.RedlockConfig{}, false))
		}
		for i, w := range f {
			w.srv.Latency(time.Duration(1+i) * time.Millisecond)
		}
		start := time.Now()
		var inside atomic.Int32
		var wg sync.WaitGroup
		for _, r := range locks {
			wg.Go(func() {
				for range 10 {
					if err := r.Do(t.Context(), func(context.Context) error {
						if inside.Add(1) != 1 {
							t.Error("two have the lock")
						}
						time.Sleep(time.Millisecond)
						inside.Add(-1)
						return nil
					}); err != nil {
						t.Errorf("Do() = %v", err)
					}
				}
			})
		}
		wg.Wait()
		if took := time.Since(start); took > time.Minute {
			t.Errorf("50 turns took %v", took)
		}
		time.Sleep(7 * time.Second)
		f.free()
	})
}

// In one process one caller at a time is a candidate, in the order in which they came.
func TestRedlockLine(t *testing.T) {
	inFleet(t, 3, func(t *testing.T, f fleet) {
		p := f.process(lock.Config{})
		lease := lockRed(t, p.redlock(t, lock.RedlockConfig{}, false))
		synctest.Wait()
		before := f[0].srv.Count("EVALSHA")
		order := make(chan int, 10)
		var wg sync.WaitGroup
		for i := range 10 {
			wg.Go(func() {
				r := p.redlock(t, lock.RedlockConfig{}, false)
				mine := lockRed(t, r)
				order <- i
				mustUnlock(t, mine)
			})
			synctest.Wait()
		}
		time.Sleep(time.Second)
		if n := f[0].srv.Count("EVALSHA") - before; n != 0 || p[0].Stats().Waiting != 10 {
			t.Errorf("%d scripts ran for %d who stand behind the holder", n, p[0].Stats().Waiting)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := p.redlock(t, lock.RedlockConfig{}, false).Lock(ctx)
		wantErr(t, "Lock()", err, lock.ErrNotAcquired)
		start := time.Now()
		mustUnlock(t, lease)
		wg.Wait()
		for i := range 10 {
			if got := <-order; got != i {
				t.Errorf("%d was served as number %d", got, i)
			}
		}
		if took := time.Since(start); took > 10*time.Millisecond {
			t.Errorf("ten hand-overs took %v", took)
		}
		f.free()
	})
}

// A lease that its holder forgot does not keep the others of its process standing for ever.
func TestRedlockForgottenLease(t *testing.T) {
	inFleet(t, 3, func(t *testing.T, f fleet) {
		r := f.process(lock.Config{}).redlock(t, lock.RedlockConfig{}, false)
		lockRed(t, r, lock.For(5*time.Second))
		start := time.Now()
		lease := lockRed(t, r)
		if waited := time.Since(start); waited < 4900*time.Millisecond || waited > 6*time.Second {
			t.Errorf("waited for %v", waited)
		}
		mustUnlock(t, lease)
		f.free()
	})
}

// Somebody who has the lock on one server alone does not keep a majority from others, and one who has it on two of three does,
// until he gives one back.
func TestRedlockNodesOfOthers(t *testing.T) {
	inFleet(t, 3, func(t *testing.T, f fleet) {
		p, other := f.process(lock.Config{}), f.process(lock.Config{})
		r := p.redlock(t, lock.RedlockConfig{}, false)
		for i := range f {
			first := mustLock(t, other[i], "job")
			lease, err := r.TryLock(t.Context(), lock.For(5*time.Second))
			if err != nil {
				t.Fatalf("TryLock() = %v", err)
			}
			time.Sleep(3 * time.Second)
			mustUnlock(t, lease)
			second := mustLock(t, other[(i+1)%3], "job")
			_, err = r.TryLock(t.Context())
			wantErr(t, "TryLock()", err, lock.ErrNotAcquired)
			time.AfterFunc(3*time.Second, func() { _, _ = other[i].Reentrant("job").ForceUnlock(context.Background()) })
			mustUnlock(t, lockRed(t, r))
			wantErr(t, "Unlock() of what was forced", first.Unlock(t.Context()), lock.ErrNotHeld)
			mustUnlock(t, second)
		}
		time.Sleep(20 * time.Second) // for the latches of requests that were cancelled
		f.free()
	})
}
