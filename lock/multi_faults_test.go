package lock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/lock"
	"github.com/lockwire/lockwire/script"
)

// lostAnswers are the ways in which a command runs, at once or late, and its answer does not come.
var lostAnswers = map[string]fakeredis.Action{
	"no answer":   fakeredis.Run().Late(time.Hour),
	"late answer": fakeredis.Run().Late(3 * time.Second),
	"closed":      fakeredis.RunThenClose(),
	"reset":       fakeredis.Drop().ThenReset(),
	"late":        fakeredis.Delay(3*time.Second, fakeredis.Run()),
	"never ran":   fakeredis.Close(),
}

// everyKind are locks of all kinds, with names of their own.
func everyKind(c *lock.Client) []lock.Member {
	return []lock.Member{
		c.Reentrant("reentrant"), c.Fenced("fenced"), c.Fair("fair"), c.NonReentrant("nonreentrant"), c.NonReentrantFair("nonreentrantfair"),
		c.Spin("spin", lock.Backoff{}), c.Plain("plain"), c.ReadWrite("read").Read(), c.ReadWrite("write").Write(),
	}
}

// Locks of all kinds are one lease: renewed as long as it is held, extended together when it has a lease of its own, and
// gone when it is given back.
func TestMultiOfEveryKind(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c, other := w.client(lock.Config{}), w.client(lock.Config{})
		mine, theirs := newMulti(t, everyKind(c)...), newMulti(t, everyKind(other)...)
		for _, opts := range [][]lock.Option{nil, {lock.For(time.Hour)}} {
			lease := lockMulti(t, mine, opts...)
			if n := len(lease.Members()); n != len(everyKind(c)) {
				t.Errorf("%d members", n)
			}
			w.sleep(10 * time.Minute)
			if err := lease.Check(t.Context()); err != nil {
				t.Errorf("Check() after ten minutes = %v", err)
			}
			_, err := theirs.TryLock(t.Context())
			wantErr(t, "TryLock() of another", err, lock.ErrNotAcquired)
			infos, err := theirs.Info(t.Context())
			if err != nil || len(infos) != len(everyKind(c)) {
				t.Errorf("Info() = %v, %v", infos, err)
			}
			for i, info := range infos {
				if owner := lease.Members()[i].Owner(); !info.Locked || len(info.Holders) != 1 || info.Holders[0].Owner != owner {
					t.Errorf("Info() = %+v", info)
				}
			}
			mustUnlock(t, lease)
		}
		held := lockMulti(t, mine)
		if did, err := theirs.ForceUnlock(t.Context()); !did || err != nil {
			t.Errorf("ForceUnlock() = %v, %v", did, err)
		}
		if did, err := theirs.ForceUnlock(t.Context()); did || err != nil {
			t.Errorf("second ForceUnlock() = %v, %v", did, err)
		}
		wantErr(t, "Check() after ForceUnlock", held.Check(t.Context()), lock.ErrLost)
		wantErr(t, "Unlock() after ForceUnlock", held.Unlock(t.Context()), lock.ErrNotHeld)
		w.srv.Do("DEL", "redisson_lock_token:{fenced}")
		w.sleep(time.Minute) // the leases of readers end by themselves after ForceUnlock
		w.free()
	})
}

// Whichever answer is lost, of a request for one of the locks or of a release when they are given back, nothing stays taken.
func TestMultiLostAnswers(t *testing.T) {
	for how, action := range lostAnswers {
		for _, operation := range []string{"acquire", "release"} {
			for step := 1; step <= 3; step++ {
				t.Run(fmt.Sprintf("%s, %s %d", how, operation, step), func(t *testing.T) {
					inVirtualTime(t, func(t *testing.T, w *world) {
						c, other := w.client(lock.Config{}), w.client(lock.Config{})
						m := newMulti(t, reentrants(c, "a", "b", "c", "d")...)
						taken := mustLock(t, other, "d")
						mustUnlock(t, mustLock(t, c, "z"))
						w.onScript(operation, func(n int) fakeredis.Action {
							if n == step {
								return action
							}
							return fakeredis.Run()
						})
						if _, err := m.TryLock(t.Context()); err == nil {
							t.Error("TryLock() succeeded")
						}
						ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
						defer cancel()
						_, err := m.Lock(ctx, lock.For(20*time.Second))
						wantErr(t, "Lock()", err, context.DeadlineExceeded)
						w.sleep(7 * time.Second) // for what is undone a second time
						mustUnlock(t, lockMulti(t, newMulti(t, reentrants(other, "a", "b", "c")...)))
						mustUnlock(t, taken)
						w.free()
					})
				})
			}
		}
	}
}

