package lock_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/lock"
	"github.com/lockwire/lockwire/script"
)

// severalTimes are the releases of the kinds that an Owner can have several times.
func severalTimes() map[string]func(c *lock.Client) goldenLock {
	some := maps.Clone(releases)
	delete(some, "plain")
	return some
}

// onReleases has action decide about the n-th request that releases a lock of a kind, n from 1.
func (w *world) onReleases(kind string, action func(n int) fakeredis.Action) {
	n := 0
	scripts := append(scriptsFor(kind, "release"), scriptsFor(kind, "undo")...)
	w.srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
		if len(cmd.Args) < 2 || !slices.ContainsFunc(scripts, func(s *script.Script) bool { return s.Digest() == cmd.Args[1] }) {
			return fakeredis.Run()
		}
		n++
		return action(n)
	})
}

// holdUpRelease holds up the first request that releases a lock of a kind, and has the server refuse the further ones. arrive runs the first.
func (w *world) holdUpRelease(kind, refusal string) (arrive func()) {
	var late []string
	w.srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
		switch {
		case late == nil && isScriptOf(kind, cmd, "release"):
			late = slices.Clone(cmd.Args)
			return fakeredis.Close()
		case isScriptOf(kind, cmd, "release"), isScriptOf(kind, cmd, "undo"):
			return fakeredis.Reply("-" + refusal + "\r\n")
		}
		return fakeredis.Run()
	})
	return func() { w.srv.Do(late...) }
}

// unheard lets the first release of a kind run without an answer. No other one arrives until then, and to later ones comes late.
func (w *world) unheard(kind string, then time.Time, late fakeredis.Action) {
	begin := time.Now()
	w.onReleases(kind, func(n int) fakeredis.Action {
		switch {
		case n == 1:
			return fakeredis.Drop()
		case time.Now().After(then):
			return late
		case time.Since(begin) < 10*time.Second:
			return fakeredis.Swallow()
		}
		return fakeredis.Close()
	})
}

// The first release has no answer, and its repeat arrives when the server has forgotten it. No further hold of the Owner goes.
func TestRepeatBehindTheLatch(t *testing.T) {
	for kind, of := range severalTimes() {
		t.Run(kind, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, w *world) {
				c := w.client(lock.Config{})
				owner := lock.As(c.NewOwner())
				outer, middle, inner := mustHave(t, of(c), owner), mustHave(t, of(c), owner), mustHave(t, of(c), owner)
				w.unheard(kind, time.Now().Add(17*time.Second), fakeredis.Delay(4*time.Second, fakeredis.Run()))
				wantErr(t, "Unlock()", inner.Unlock(t.Context()), lock.ErrUncertain)
				w.sleep(time.Minute)
				w.srv.Intercept(nil)
				mustUnlock(t, middle)
				mustBeHeld(t, outer)
			})
		})
	}
}

// The same of an owner with one hold: the lock was held until its Unlock.
func TestRepeatOfASingleReleaseBehindTheLatch(t *testing.T) {
	for kind, of := range releases {
		t.Run(kind, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, w *world) {
				lease := mustHave(t, of(w.client(lock.Config{})))
				w.unheard(kind, time.Now().Add(17*time.Second), fakeredis.Delay(4*time.Second, fakeredis.Run()))
				wantErr(t, "Unlock()", lease.Unlock(t.Context()), lock.ErrUncertain)
				w.sleep(15 * time.Second)
				if err := lease.Unlock(t.Context()); errors.Is(err, lock.ErrNotHeld) {
					t.Errorf("second Unlock() = %v", err)
				}
			})
		})
	}
}

// The same, by a second Unlock after the client has given up its repeats, because the user had no right to them.
func TestUnlockBehindTheLatch(t *testing.T) {
	for kind, of := range releases {
		for _, nested := range []bool{true, false} {
			if nested && kind == "plain" {
				continue
			}
			t.Run(fmt.Sprint(kind, " nested ", nested), func(t *testing.T) {
				inVirtualTime(t, func(t *testing.T, w *world) {
					c := w.client(lock.Config{})
					opts := []lock.Option{lock.For(25 * time.Second)}
					var outer *lock.Lease
					if nested {
						owner := lock.As(c.NewOwner())
						opts = append(opts, owner)
						outer = mustHave(t, of(c), owner)
					}
					inner := mustHave(t, of(c), opts...)
					w.unheard(kind, time.Now(), fakeredis.Reply("-NOPERM no right to do so\r\n"))
					wantErr(t, "Unlock()", inner.Unlock(t.Context()), lock.ErrUncertain)
					w.sleep(25 * time.Second)
					w.srv.Intercept(nil)
					wantErr(t, "second Unlock()", inner.Unlock(t.Context()), lock.ErrUncertain)
					if outer != nil {
						mustBeHeld(t, outer)
					}
				})
			})
		}
	}
}

