package lock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/lock"
)

// keptKinds are locks named job, of every kind whose locks can outlast their release.
func keptKinds(c *lock.Client) map[string]*lock.Handle {
	return map[string]*lock.Handle{
		"reentrant":    &c.Reentrant("job").Handle,
		"nonreentrant": &c.NonReentrant("job").Handle,
		"spin":         &c.Spin("job", lock.Backoff{}).Handle,
		"fenced":       &c.Fenced("job").Handle,
		"plain":        &c.Plain("job").Handle,
	}
}

// wantFree waits until the lock is free by itself, which has to be after so long.
func (w *world) wantFree(job *lock.Handle, after time.Duration) {
	w.t.Helper()
	w.sleep(after - time.Millisecond)
	_, err := job.TryLock(w.t.Context())
	wantErr(w.t, "TryLock just before", err, lock.ErrNotAcquired)
	w.sleep(2 * time.Millisecond)
	lease, err := job.TryLock(w.t.Context())
	if err != nil {
		w.t.Fatalf("TryLock() = %v after the time, and the lock stays for %v", err, w.ttl("job"))
	}
	mustUnlock(w.t, lease)
}

// Unlock before the time leaves the lock taken for the rest, for shorter or longer than its lease; later it frees the lock.
func TestAtLeast(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c, other := w.client(lock.Config{}), w.client(lock.Config{})
		theirs := keptKinds(other)
		for kind, job := range keptKinds(c) {
			for _, test := range []struct {
				least time.Duration
				opts  []lock.Option
			}{
				{10 * time.Second, nil},
				{2 * time.Minute, nil},
				{10 * time.Second, []lock.Option{lock.For(time.Minute)}},
				{time.Minute, []lock.Option{lock.For(time.Minute)}},
			} {
				lease, err := job.TryLock(t.Context(), append(test.opts, lock.AtLeast(test.least))...)
				if err != nil {
					t.Fatal(kind, err)
				}
				w.sleep(3 * time.Second)
				mustUnlock(t, lease)
				wantErr(t, "Err", lease.Err(), lock.ErrReleased)
				if left := w.ttl("job"); left != test.least-3*time.Second || len(c.Held()) > 0 {
					t.Errorf("%s: %v left of %v after 3 s, held: %v", kind, left, test.least, c.Held())
				}
				if _, err := job.TryLock(t.Context()); !errors.Is(err, lock.ErrNotAcquired) {
					t.Errorf("%s: TryLock() in the same process = %v", kind, err)
				}
				info, err := theirs[kind].Info(t.Context())
				if err != nil || len(info.Holders) != 1 || info.Holders[0].Owner == lease.Owner() {
					t.Errorf("%s: Info() = %+v, %v", kind, info, err)
				}
				mustUnlock(t, lease) // again, which changes nothing
				w.wantFree(theirs[kind], test.least-3*time.Second)

				if lease, err = job.TryLock(t.Context(), lock.AtLeast(10*time.Second)); err != nil {
					t.Fatal(kind, err)
				}
				w.sleep(10 * time.Second)
				mustUnlock(t, lease)
				if left := w.srv.Do("EXISTS", "job"); left != int64(0) {
					t.Errorf("%s: the lock is taken after the time", kind)
				}
			}
		}
		w.sleep(latchLife)
		w.srv.Do("DEL", "redisson_lock_token:{job}")
		w.free()
	})
}