// A server that has run what it did not answer is asked to take it back, while the others make a majority and when they do not.
func TestRedlockLostAnswers(t *testing.T) {
	for how, action := range lostAnswers {
		for _, plain := range []bool{false, true} {
			for broken := 1; broken <= 2; broken++ {
				t.Run(fmt.Sprintf("%s, plain %v, %d of 3", how, plain, broken), func(t *testing.T) {
					inFleet(t, 3, func(t *testing.T, f fleet) {
						r := f.process(lock.Config{}).redlock(t, lock.RedlockConfig{}, plain)
						mustUnlock(t, lockRed(t, r))
						f.free()
						for _, w := range f[:broken] {
							w.onceOn("acquire", plain, action)
						}
						lease, err := r.TryLock(t.Context())
						if (err == nil) != (broken == 1) {
							t.Fatalf("TryLock() = %v", err)
						}
						f[0].sleep(7 * time.Second)
						if want := 3 - broken; err == nil && f.taken("job") != want {
							t.Errorf("taken on %d servers, want %d", f.taken("job"), want)
						}
						if err == nil {
							mustUnlock(t, lease)
						}
						for _, w := range f[:broken] {
							w.onceOn("release", plain, action)
						}
						if lease, err = r.TryLock(t.Context()); err != nil {
							t.Fatalf("TryLock() = %v", err)
						}
						_ = lease.Unlock(t.Context())
						f[0].sleep(7 * time.Second)
						if n := f.taken("job"); n != 0 {
							t.Errorf("taken on %d servers after Unlock", n)
						}
						f[0].sleep(latchLife)
						f.free()
					})
				})
			}
		}
	}
}

// onceOn has the next script for an operation, of plain or of reentrant locks, meet an action.
func (w *world) onceOn(operation string, plain bool, action fakeredis.Action) {
	kind := "reentrant"
	if plain {
		kind = "plain"
	}
	scripts, met := scriptsFor(kind, operation), false
	w.srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
		if met || len(cmd.Args) < 2 || !slices.ContainsFunc(scripts, func(s *script.Script) bool { return cmd.Args[1] == s.Digest() }) {
			return fakeredis.Run()
		}
		met = true
		return action
	})
}

// Who waits for several locks when one of the clients is closed is told, and what there was by then is given back. A Redlock
// goes on without one of three.
func TestSeveralClosedWhileWaiting(t *testing.T) {
	for closed := range 3 {
		inFleet(t, 3, func(t *testing.T, f fleet) {
			p, other := f.process(lock.Config{}), f.process(lock.Config{})
			m := newMulti(t, p[0].Reentrant("a"), p[1].Reentrant("b"), p[2].Reentrant("c"))
			taken := mustLock(t, other[2], "c")
			r, held := p.redlock(t, lock.RedlockConfig{}, false), lockRed(t, other.redlock(t, lock.RedlockConfig{}, false))
			failed, got := make(chan error), make(chan *lock.Lease, 1)
			go func() {
				_, err := m.Lock(t.Context())
				failed <- err
			}()
			go func() {
				lease, err := r.Lock(t.Context())
				got <- lease
				failed <- err
			}()
			f[0].sleep(time.Second)
			start := time.Now()
			p[closed].Close()
			wantErr(t, "Lock() of a Multi", <-failed, lock.ErrClosed)
			if closed == 0 { // whose line the Redlock stands in
				wantErr(t, "Lock() of a Redlock", <-failed, lock.ErrClosed)
			}
			if took := time.Since(start); took > 3*time.Second {
				t.Errorf("told after %v", took)
			}
			f[0].sleep(2 * time.Second)
			if f[:1].taken("a")+f[1:].taken("b") != 0 {
				t.Error("what a Multi had is taken still")
			}
			mustUnlock(t, held)
			if closed != 0 {
				wantErr(t, "Lock() of a Redlock", <-failed, nil)
				mustUnlock(t, <-got)
			}
			mustUnlock(t, taken)
			f[0].sleep(7 * time.Second)
			f.free()
		})
	}
}