// The machine sleeps between a release without an answer and its repeat, for as long as the server remembers the first request. No further hold
// of the Owner goes, and nobody is told that the lock was lost.
func TestRepeatBehindASleep(t *testing.T) {
	for kind, of := range releases {
		for _, nested := range []bool{true, false} {
			if nested && kind == "plain" {
				continue
			}
			t.Run(fmt.Sprint(kind, " nested ", nested), func(t *testing.T) {
				inVirtualTime(t, func(t *testing.T, w *world) {
					c := w.client(lock.Config{})
					opts := []lock.Option{lock.For(time.Hour)}
					var outer *lock.Lease
					if nested {
						opts = append(opts, lock.As(c.NewOwner()))
						outer = mustHave(t, of(c), opts...)
					}
					inner := mustHave(t, of(c), opts...)
					w.onReleases(kind, func(n int) fakeredis.Action {
						if n > 1 {
							return fakeredis.Run()
						}
						w.srv.Refuse(true)
						time.AfterFunc(time.Second, func() {
							w.machine.Sleep(latchLife)
							w.srv.Advance(latchLife)
							w.srv.Refuse(false)
						})
						return fakeredis.RunThenClose()
					})
					err := inner.Unlock(t.Context())
					w.sleep(time.Second)
					if again := inner.Unlock(t.Context()); errors.Is(err, lock.ErrNotHeld) || errors.Is(again, lock.ErrNotHeld) {
						t.Errorf("Unlock() = %v, then %v", err, again)
					}
					if outer != nil {
						mustBeHeld(t, outer)
					}
				})
			})
		}
	}
}

// The release of a hold is given up for lack of a right, after a request without an answer, or of which a part has run: the server may count
// the hold, or not. The Owner's other holds are not told lost when it takes a further one, and a second Unlock takes none of them.
func TestHoldsBesideAReleaseGivenUp(t *testing.T) {
	for kind, of := range severalTimes() {
		for what, first := range map[string]fakeredis.Action{"run": fakeredis.RunThenClose(), "not run": fakeredis.Close(), "a part": fakeredis.Run()} {
			t.Run(kind+" "+what, func(t *testing.T) {
				inVirtualTime(t, func(t *testing.T, w *world) {
					c := w.client(lock.Config{})
					owner := lock.As(c.NewOwner())
					outer := mustHave(t, of(c), owner)
					inner := mustHave(t, of(c), owner, lock.For(5*time.Second))
					w.onReleases(kind, func(n int) fakeredis.Action {
						if n > 1 && what != "a part" {
							return fakeredis.Reply("-NOPERM no right to do so\r\n")
						}
						return first
					})
					if what == "a part" {
						w.srv.Deny("set")
					}
					wantErr(t, "Unlock()", inner.Unlock(t.Context()), lock.ErrUncertain)
					w.sleep(12 * time.Second)
					w.srv.Intercept(nil)
					if kind == "read" { // its acquire has SET, too
						w.srv.Deny()
					}
					further := mustHave(t, of(c), owner)
					w.srv.Deny()
					wantErr(t, "second Unlock()", inner.Unlock(t.Context()), lock.ErrUncertain)
					for _, l := range []*lock.Lease{outer, further} {
						if err := l.Check(t.Context()); err != nil {
							t.Errorf("another hold: %v", err)
						}
					}
					mustUnlock(t, further)
					mustUnlock(t, outer)
					w.sleep(latchLife)
					w.free()
				})
			})
		}
	}
}

