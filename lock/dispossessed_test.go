package lock_test

import (
	"testing"
	"time"

	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/lock"
)

// An Owner whom the server refuses a further hold has lost those it had: they are lost at once, not at the next renewal.
func TestRefusedOwnerHasLostItsHolds(t *testing.T) {
	for kind, pair := range map[string]func(c *lock.Client) (mine, others *lock.Handle){
		"reentrant": func(c *lock.Client) (mine, others *lock.Handle) {
			return &c.Reentrant("job").Handle, &c.Reentrant("job").Handle
		},
		"fenced": func(c *lock.Client) (mine, others *lock.Handle) {
			return &c.Fenced("job").Handle, &c.Fenced("job").Handle
		},
		"fair": func(c *lock.Client) (mine, others *lock.Handle) { return &c.Fair("job").Handle, &c.Fair("job").Handle },
		"read": func(c *lock.Client) (mine, others *lock.Handle) {
			return &c.ReadWrite("job").Read().Handle, &c.ReadWrite("job").Write().Handle
		},
		"write": func(c *lock.Client) (mine, others *lock.Handle) {
			return &c.ReadWrite("job").Write().Handle, &c.ReadWrite("job").Read().Handle
		},
	} {
		t.Run(kind, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, w *world) {
				c, other := w.client(lock.Config{}), w.client(lock.Config{})
				mine, _ := pair(c)
				_, others := pair(other)
				owner := lock.As(c.NewOwner())
				outer, inner := mustHave(t, mine, owner), mustHave(t, mine, owner)
				w.srv.Do("DEL", "job")
				theirs := mustHave(t, others)
				_, err := mine.TryLock(t.Context(), owner)
				wantErr(t, "TryLock", err, lock.ErrNotAcquired)
				lostBecause(t, outer.Err(), lock.Forced)
				lostBecause(t, inner.Err(), lock.Forced)
				mustUnlock(t, theirs)
			})
		})
	}
}

// An Owner without holds on the server has one again, by an acquire whose answer did not come. The next hold is not one beside the lost ones.
func TestFurtherHoldBesideFewerThanKnown(t *testing.T) {
	for kind, of := range map[string]func(c *lock.Client) *lock.Handle{
		"reentrant": func(c *lock.Client) *lock.Handle { return &c.Reentrant("job").Handle },
		"fair":      func(c *lock.Client) *lock.Handle { return &c.Fair("job").Handle },
	} {
		t.Run(kind, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, w *world) {
				c := w.client(lock.Config{})
				job, owner := of(c), c.NewOwner()
				outer, inner := mustHave(t, job, lock.As(owner)), mustHave(t, job, lock.As(owner))
				w.srv.Do("DEL", "job")
				w.srv.Do("HSET", "job", owner.String(), "1")
				w.srv.Do("PEXPIRE", "job", "30000")
				next := mustHave(t, job, lock.As(owner))
				lostBecause(t, outer.Err(), lock.Forced)
				lostBecause(t, inner.Err(), lock.Forced)
				w.sleep(time.Minute)
				if err := next.Err(); err != nil {
					t.Errorf("Err() = %v", err)
				}
				mustUnlock(t, next)
				w.free()
			})
		})
	}
}

// The same, if the hold is granted too late to be kept.
func TestFurtherHoldThatIsAFirstOneAndTooLate(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		job, owner := c.Reentrant("job"), lock.As(c.NewOwner())
		outer := mustHave(t, job, owner)
		w.srv.Do("DEL", "job")
		w.srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
			if isScript(cmd, "acquire") {
				return fakeredis.Run().Late(time.Second)
			}
			return fakeredis.Run()
		})
		if _, err := job.TryLock(t.Context(), owner, lock.For(100*time.Millisecond)); err == nil {
			t.Error("TryLock succeeds")
		}
		lostBecause(t, outer.Err(), lock.Forced)
		w.free()
	})
}

// A hold of an Owner whose other holds are lost, and who has the lock again by an acquire without an answer, has a token of its own.
func TestTokenBehindAnothersToken(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c, other := w.client(lock.Config{}), w.client(lock.Config{})
		job, owner := c.Fenced("job"), lock.As(c.NewOwner())
		outer, inner := mustHave(t, job, owner), mustHave(t, job, owner)
		if inner.Token() != outer.Token() {
			t.Errorf("tokens %d and %d of one Owner", outer.Token(), inner.Token())
		}
		w.srv.Do("DEL", "job")
		theirs := mustHave(t, other.Fenced("job"))
		mustUnlock(t, theirs)
		w.srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
			if isScriptOf("fenced", cmd, "acquire") {
				return fakeredis.RunThenClose()
			}
			return fakeredis.Run()
		})
		if _, err := job.TryLock(t.Context(), owner); err == nil {
			t.Error("TryLock succeeds without an answer")
		}
		w.srv.Intercept(nil)
		w.sleep(time.Second)
		next := mustHave(t, job, owner)
		if next.Token() <= theirs.Token() {
			t.Errorf("token %d behind %d", next.Token(), theirs.Token())
		}
		mustUnlock(t, next)
	})
}