// What cannot be kept is refused at once.
func TestAtLeastInvalid(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c, strict := w.client(lock.Config{}), w.client(lock.Config{AtMost: time.Second})
		multi, err := lock.NewMulti(c.Reentrant("a"), c.Reentrant("b"))
		if err != nil {
			t.Fatal(err)
		}
		red, err := lock.NewRedlock(lock.RedlockConfig{Quarantine: -1}, c.Reentrant("r"), w.client(lock.Config{}).Reentrant("r2"), w.client(lock.Config{}).Reentrant("r3"))
		if err != nil {
			t.Fatal(err)
		}
		least := lock.AtLeast(2 * time.Second)
		for what, lockIt := range map[string]func() (*lock.Lease, error){
			"a fair lock":  func() (*lock.Lease, error) { return c.Fair("job").TryLock(t.Context(), least) },
			"a read lock":  func() (*lock.Lease, error) { return c.ReadWrite("job").Read().TryLock(t.Context(), least) },
			"a write lock": func() (*lock.Lease, error) { return c.ReadWrite("job").Write().TryLock(t.Context(), least) },
			"permits":      func() (*lock.Lease, error) { return c.PermitSemaphore("job").TryAcquire(t.Context(), least) },
			"a Multi":      func() (*lock.Lease, error) { return multi.TryLock(t.Context(), least) },
			"a Redlock":    func() (*lock.Lease, error) { return red.TryLock(t.Context(), least) },
			"an Owner": func() (*lock.Lease, error) {
				return c.Reentrant("job").TryLock(t.Context(), least, lock.As(c.NewOwner()))
			},
			"a short lease": func() (*lock.Lease, error) {
				return c.Reentrant("job").TryLock(t.Context(), least, lock.For(time.Second))
			},
			"a short limit": func() (*lock.Lease, error) { return strict.Reentrant("job").TryLock(t.Context(), least) },
			"less than nothing": func() (*lock.Lease, error) {
				return c.Reentrant("job").TryLock(t.Context(), lock.AtLeast(-1))
			},
		} {
			if lease, err := lockIt(); !errors.Is(err, lock.ErrInvalid) {
				t.Errorf("TryLock() of %s = %v, %v, want ErrInvalid", what, lease, err)
			}
		}
		mustUnlock(t, mustLock(t, c, "job", lock.AtLeast(0)))
		for _, l := range []interface {
			TryLock(context.Context, ...lock.Option) (*lock.Lease, error)
		}{multi, c.Fair("job")} {
			lease, err := l.TryLock(t.Context(), lock.AtLeast(0))
			if err != nil {
				t.Fatal(err)
			}
			mustUnlock(t, lease)
		}
		w.free()
	})
}

// Who waits gets the lock at the end of the time, and not before: in another process, where a message tells that the lease is shorter
// now, and in the same.
func TestAtLeastWaiters(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		for _, same := range []bool{false, true} {
			for name, fixed := range map[string][]lock.Option{"renewed": nil, "fixed": {lock.For(time.Minute)}} {
				c := w.client(long)
				waiting := c
				if !same {
					waiting = w.client(lock.Config{})
					waiting.OnlyWoken() // by a message
				}
				begin := time.Now()
				lease := mustLock(t, c, "job", append(fixed, lock.AtLeast(5*time.Second))...)
				got := make(chan *lock.Lease)
				go func() { got <- mustLock(t, waiting, "job", fixed...) }()
				w.sleep(time.Second)
				looks := w.srv.Count("EVALSHA")
				mustUnlock(t, lease)
				synctest.Wait()
				if n := w.srv.Count("EVALSHA") - looks; n != 2 {
					t.Errorf("%s: %d scripts at the Unlock, want the release and a look", name, n)
				}
				if !same {
					w.sleep(4*time.Second + 10*time.Millisecond)
					w.srv.Do("PUBLISH", jobChannel, "0") // an OnlyWoken client looks at no other time
				}
				next := <-got
				if took := time.Since(begin); took < 5*time.Second || took > 5200*time.Millisecond {
					t.Errorf("%s, same process %v: the waiter has the lock after %v, want 5 s", name, same, took)
				}
				mustUnlock(t, next)
			}
		}
		w.sleep(latchLife)
		w.free()
	})
}

// After the time the lock passes on within the process, as any other.
func TestAtLeastIsHandedOverAfterwards(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(long)
		lease := mustLock(t, c, "job", lock.AtLeast(time.Second))
		got := make(chan *lock.Lease)
		go func() { got <- mustLock(t, c, "job", lock.AtLeast(time.Second)) }()
		w.sleep(2 * time.Second)
		mustUnlock(t, lease)
		next := <-got
		if next.Owner() != lease.Owner() {
			t.Error("the lock was not relayed")
		}
		w.sleep(400 * time.Millisecond)
		mustUnlock(t, next)
		w.wantFree(&c.Reentrant("job").Handle, 600*time.Millisecond)
		w.free()
	})
}