// The first request of a release is held up, a part of its repeat has run, and the release has been finished otherwise. No further hold goes
// when the first request arrives.
func TestHeldUpReleaseBehindAPart(t *testing.T) {
	for kind, of := range severalTimes() {
		for _, right := range []string{"hincrby", "pexpire", "set", "hset", "hget"} {
			t.Run(kind+" without "+right, func(t *testing.T) {
				inVirtualTime(t, func(t *testing.T, w *world) {
					c := w.client(lock.Config{})
					owner := lock.As(c.NewOwner())
					outer, middle, inner := mustHave(t, of(c), owner), mustHave(t, of(c), owner), mustHave(t, of(c), owner)
					args := w.holdUp(kind, "release")
					w.srv.Deny(right)
					_ = inner.Unlock(t.Context()) // confirmed or not, as the right matters or not
					late := args()
					w.srv.Deny()
					w.sleep(2 * time.Second)
					w.srv.Do(late...)
					w.wantHolds("job", "2", outer)
					mustUnlock(t, middle)
					mustUnlock(t, outer)
				})
			})
		}
	}
}

// The first request of a release is held up, and the release is given up for lack of a right. The Owner takes no further hold before the
// request can arrive no more: it would count down behind the tally, and the hold after the next would be a sign that all are lost.
func TestHeldUpReleaseGivenUp(t *testing.T) {
	for kind, of := range severalTimes() {
		t.Run(kind, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, w *world) {
				c := w.client(lock.Config{})
				owner := lock.As(c.NewOwner())
				outer, inner := mustHave(t, of(c), owner), mustHave(t, of(c), owner, lock.For(3*time.Second))
				w.sleep(2900 * time.Millisecond)
				arrive := w.holdUpRelease(kind, "NOPERM no right to do so")
				wantErr(t, "Unlock()", inner.Unlock(t.Context()), lock.ErrUncertain)
				further := mustHave(t, of(c), owner)
				w.srv.Intercept(nil)
				arrive()
				last := mustHave(t, of(c), owner)
				for _, l := range []*lock.Lease{last, further, outer} {
					mustBeHeld(t, l)
				}
				w.sleep(latchLife)
				w.free()
			})
		})
	}
}

// The release of an Owner is held up, and somebody overwrites the lock by hand and deletes it. The Owner takes no further hold before the
// release can arrive no more: it would release that one.
func TestHeldUpReleaseOfAnOverwrittenLock(t *testing.T) {
	for kind, of := range severalTimes() {
		t.Run(kind, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, w *world) {
				c := w.client(lock.Config{})
				owner := lock.As(c.NewOwner())
				first := mustHave(t, of(c), owner)
				arrive := w.holdUpRelease(kind, "WRONGTYPE Operation against a key holding the wrong kind of value")
				wantErr(t, "Unlock()", first.Unlock(t.Context()), lock.ErrUncertain)
				w.srv.Do("DEL", first.Name())
				w.srv.Intercept(nil)
				next := mustHave(t, of(c), owner)
				arrive()
				mustBeHeld(t, next)
				w.sleep(latchLife)
				w.free()
			})
		})
	}
}

// mustBeHeld releases a hold beside a release, which the server must still have.
func mustBeHeld(t *testing.T, l *lock.Lease) {
	t.Helper()
	if err := l.Check(t.Context()); err != nil {
		t.Errorf("another hold: %v", err)
	}
	mustUnlock(t, l)
}

// A part of a late release has run, for lack of a right, and the connection broke before the answer. The lock is free after the next repeat
// with the right: its latch does not say so before.
func TestLateReleaseWithoutTheAnswerOfAPart(t *testing.T) {
	for kind, of := range severalTimes() {
		t.Run(kind, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, w *world) {
				c := w.client(lock.Config{})
				owner := lock.As(c.NewOwner())
				lease := mustHave(t, of(c), owner)
				w.srv.Deny("hget")
				w.onReleases(kind, func(n int) fakeredis.Action {
					switch {
					case n == 2:
						return fakeredis.RunThenClose()
					case n > 2:
						w.srv.Deny()
					}
					return fakeredis.Run()
				})
				_ = lease.Unlock(t.Context()) // confirmed or not, as the right matters or not
				w.sleep(2 * time.Second)
				if w.srv.Do("EXISTS", "job") != int64(0) {
					t.Errorf("the server has %v", w.srv.Do("HGETALL", "job"))
				}
				w.sleep(2 * latchLife)
				w.free()
			})
		})
	}
}

