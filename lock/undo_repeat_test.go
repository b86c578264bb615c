package lock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/lock"
)

// takesBack has an Owner acquire the lock job, which it holds already, without an answer. on decides about the n-th request that takes the
// acquire back, n from 1, with all rights at first. takesBack returns the option with the Owner, and the hold.
func (w *world) takesBack(c *lock.Client, on func(n int, cmd fakeredis.Cmd) fakeredis.Action) (lock.Option, *lock.Lease) {
	w.t.Helper()
	owner := lock.As(c.NewOwner())
	outer := mustLock(w.t, c, "job", owner)
	n := 0
	w.srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
		w.srv.Deny()
		switch {
		case isScript(cmd, "acquire"):
			return fakeredis.RunThenClose()
		case isScript(cmd, "undo"):
			n++
			return on(n, cmd)
		}
		return fakeredis.Run()
	})
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Millisecond)
	defer cancel()
	if _, err := c.Reentrant("job").Lock(ctx, owner); err == nil {
		w.t.Fatal("the lock was granted without an answer")
	}
	w.sleep(time.Second)
	w.srv.Intercept(nil)
	w.srv.Deny()
	return owner, outer
}

// One request that takes back an acquire is held up while a right is missing. It ends no further hold of the Owner, whichever it is.
func TestHeldUpRequestsOfAnUndo(t *testing.T) {
	for _, right := range []string{"hget", "hset", "pexpire", "set"} {
		for heldUp := 1; heldUp <= 8; heldUp++ {
			t.Run(fmt.Sprint(right, "/", heldUp), func(t *testing.T) {
				inVirtualTime(t, func(t *testing.T, w *world) {
					c := w.client(lock.Config{})
					var late []string
					owner, outer := w.takesBack(c, func(n int, cmd fakeredis.Cmd) fakeredis.Action {
						if n == heldUp {
							late = slices.Clone(cmd.Args)
							return fakeredis.Close()
						}
						if n < 8 {
							w.srv.Deny(right)
						}
						return fakeredis.Run()
					})
					further := mustLock(t, c, "job", owner)
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

// A part of what takes back an acquire has run, and the connection broke before the answer, at the first or at the second request. Its latch does
// not say that the hold has ended.
func TestUndoWithoutTheAnswerOfAPart(t *testing.T) {
	for _, right := range []string{"hget", "hset", "pexpire"} {
		for lost := 1; lost <= 2; lost++ {
			t.Run(fmt.Sprint(right, "/", lost), func(t *testing.T) {
				inVirtualTime(t, func(t *testing.T, w *world) {
					_, outer := w.takesBack(w.client(lock.Config{}), func(n int, _ fakeredis.Cmd) fakeredis.Action {
						if n <= lost {
							w.srv.Deny(right)
						}
						if n == lost {
							return fakeredis.RunThenClose()
						}
						return fakeredis.Run()
					})
					w.wantHolds("job", "1", outer)
					mustUnlock(t, outer)
				})
			})
		}
	}
}

// The same without an Owner, of all kinds.
func TestUndoWithoutTheAnswerOfAPartOfAllKinds(t *testing.T) {
	for _, right := range []string{"hget", "hmget", "hdel", "get"} {
		for _, kind := range kindsWithLeases {
			t.Run(kind+"/"+right, func(t *testing.T) {
				inVirtualTime(t, func(t *testing.T, w *world) {
					c, other := w.client(lock.Config{}), w.client(lock.Config{})
					mine, others := leasedKinds(t, c)[kind], leasedKinds(t, other)[kind]
					mustUnlockOf(t, kind, mine)
					n := 0
					asked := false
					w.srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
						if isAcquire(cmd) {
							asked = true
							return fakeredis.RunThenClose()
						}
						if asked && strings.HasPrefix(cmd.Name, "EVAL") {
							if n++; n == 1 {
								w.srv.Deny(right)
								return fakeredis.RunThenClose()
							}
							w.srv.Deny()
						}
						return fakeredis.Run()
					})
					ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
					defer cancel()
					if lease, err := mine(ctx); err == nil {
						mustUnlock(t, lease)
					}
					w.sleep(2 * time.Second)
					w.srv.Intercept(nil)
					w.srv.Deny()
					w.sleep(2 * time.Second)
					begin := time.Now()
					mustUnlockOf(t, kind+" without "+right, others)
					if took := time.Since(begin); took > 5*time.Second {
						t.Errorf("taken after %v", took)
					}
				})
			})
		}
	}
}

// The first release of an inner hold is refused halfway, the refusal is lost, and the right is there for the repeat.
func TestReleaseWithoutTheAnswerOfAPart(t *testing.T) {
	for kind, of := range severalTimes() {
		for _, right := range []string{"set", "hincrby", "pexpire", "hset", "hget", "publish", "del"} {
			for _, inner := range []int{1, 2} {
				t.Run(fmt.Sprint(kind, "/", right, "/", inner), func(t *testing.T) {
					inVirtualTime(t, func(t *testing.T, w *world) {
						c := w.client(lock.Config{})
						owner := lock.As(c.NewOwner())
						var outer []*lock.Lease
						for range inner {
							outer = append(outer, mustHave(t, of(c), owner))
						}
						l := mustHave(t, of(c), owner)
						w.onReleases(kind, func(n int) fakeredis.Action {
							w.srv.Deny()
							if n == 1 {
								w.srv.Deny(right)
								return fakeredis.RunThenClose()
							}
							return fakeredis.Run()
						})
						err := l.Unlock(t.Context())
						w.sleep(time.Second)
						w.srv.Intercept(nil)
						for _, o := range outer {
							if bad := o.Check(t.Context()); bad != nil {
								t.Errorf("Unlock() = %v; another hold: %v", err, bad)
							}
						}
						for _, o := range outer {
							mustUnlock(t, o)
						}
					})
				})
			}
		}
	}
}

// The undo of a reader's further hold is given up at the end of its lease, and the server counts the hold for as long as the outer one lasts.
// The scripts name the keys of as many holds as the server may count.
func TestReaderUndoGivenUp(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		job, owner := c.ReadWrite("job").Read(), lock.As(c.NewOwner())
		outer := mustHave(t, job, owner, lock.For(5*time.Minute))
		for range 2 {
			w.onScriptOf("read", "acquire", func(int) fakeredis.Action {
				w.srv.Refuse(true)
				return fakeredis.RunThenClose()
			})
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if _, err := job.Lock(ctx, owner, lock.For(2*time.Second)); !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("Lock() = %v", err)
			}
			cancel()
			w.sleep(20 * time.Second) // the lease and the time in which the acquire may arrive
			w.srv.Intercept(nil)
			w.srv.Refuse(false)
			w.sleep(time.Second)
		}
		inner := mustHave(t, job, owner, lock.For(time.Minute))
		if err := errors.Join(outer.Check(t.Context()), inner.Check(t.Context())); err != nil {
			t.Error(err)
		}
		mustUnlock(t, outer)
		w.wantHolds("job", "3", inner)
		mustUnlock(t, inner)
		w.sleep(latchLife)
		w.free()
	})
}