// A process that keeps the lock leaves no place in the line of waiting processes.
func TestAtLeastLeavesTheLine(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(long)
		before := mustLock(t, w.client(lock.Config{}), "job")
		got := make(chan *lock.Lease)
		for range 2 {
			go func() { got <- mustLock(t, c, "job", lock.AtLeast(10*time.Second)) }()
			synctest.Wait()
		}
		mustUnlock(t, before)
		lease := <-got
		w.sleep(10 * time.Second)
		mustUnlock(t, lease)
		lease = <-got
		if n := w.srv.Do("ZCARD", "lockwire_line:{job}"); n != int64(1) {
			t.Fatalf("%v places in the line, want that of the process", n)
		}
		mustUnlock(t, lease)
		w.sleep(time.Second)
		if n := w.srv.Do("ZCARD", "lockwire_line:{job}"); n != int64(0) {
			t.Errorf("%v places are left in the line", n)
		}
		w.wantFree(&c.Reentrant("job").Handle, 9*time.Second)
		w.free()
	})
}

// A release without an answer is repeated, and keeps the lock for the rest at the time of the repeat.
func TestAtLeastWithoutAnAnswer(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		for kind, job := range keptKinds(c) {
			for name, action := range map[string]fakeredis.Action{"executed": fakeredis.RunThenClose(), "lost": fakeredis.Close()} {
				const least = 28 * time.Second
				lease, err := job.TryLock(t.Context(), lock.AtLeast(least))
				if err != nil {
					t.Fatal(kind, err)
				}
				w.onScriptOf(kind, "keep", first(action))
				mustUnlock(t, lease)
				w.srv.Intercept(nil)
				if left := w.ttl("job"); left != least {
					t.Errorf("%s, %s: %v left, want %v", kind, name, left, least)
				}
				w.wantFree(job, least)

				// Again, and the server is away until the background repeats the release: soon, when the latch may have expired, or too late.
				for _, away := range []time.Duration{4 * time.Second, 24 * time.Second, 29 * time.Second} {
					if lease, err = job.TryLock(t.Context(), lock.AtLeast(least)); err != nil {
						t.Fatal(kind, err)
					}
					begin := time.Now()
					w.onScriptOf(kind, "keep", func(n int) fakeredis.Action {
						if n == 1 {
							w.srv.Refuse(true)
							w.srv.KillConns(nil)
							return action
						}
						return fakeredis.Run()
					})
					time.AfterFunc(away, func() { w.srv.Refuse(false) })
					_ = lease.Unlock(t.Context()) // nil, or ErrUncertain
					w.sleep(time.Until(begin.Add(least - 100*time.Millisecond)))
					if w.srv.Do("EXISTS", "job") != int64(1) {
						t.Errorf("%s, %s, away for %v: the lock is free before its time", kind, name, away)
					}
					w.sleep(time.Until(begin.Add(least + 5*time.Second)))
					if w.srv.Do("EXISTS", "job") != int64(0) {
						t.Errorf("%s, %s, away for %v: the lock stays for %v", kind, name, away, w.ttl("job"))
					}
					w.srv.Intercept(nil)
				}
			}
		}
		w.sleep(5 * time.Minute)
		w.srv.Do("DEL", "redisson_lock_token:{job}")
		w.free()
	})
}

// Requests that arrive late change nothing of a lock that is kept, or is free or somebody else's since.
func TestAtLeastAndLateRequests(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c, other := w.client(lock.Config{}), w.client(lock.Config{})
		for kind, job := range keptKinds(c) {
			for _, operation := range []string{"renew", "keep"} {
				held := w.holdUp(kind, operation)
				lease, err := job.TryLock(t.Context(), lock.AtLeast(15*time.Second))
				if err != nil {
					t.Fatal(kind, err)
				}
				w.sleep(11 * time.Second) // it was renewed
				mustUnlock(t, lease)
				args := held()
				w.sleep(time.Second)
				w.srv.Do(args...)
				if left := w.ttl("job"); left != 3*time.Second {
					t.Errorf("%s: %v left after a late %s, want 3 s", kind, left, operation)
				}
				w.sleep(3*time.Second + time.Millisecond)
				theirs, err := keptKinds(other)[kind].TryLock(t.Context())
				if err != nil {
					t.Fatal(kind, err)
				}
				w.srv.Do(args...)
				if left := w.ttl("job"); left != 30*time.Second || theirs.Check(t.Context()) != nil {
					t.Errorf("%s: a late %s has changed the lock of another owner", kind, operation)
				}
				mustUnlock(t, theirs)
			}
		}
		w.sleep(latchLife)
		w.srv.Do("DEL", "redisson_lock_token:{job}")
		w.free()
	})
}