// A late release is held up, and the release is given up for lack of a right. The Owner takes no further hold before the late release can
// arrive no more: it would leave as many holds as there were.
func TestHeldUpLateRelease(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		owner := lock.As(c.NewOwner())
		outer, inner := mustLock(t, c, "job", owner), mustLock(t, c, "job", owner, lock.For(3*time.Second))
		w.sleep(2900 * time.Millisecond)
		var late []string
		w.srv.Deny("set")
		w.srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
			switch {
			case late != nil && isScript(cmd, "undo"):
				return fakeredis.Reply("-NOPERM no right to do so\r\n")
			case late == nil && isScript(cmd, "undo"):
				late = slices.Clone(cmd.Args)
				w.srv.Deny()
				return fakeredis.Close()
			}
			return fakeredis.Run()
		})
		wantErr(t, "Unlock()", inner.Unlock(t.Context()), lock.ErrUncertain)
		further := mustLock(t, c, "job", owner)
		w.srv.Intercept(nil)
		w.srv.Do(late...)
		w.wantHolds("job", "3", outer) // with the one given up, which ends with the last
		mustUnlock(t, further)
		mustUnlock(t, outer)
	})
}

// One request of a release is held up while a right is missing. After the release, it ends no further hold of the Owner, whichever it is.
func TestHeldUpRequestsOfARelease(t *testing.T) {
	for _, right := range []string{"hget", "hincrby", "pexpire", "del", "set"} {
		for heldUp := 1; heldUp <= 6; heldUp++ {
			t.Run(fmt.Sprint(right, "/", heldUp), func(t *testing.T) {
				inVirtualTime(t, func(t *testing.T, w *world) {
					c := w.client(lock.Config{})
					owner := lock.As(c.NewOwner())
					outer, inner := mustLock(t, c, "job", owner), mustLock(t, c, "job", owner)
					var late []string
					n := 0
					w.srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
						w.srv.Deny()
						if !isScript(cmd, "release") && !isScript(cmd, "undo") {
							return fakeredis.Run()
						}
						switch n++; {
						case n == heldUp:
							late = slices.Clone(cmd.Args)
							return fakeredis.Close()
						case n < 8:
							w.srv.Deny(right)
						}
						return fakeredis.Run()
					})
					_ = inner.Unlock(t.Context())
					w.sleep(time.Second)
					w.srv.Deny()
					further := mustLock(t, c, "job", owner)
					w.srv.Intercept(nil)
					if late != nil {
						w.srv.Do(late...)
					}
					w.wantHolds("job", "2", outer)
					mustUnlock(t, further)
					mustUnlock(t, outer)
				})
			})
		}
	}
}

// A hold ends, as no renewal has an answer, while the release of another is repeated: its Unlock frees the lock.
func TestUnlockOfAHoldThatEndedDuringARelease(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		owner := lock.As(c.NewOwner())
		outer, inner := mustLock(t, c, "job", owner), mustLock(t, c, "job", owner, lock.For(time.Hour))
		w.srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
			if cmd.Name == "EVALSHA" {
				return fakeredis.RunThenClose()
			}
			return fakeredis.Run()
		})
		w.sleep(25 * time.Second)
		wantErr(t, "Unlock()", inner.Unlock(t.Context()), lock.ErrUncertain)
		w.sleep(15 * time.Second)
		w.srv.Intercept(nil)
		w.sleep(time.Second)
		err := outer.Unlock(t.Context())
		if left := w.srv.Do("HGETALL", "job"); w.srv.Do("EXISTS", "job") != int64(0) {
			t.Errorf("the server has %v after Unlock() = %v", left, err)
		}
	})
}

// While a server answers each release with an error, the Owner's calls go on after the end of the lease: nothing can arrive any more.
func TestTurnBehindARefusedRelease(t *testing.T) {
	for _, refusal := range []string{
		"MISCONF Redis is configured to save RDB snapshots, but it is currently unable to persist on disk",
		"ERR hash value is not an integer script: f, on @user_script:31.",
	} {
		inVirtualTime(t, func(t *testing.T, w *world) {
			c := w.client(lock.Config{})
			owner := lock.As(c.NewOwner())
			lease := mustLock(t, c, "job", owner)
			w.onReleases("reentrant", func(int) fakeredis.Action { return fakeredis.Reply("-" + refusal + "\r\n") })
			wantErr(t, "Unlock()", lease.Unlock(t.Context()), lock.ErrUncertain)
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			next, err := c.Reentrant("job").Lock(ctx, owner)
			if err != nil {
				t.Fatal(err)
			}
			w.srv.Intercept(nil)
			mustUnlock(t, next)
		})
	}
}