// Unlock by many at once is one release, and all are told the same.
func TestSeveralUnlockedByMany(t *testing.T) {
	inFleet(t, 3, func(t *testing.T, f fleet) {
		p := f.process(lock.Config{})
		for _, l := range []interface {
			Lock(context.Context, ...lock.Option) (*lock.Lease, error)
		}{newMulti(t, p[0].Reentrant("a"), p[1].Reentrant("b")), p.redlock(t, lock.RedlockConfig{}, false)} {
			for _, forced := range []bool{false, true} {
				lease, err := l.Lock(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if forced {
					for _, w := range f {
						w.sleep(100 * time.Millisecond)
						w.srv.Do("FLUSHALL")
					}
				}
				outcomes := make(chan error)
				for range 10 {
					go func() { outcomes <- lease.Unlock(t.Context()) }()
				}
				for range 10 {
					if err := <-outcomes; errors.Is(err, lock.ErrNotHeld) != forced || !forced && err != nil {
						t.Errorf("Unlock() = %v, forced %v", err, forced)
					}
				}
				if err := lease.Err(); err == nil {
					t.Error("Err() = nil after Unlock")
				}
				f.free()
			}
		}
	})
}

// A member with a short lease, whose server cannot be asked for longer than that, does not end Lock: the longest lease is the patience.
func TestMultiIsAsPatientAsItsLongestLease(t *testing.T) {
	inFleet(t, 2, func(t *testing.T, f fleet) {
		quick := conn.Config{Timeout: time.Second, DialTimeout: time.Second, Retry: conn.Retry{Budget: 100 * time.Millisecond}}
		patient, hasty := f[0].clientOn(quick, lock.Config{}), f[1].clientOn(quick, lock.Config{Lease: 200 * time.Millisecond})
		m := newMulti(t, patient.Reentrant("a"), hasty.Reentrant("b"))
		mustUnlock(t, lockMulti(t, m))
		f[1].srv.Refuse(true)
		f[1].srv.KillConns(nil)
		start := time.Now()
		time.AfterFunc(10*time.Second, func() { f[1].srv.Refuse(false) })
		lease := lockMulti(t, m)
		if took := time.Since(start); took < 10*time.Second || took > 12*time.Second {
			t.Errorf("locked after %v with a server away for 10s", took)
		}
		mustUnlock(t, lease)
		f[0].sleep(10 * time.Second)
		f.free()
	})
}

// A lock that is lost while the others are being taken is not one of those that are held.
func TestMultiLosesOneOnTheWay(t *testing.T) {
	inFleet(t, 2, func(t *testing.T, f fleet) {
		p := f.process(lock.Config{})
		f[1].onScript("acquire", func(int) fakeredis.Action { return fakeredis.Delay(500*time.Millisecond, fakeredis.Run()) })
		forced := make(chan error)
		go func() {
			f[0].sleep(200 * time.Millisecond)
			_, err := p[0].Reentrant("a").ForceUnlock(context.Background()) // which tells who has it in this process
			forced <- err
		}()
		_, err := newMulti(t, p[0].Reentrant("a"), p[1].Reentrant("b")).TryLock(t.Context())
		lostBecause(t, err, lock.PartLost)
		wantErr(t, "ForceUnlock()", <-forced, nil)
		f.free()
	})
}

// The whole is held until too few are left: of a Multi until the first ends, of a Redlock of five until the third.
func TestSeveralValidUntil(t *testing.T) {
	inFleet(t, 5, func(t *testing.T, f fleet) {
		var p process
		for i, w := range f {
			p = append(p, w.client(lock.Config{Lease: time.Duration(10*(i+1)) * time.Second}))
		}
		start := time.Now()
		all := lockMulti(t, newMulti(t, p[4].Reentrant("x"), p[1].Reentrant("y"), p[2].Reentrant("z")))
		red := lockRed(t, p.redlock(t, lock.RedlockConfig{}, false))
		synctest.Wait()
		for _, w := range f {
			w.srv.Mute(true)
		}
		if of, want := all.ValidUntil().Sub(start), 20*time.Second-202*time.Millisecond; of != want {
			t.Errorf("the Multi is valid for %v, want %v", of, want)
		}
		if of, want := red.ValidUntil().Sub(start), 30*time.Second-302*time.Millisecond; of != want {
			t.Errorf("the Redlock is valid for %v, want %v", of, want)
		}
		for _, c := range []struct {
			what  string
			lease *lock.Lease
			want  time.Duration
		}{{"Multi", all, 20*time.Second - 202*time.Millisecond}, {"Redlock", red, 30*time.Second - 302*time.Millisecond}} {
			<-c.lease.Lost()
			if took := time.Since(start); took != c.want {
				t.Errorf("%s: told after %v, want %v", c.what, took, c.want)
			}
			lostBecause(t, c.lease.Err(), lock.Unreachable)
		}
		f[0].sleep(time.Minute)
		if err := red.Unlock(t.Context()); err == nil {
			t.Error("Unlock() of a Redlock that was lost = nil when no server can have it any more")
		}
		for _, w := range f {
			w.srv.Mute(false)
		}
		_ = all.Unlock(t.Context())
		f[0].sleep(time.Minute)
		f.free()
	})
}

// The machine sleeps past the end of the leases: nobody takes the whole for held when it wakes, and who waits for it to be
// lost is told within a second.
func TestSeveralSleepingMachine(t *testing.T) {
	inFleet(t, 3, func(t *testing.T, f fleet) {
		p := f.process(lock.Config{})
		for _, l := range []interface {
			Lock(context.Context, ...lock.Option) (*lock.Lease, error)
		}{newMulti(t, p[0].Reentrant("a"), p[1].Reentrant("b")), p.redlock(t, lock.RedlockConfig{}, false)} {
			for _, watched := range []bool{false, true} {
				lease, err := l.Lock(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				var lost <-chan struct{}
				if watched {
					lost = lease.Lost()
				}
				for _, w := range f {
					w.machine.Sleep(30 * time.Second)
				}
				woken := time.Now()
				if watched {
					<-lost
				}
				lostBecause(t, lease.Err(), lock.ClockJump)
				if took := time.Since(woken); took > time.Second {
					t.Errorf("told %v after the machine woke", took)
				}
				_ = lease.Unlock(t.Context()) // the servers have not slept
				f.free()
			}
		}
	})
}

// Once there is no majority to be had, nobody waits for the servers that have not answered; that the lock is taken is not
// said together with that there is nobody to ask.
func TestRedlockTakenAtOnce(t *testing.T) {
	inFleet(t, 3, func(t *testing.T, f fleet) {
		r := f.process(lock.Config{}).redlock(t, lock.RedlockConfig{MinValidity: 0.9}, false)
		lease := lockRed(t, f.process(lock.Config{}).redlock(t, lock.RedlockConfig{}, false))
		f[0].sleep(time.Second)
		_, err := r.TryLock(t.Context())
		wantErr(t, "TryLock()", err, lock.ErrNotAcquired)
		f[2].srv.Stall(true)
		start := time.Now()
		_, err = r.TryLock(t.Context())
		wantErr(t, "TryLock()", err, lock.ErrNotAcquired)
		if took := time.Since(start); took != 0 || errors.Is(err, lock.ErrNoQuorum) {
			t.Errorf("TryLock() = %v after %v", err, took)
		}
		f[2].srv.Stall(false)
		mustUnlock(t, lease)
		mustUnlock(t, lockRed(t, r))
		f[0].sleep(7 * time.Second)
		f.free()
	})
}

// A server has 1 % of the lease to answer, 20 to 250 ms, or what was set.
func TestRedlockNodeTimeout(t *testing.T) {
	inFleet(t, 3, func(t *testing.T, f fleet) {
		p := f.process(lock.Config{})
		mustUnlock(t, lockRed(t, p.redlock(t, lock.RedlockConfig{}, false)))
		f.free()
		f[1].srv.Stall(true)
		f[2].srv.Stall(true)
		for _, c := range []struct{ set, lease, want time.Duration }{
			{0, time.Second, 20 * time.Millisecond}, {0, 10 * time.Second, 100 * time.Millisecond}, {0, 30 * time.Second, 250 * time.Millisecond},
			{70 * time.Millisecond, 30 * time.Second, 70 * time.Millisecond},
		} {
			start := time.Now()
			_, err := p.redlock(t, lock.RedlockConfig{NodeTimeout: c.set}, false).TryLock(t.Context(), lock.For(c.lease))
			wantErr(t, "TryLock()", err, lock.ErrNoQuorum)
			if took := time.Since(start); took != c.want {
				t.Errorf("with NodeTimeout %v and a lease of %v servers had %v, want %v", c.set, c.lease, took, c.want)
			}
			f[0].sleep(10 * time.Millisecond)
		}
		f[1].srv.Stall(false)
		f[2].srv.Stall(false)
		f[0].sleep(10 * time.Second)
		f.free()
	})
}

// Check is not content with the first answer: it finds the loss of one lock of a Multi, and of a Redlock's majority.
func TestSeveralCheck(t *testing.T) {
	inFleet(t, 3, func(t *testing.T, f fleet) {
		p := f.process(lock.Config{})
		all := lockMulti(t, newMulti(t, p[0].Reentrant("a"), p[1].Reentrant("b"), p[2].Reentrant("c")))
		red := lockRed(t, p.redlock(t, lock.RedlockConfig{}, false))
		synctest.Wait()
		f[1].srv.Do("DEL", "job")
		if err := red.Check(t.Context()); err != nil {
			t.Errorf("Check() of a Redlock with two of three = %v", err)
		}
		f[1].srv.Do("DEL", "b")
		f[2].srv.Do("DEL", "job")
		f[1].srv.Latency(5 * time.Millisecond)
		f[2].srv.Latency(5 * time.Millisecond)
		lostBecause(t, all.Check(t.Context()), lock.Forced)
		lostBecause(t, red.Check(t.Context()), lock.Forced)
		wantErr(t, "Unlock()", all.Unlock(t.Context()), lock.ErrNotHeld)
		wantErr(t, "Unlock()", red.Unlock(t.Context()), lock.ErrNotHeld)
		f.free()
	})
}

// One lock under two addresses of its server is refused, instead of waiting for itself. A fake has no Target by which that would
// show before.
func TestMultiOfOneLockUnderTwoAddresses(t *testing.T) {
	inFleet(t, 2, func(t *testing.T, f fleet) {
		a, b, other := f.process(lock.Config{}), f.process(lock.Config{}), f.process(lock.Config{})
		for name, m := range map[string]*lock.Multi{
			"two":          newMulti(t, a[0].Reentrant("x"), b[0].Reentrant("x")),
			"among others": newMulti(t, a[0].Reentrant("x"), a[1].Reentrant("x"), a[0].Reentrant("w"), b[1].Reentrant("x")),
			"of two kinds": newMulti(t, a[0].Reentrant("x"), b[0].Fair("x")),
		} {
			start := time.Now()
			_, err := m.Lock(t.Context())
			wantErr(t, name+": Lock()", err, lock.ErrInvalid)
			_, err = m.TryLock(t.Context())
			wantErr(t, name+": TryLock()", err, lock.ErrInvalid)
			if d := time.Since(start); d > 100*time.Millisecond {
				t.Errorf("%s: found after %v", name, d)
			}
		}
		synctest.Wait()
		if n := f.taken("x"); n > 0 {
			t.Errorf("%d locks are left", n)
		}
		// Others have a right to be: of two servers, and of two names.
		for range 2 {
			m := newMulti(t, a[0].Reentrant("x"), a[1].Reentrant("x"), b[0].Reentrant("y"))
			lease := lockMulti(t, m)
			_, err := newMulti(t, other[0].Reentrant("x"), other[1].Reentrant("x")).TryLock(t.Context())
			wantErr(t, "TryLock() of another process", err, lock.ErrNotAcquired)
			mustUnlock(t, lease)
		}
		asked := f[0].srv.Count("INFO")
		m := newMulti(t, a[0].Reentrant("x"), a[1].Reentrant("x"))
		for range 10 {
			mustUnlock(t, lockMulti(t, m))
		}
		if n := f[0].srv.Count("INFO") - asked; n != 1 {
			t.Errorf("the server was asked who it is %d times, want once", n)
		}
	})
}

// Databases of one server have locks of their own.
func TestMultiOfTwoDatabases(t *testing.T) {
	inFleet(t, 1, func(t *testing.T, f fleet) {
		first := f[0].clientOn(conn.Config{}, lock.Config{})
		second := f[0].clientOn(conn.Config{DB: 1}, lock.Config{})
		third := f[0].clientOn(conn.Config{DB: 1}, lock.Config{})
		mustUnlock(t, lockMulti(t, newMulti(t, first.Reentrant("x"), second.Reentrant("x"))))
		_, err := newMulti(t, first.Reentrant("x"), second.Reentrant("x"), third.Reentrant("x")).Lock(t.Context())
		wantErr(t, "Lock() of one in database 1 twice", err, lock.ErrInvalid)
	})
}

// An address may lead to another server later: a Multi that is refused looks again. A server that does not say who it is, or not
// in time, is no other's double.
func TestMultiOfServersThatDoNotSayWhoTheyAre(t *testing.T) {
	inFleet(t, 1, func(t *testing.T, f fleet) {
		a, b := f.process(lock.Config{}), f.process(lock.Config{})
		m := newMulti(t, a[0].Reentrant("x"), b[0].Reentrant("x"))
		var known atomic.Bool
		f[0].srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
			if cmd.Name == "INFO" && !known.Load() {
				return fakeredis.Reply("-NOPERM no\r\n")
			}
			return fakeredis.Run()
		})
		_, err := m.TryLock(t.Context())
		wantErr(t, "TryLock() where nothing is known", err, lock.ErrNotAcquired)
		time.AfterFunc(time.Second, func() { known.Store(true) })
		_, err = m.Lock(t.Context())
		wantErr(t, "Lock() once that is known", err, lock.ErrInvalid)
	})
}