// The only other hold of an Owner in the same case is told lost, also if the server counts as many holds as the client.
func TestOuterHoldBehindAnothersToken(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c, other := w.client(lock.Config{}), w.client(lock.Config{})
		job, owner := c.Fenced("job"), c.NewOwner()
		outer := mustHave(t, job, lock.As(owner))
		w.srv.Do("DEL", "job")
		theirs := mustHave(t, other.Fenced("job"))
		mustUnlock(t, theirs)
		w.srv.Do("HSET", "job", owner.String(), "1")
		w.srv.Do("PEXPIRE", "job", "30000")
		next := mustHave(t, job, lock.As(owner))
		lostBecause(t, outer.Err(), lock.Forced)
		if next.Token() <= theirs.Token() {
			t.Errorf("token %d behind %d", next.Token(), theirs.Token())
		}
		w.sleep(time.Minute)
		mustUnlock(t, next)
		w.srv.Do("DEL", jobToken)
		w.free()
	})
}

// A hold with a token of its own that is granted too late changes nothing for the hold beside it, even if another server then counts on.
func TestTokenOfAHoldThatComesTooLate(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		owner := lock.As(c.NewOwner())
		outer := mustHave(t, c.Reentrant("job"), owner)
		w.srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
			if isScriptOf("fenced", cmd, "acquire") {
				return fakeredis.Run().Late(time.Second)
			}
			return fakeredis.Run()
		})
		if _, err := c.Fenced("job").TryLock(t.Context(), owner, lock.For(100*time.Millisecond)); err == nil {
			t.Error("TryLock succeeds")
		}
		w.srv.Intercept(nil)
		w.sleep(time.Second)
		w.srv.Do("SET", jobToken, "1")
		inner := mustHave(t, c.Fenced("job"), owner)
		if err := outer.Err(); err != nil {
			t.Errorf("Err() of the outer hold = %v", err)
		}
		mustUnlock(t, inner)
		mustUnlock(t, outer)
	})
}

// Holds share a token also after the end of the counter: nobody else has drawn one since.
func TestTokenOfHoldsThatOutlastTheCounter(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{TokenLife: time.Hour})
		owner := lock.As(c.NewOwner())
		outer := mustHave(t, c.Fenced("job"), owner)
		w.sleep(2 * time.Hour)
		inner := mustHave(t, c.Fenced("job"), owner)
		if inner.Token() != outer.Token() || outer.Err() != nil {
			t.Errorf("tokens %d and %d of one Owner, Err() = %v", outer.Token(), inner.Token(), outer.Err())
		}
		mustUnlock(t, inner)
		mustUnlock(t, outer)
		if next := mustHave(t, c.Fenced("job")); next.Token() <= outer.Token() {
			t.Errorf("token %d behind %d", next.Token(), outer.Token())
		}
	})
}

// An Owner that is refused one half of a read-write lock, or granted the write lock as its first hold, has lost its holds of the other half.
func TestHoldsOfTheOtherHalf(t *testing.T) {
	read := func(c *lock.Client) *lock.Handle { return &readHalf(c, "job").Handle }
	write := func(c *lock.Client) *lock.Handle { return &writeHalf(c, "job").Handle }
	for name, test := range map[string]struct {
		held, asked func(c *lock.Client) *lock.Handle
		taken       bool // by another
	}{
		"reading, refused to write": {read, write, true},
		"writing, refused to read":  {write, read, true},
		"reading, granted to write": {read, write, false},
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, w *world) {
				c, other := w.client(lock.Config{}), w.client(lock.Config{})
				owner := lock.As(c.NewOwner())
				outer := mustHave(t, test.held(c), owner)
				w.srv.Do("DEL", "job")
				if test.taken {
					mustHave(t, write(other))
				}
				inner, err := test.asked(c).TryLock(t.Context(), owner)
				if (err != nil) != test.taken {
					t.Fatalf("TryLock() = %v", err)
				}
				lostBecause(t, outer.Err(), lock.Forced)
				if inner != nil {
					mustUnlock(t, inner)
				}
			})
		})
	}
}

// A further hold that no replica acknowledges is a first one: the other holds are lost, and the lock is free.
func TestFurtherHoldThatIsAFirstOneAndNotAcknowledged(t *testing.T) {
	for kind, of := range map[string]func(c *lock.Client) *lock.Handle{
		"reentrant": func(c *lock.Client) *lock.Handle { return &c.Reentrant("job").Handle },
		"fair":      func(c *lock.Client) *lock.Handle { return &c.Fair("job").Handle },
		"read":      func(c *lock.Client) *lock.Handle { return &readHalf(c, "job").Handle },
		"write":     func(c *lock.Client) *lock.Handle { return &writeHalf(c, "job").Handle },
		"group":     func(c *lock.Client) *lock.Handle { return &c.FasterMulti("job", "1", "2").Handle },
	} {
		t.Run(kind, func(t *testing.T) {
			inShard(t, lock.Config{}, func(t *testing.T, w *world, r *replicated, c *lock.Client) {
				r.tell(func(r *replicated) { r.heirs.Replicas = 1 })
				w.srv.Replicas(1)
				job, owner := of(c), lock.As(c.NewOwner())
				outer := mustHave(t, job, owner)
				w.srv.Replicas(0)
				_, err := job.TryLock(t.Context(), owner)
				wantErr(t, "TryLock() of a well hold", err, lock.ErrNotReplicated)
				if err := outer.Err(); err != nil {
					t.Errorf("Err() of a well hold = %v", err)
				}
				w.sleep(time.Second)
				w.srv.Do("DEL", "job")
				_, err = job.TryLock(t.Context(), owner)
				wantErr(t, "TryLock()", err, lock.ErrNotReplicated)
				lostBecause(t, outer.Err(), lock.Forced)
				w.sleep(time.Second)
				if w.srv.Do("EXISTS", "job") != int64(0) {
					t.Error("the lock is taken")
				}
				w.sleep(latchLife)
			})
		})
	}
}