// A release held up, of a lock that holds something else by now: without an Owner there is no further hold to wait for, and Close waits
// for none.
func TestHeldUpReleaseOfSomethingElse(t *testing.T) {
	for _, owned := range []bool{false, true} {
		inVirtualTime(t, func(t *testing.T, w *world) {
			c := w.client(lock.Config{})
			var opts []lock.Option
			want := lock.ErrWrongType
			if owned {
				opts, want = []lock.Option{lock.As(c.NewOwner())}, lock.ErrUncertain
			}
			lease := mustHave(t, c.Fair("job"), opts...)
			w.onReleases("fair", func(n int) fakeredis.Action {
				if n == 1 {
					return fakeredis.Close()
				}
				return fakeredis.Reply("-WRONGTYPE Operation against a key holding the wrong kind of value\r\n")
			})
			wantErr(t, "Unlock()", lease.Unlock(t.Context()), want)
			begin := time.Now()
			if err := c.Close(); err != nil || time.Since(begin) > time.Second {
				t.Errorf("Close() = %v after %v, want nil within a second", err, time.Since(begin))
			}
		})
	}
}

// Unlock asks once more after a request without an answer, and not after a refusal: the background has the pauses for that.
func TestUnlockAsksOnceMore(t *testing.T) {
	for what, test := range map[string]struct {
		action fakeredis.Action
		want   time.Duration
	}{
		"refused":   {fakeredis.Delay(time.Second, fakeredis.Reply("-OOM command not allowed\r\n")), time.Second},
		"no answer": {fakeredis.Delay(time.Second, fakeredis.Close()), 2 * time.Second},
	} {
		t.Run(what, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, w *world) {
				lease := mustLock(t, w.client(lock.Config{}), "job")
				w.onReleases("reentrant", func(int) fakeredis.Action { return test.action })
				begin := time.Now()
				wantErr(t, "Unlock()", lease.Unlock(t.Context()), lock.ErrUncertain)
				if took := time.Since(begin).Truncate(time.Second); took != test.want {
					t.Errorf("Unlock took %v, want %v", took, test.want)
				}
				w.srv.Intercept(nil)
				w.sleep(time.Minute)
				w.free()
			})
		})
	}
}

// A renewal without an answer may have extended the lease: a release is repeated until the end that the server then has, and a loss counts
// until then what the server may keep.
func TestReleaseBehindUnansweredRenewals(t *testing.T) {
	for what, test := range map[string]struct {
		renewal fakeredis.Action
		until   time.Duration // of the hold
		kept    bool          // the server may have extended the lease
	}{
		"answers lost, held":      {fakeredis.RunThenClose(), 26 * time.Second, true},
		"answers lost, hold lost": {fakeredis.RunThenClose(), 30 * time.Second, true},
		"answers late":            {fakeredis.Run().Late(time.Minute), 30 * time.Second, true},
		"refused":                 {fakeredis.Reply("-READONLY You can't write against a read only replica.\r\n"), 30 * time.Second, false},
	} {
		t.Run(what, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, w *world) {
				c := w.client(lock.Config{})
				lease := mustLock(t, c, "job")
				lease.Lost() // by a timer of its own
				w.onScript("renew", func(int) fakeredis.Action { return test.renewal })
				w.sleep(test.until)
				if lost, ok := errors.AsType[*lock.LostError](lease.Err()); ok && (lost.Remaining > time.Second) != test.kept {
					t.Errorf("%v: the server may keep the lock for %v", lost, lost.Remaining)
				}
				w.srv.Intercept(nil)
				w.srv.Refuse(true)
				w.srv.KillConns(nil)
				wantErr(t, "Unlock", lease.Unlock(t.Context()), lock.ErrUncertain)
				w.sleep(8 * time.Second)
				w.srv.Refuse(false)
				w.sleep(3 * time.Second)
				w.notTaken("job")
				w.sleep(time.Minute)
				w.free()
			})
		})
	}
}