// Each member of a Multi has the StopBefore of its own Client, whatever its name: the first member about to end ends the contexts, and no
// member with a short lease ends them because of another's setting.
func TestStopBeforeOfClients(t *testing.T) {
	for _, names := range [][2]string{{"a", "b"}, {"b", "a"}} {
		inFleet(t, 2, func(t *testing.T, f fleet) {
			short := f[0].client(lock.Config{Lease: 3 * time.Second})
			careful := f[1].client(lock.Config{StopBefore: 5 * time.Second})
			m := newMulti(t, short.Reentrant(names[0]), careful.Reentrant(names[1]))
			lease := lockMulti(t, m)
			work, cancel := lease.Context(t.Context())
			defer cancel()
			if time.Sleep(time.Minute); work.Err() != nil {
				t.Errorf("names %v: a held and renewed lease: %v", names, context.Cause(work))
			}
			mustUnlock(t, lease)

			lease = lockMulti(t, m, lock.For(10*time.Second))
			work, cancel = lease.Context(t.Context())
			defer cancel()
			<-work.Done()
			lostBecause(t, context.Cause(work), lock.Ending)
			if left := time.Until(lease.ValidUntil()); left < 4900*time.Millisecond || left > 5*time.Second {
				t.Errorf("names %v: told %v before the end, want 5s", names, left)
			}
			mustUnlock(t, lease)
			f.free()
		})
	}
}

// A Lock of a Multi whose context ends does not wait for the release of a lock whose client is closed and whose server hangs.
func TestMultiEndsInTimeAfterClose(t *testing.T) {
	inFleet(t, 2, func(t *testing.T, f fleet) {
		mine, other := f.process(lock.Config{}), f.process(lock.Config{})
		taken := mustLock(t, other[1], "b")
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 1400*time.Millisecond)
		defer cancel()
		end := make(chan error)
		go func() {
			_, err := newMulti(t, mine[0].Reentrant("a"), mine[1].Reentrant("b")).Lock(ctx)
			end <- err
		}()
		time.Sleep(100 * time.Millisecond)
		f[0].srv.Stall(true)
		_ = mine[0].Close() // it may report the lock that it could not release
		err := <-end
		if took := time.Since(start); took > 2500*time.Millisecond {
			t.Errorf("Lock() = %v after %v, with a context of 1.4 s", err, took)
		}
		f[0].srv.Stall(false)
		mustUnlock(t, taken)
		time.Sleep(40 * time.Second)
	})
}