// A keep that was on its way for so long that its rest would be wrong keeps nothing.
func TestAtLeastTooLate(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.clientOn(conn.Config{Timeout: -1}, lock.Config{})
		lease := mustLock(t, c, "job", lock.AtLeast(20*time.Second))
		w.onScript("keep", first(fakeredis.Delay(8*time.Second, fakeredis.Run())))
		mustUnlock(t, lease)
		if left := w.ttl("job"); left != 12*time.Second {
			t.Errorf("%v left, want 12 s", left)
		}
		w.sleep(12 * time.Second)
		w.free()
	})
}

// A lock that was lost is not kept, unless the server still has it.
func TestAtLeastOfALostLock(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		lease := mustLock(t, c, "job", lock.AtLeast(time.Minute))
		if forced, err := c.Reentrant("job").ForceUnlock(t.Context()); !forced || err != nil {
			t.Fatal(forced, err)
		}
		wantErr(t, "Unlock", lease.Unlock(t.Context()), lock.ErrNotHeld)
		w.free()

		lease = mustLock(t, c, "job", lock.AtLeast(time.Minute))
		mustUnlock(t, lease)
		if forced, err := c.Reentrant("job").ForceUnlock(t.Context()); !forced || err != nil {
			t.Errorf("ForceUnlock() = %v, %v, want the lock that is kept", forced, err)
		}

		lease = mustLock(t, c, "job", lock.AtLeast(time.Minute), lock.AtMost(time.Minute))
		w.sleep(59 * time.Second)
		mustUnlock(t, lease)
		w.wantFree(&c.Reentrant("job").Handle, time.Second)
		w.free()
	})
}

// Waiters of other processes learn of a hand-over to a caller with a much shorter lease: they get the lock at the end of that lease,
// though nobody releases it.
func TestHandOverToAShorterLease(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c, other := w.client(long), w.client(lock.Config{})
		first := mustLock(t, c, "job", lock.For(time.Minute))
		start := time.Now()
		got := make(chan *lock.Lease, 2)
		wait := func(c *lock.Client, lease time.Duration) {
			l, err := c.Reentrant("job").Lock(t.Context(), lock.For(lease))
			if err != nil {
				t.Error(err)
			}
			got <- l
		}
		go wait(c, 2*time.Second)
		w.sleep(100 * time.Millisecond)
		go wait(other, time.Minute)
		w.sleep(100 * time.Millisecond)
		mustUnlock(t, first)
		if heir := <-got; time.Until(heir.ValidUntil()) > 2*time.Second {
			t.Fatal("the lock was not handed over")
		}
		next := <-got
		if waited := time.Since(start); waited > 3*time.Second {
			t.Errorf("the lock was free, and the waiter of the other process got it after %v", waited)
		}
		mustUnlock(t, next)
	})
}

// So do waiters of Redisson, which ignore the message of a lease that has become shorter while its owner keeps the lock.
func TestHandOverToAShorterLeaseBesideVisitors(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(long)
		first := mustLock(t, c, "job", lock.For(time.Minute))
		got := make(chan *lock.Lease, 1)
		go func() { got <- mustLock(t, c, "job", lock.For(2*time.Second)) }()
		told, leave := w.visits(t, jobChannel)
		w.sleep(100 * time.Millisecond)
		mustUnlock(t, first)
		heir := <-got
		if time.Until(heir.ValidUntil()) > 2*time.Second || w.ttl("job") > 2*time.Second {
			t.Fatal("the lock was not handed over")
		}
		w.sleep(100 * time.Millisecond)
		if got := told(); got != "[0]" {
			t.Errorf("visitors are told %v, want [0]", got)
		}
		leave()
		mustUnlock(t, heir)
		w.sleep(26 * time.Second)
		w.free()
	})
}
