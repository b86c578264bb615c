package lock_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/lock"
)

// formerMaster has the next script confirmed by a master before its replica, which takes its place, hears of the script.
func (w *world) formerMaster(r *replicated, do func()) {
	w.confirm(do)
	w.replace(r)
}

// confirm has the server confirm the next script without running it.
func (w *world) confirm(do func()) {
	asked := false
	w.srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
		if asked || !strings.HasPrefix(cmd.Name, "EVAL") {
			return fakeredis.Run()
		}
		asked = true
		return fakeredis.Reply(":1\r\n")
	})
	do()
	w.srv.Intercept(nil)
}

// replace has a replica with all data take the place of the server.
func (w *world) replace(r *replicated) {
	r.tell(func(r *replicated) { r.heirs.Addr += "0" })
	w.srv.RestartWithData()
}

// A master confirms a release and is replaced before a replica knows. The next master hears of the release a moment later.
func TestReleaseUnknownToTheNextMaster(t *testing.T) {
	for name, take := range heldBack() {
		t.Run(name, func(t *testing.T) {
			inShard(t, lock.Config{}, func(t *testing.T, w *world, r *replicated, c *lock.Client) {
				r.tell(func(r *replicated) { r.heirs.Bare = true })
				for _, set := range []func(context.Context, int) (bool, error){c.Semaphore("semaphore").TrySetPermits, c.PermitSemaphore("permits").TrySetPermits} {
					if _, err := set(t.Context(), 1); err != nil {
						t.Fatal(err)
					}
				}
				give, err := take(t.Context(), c)
				if err != nil {
					t.Fatal(err)
				}
				w.formerMaster(r, func() {
					if err := give(t.Context()); err != nil {
						t.Errorf("the release = %v", err)
					}
				})
				w.sleep(2 * time.Second)
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				other := w.client(lock.Config{})
				if name == "Read" { // readers share the lock
					lease, err := other.ReadWrite("read").Write().Lock(ctx)
					if err != nil {
						t.Fatal(err)
					}
					mustUnlock(t, lease)
					return
				}
				if give, err = take(ctx, other); err != nil {
					t.Fatal(err)
				}
				if err := give(t.Context()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// A former master confirms that it has taken back a lock for which it had too few replicas, and the next master has the lock.
func TestUndoUnknownToTheNextMaster(t *testing.T) {
	for kind, of := range map[string]func(c *lock.Client) goldenLock{
		"reentrant": func(c *lock.Client) goldenLock { return c.Reentrant("job") },
		"fair":      func(c *lock.Client) goldenLock { return c.Fair("job") },
	} {
		t.Run(kind, func(t *testing.T) {
			inShard(t, lock.Config{}, func(t *testing.T, w *world, r *replicated, c *lock.Client) {
				r.tell(func(r *replicated) { r.heirs.Replicas = 1 })
				w.srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
					if strings.HasPrefix(cmd.Name, "EVAL") && !isScriptOf(kind, cmd, "acquire") {
						return fakeredis.Reply(":1\r\n")
					}
					return fakeredis.Run()
				})
				if _, err := of(c).TryLock(t.Context()); !errors.Is(err, lock.ErrNotReplicated) {
					t.Fatalf("TryLock() = %v", err)
				}
				w.sleep(100 * time.Millisecond)
				w.srv.Intercept(nil)
				w.srv.RestartWithData()
				w.sleep(2 * time.Second)
				if keys := w.srv.Keys(); len(keys) != 0 {
					t.Errorf("the lock is taken by nobody: %v", keys)
				}
			})
		})
	}
}

// A count that goes down at a former master goes down at the next one, too, once.
func TestCountUnknownToTheNextMaster(t *testing.T) {
	for _, unknown := range []bool{true, false} {
		inShard(t, lock.Config{}, func(t *testing.T, w *world, r *replicated, c *lock.Client) {
			latch, permits := c.CountDownLatch("latch"), c.Semaphore("semaphore")
			if _, err := latch.TrySetCount(t.Context(), 5); err != nil {
				t.Fatal(err)
			}
			if _, err := permits.TrySetPermits(t.Context(), 0); err != nil {
				t.Fatal(err)
			}
			change := func(do func()) { w.formerMaster(r, do) }
			if !unknown {
				change = func(do func()) { do(); w.replace(r) }
			}
			for range 2 { // losses soon after each other
				change(func() {
					if err := latch.CountDown(t.Context()); err != nil {
						t.Error(err)
					}
				})
				change(func() {
					if err := permits.Release(t.Context(), 1); err != nil {
						t.Error(err)
					}
				})
				w.sleep(time.Second)
			}
			w.replace(r)
			w.sleep(time.Minute)
			if n, err := latch.Count(t.Context()); n != 3 || err != nil {
				t.Errorf("Count() = %d, %v; want 3", n, err)
			}
			if n, err := permits.Available(t.Context()); n != 2 || err != nil {
				t.Errorf("Available() = %d, %v; want 2", n, err)
			}
			if keys := w.srv.Keys(); len(keys) != 2 {
				t.Errorf("the server has %v; want no latch", keys)
			}
		})
	}
}

// A master dies, or hangs, soon after it has confirmed a count, and is replaced a quarter of a minute later.
func TestCountUnknownAfterASlowFailover(t *testing.T) {
	for _, dies := range []bool{true, false} {
		inShard(t, lock.Config{}, func(t *testing.T, w *world, r *replicated, c *lock.Client) {
			permits := c.Semaphore("semaphore")
			if _, err := permits.TrySetPermits(t.Context(), 0); err != nil {
				t.Fatal(err)
			}
			w.confirm(func() {
				if err := permits.Release(t.Context(), 1); err != nil {
					t.Error(err)
				}
			})
			if dies {
				w.srv.RestartWithData()
			}
			w.sleep(15 * time.Second)
			if err := c.CountDownLatch("latch").CountDown(t.Context()); err != nil {
				t.Error(err)
			}
			w.replace(r)
			w.sleep(time.Minute)
			if n, err := permits.Available(t.Context()); n != 1 || err != nil {
				t.Errorf("the master died %v: Available() = %d, %v; want 1", dies, n, err)
			}
		})
	}
}

// After a failover nobody says for ten seconds which server is the master. The master gets the change nevertheless.
func TestCountWithoutSentinelsForAWhile(t *testing.T) {
	inShard(t, lock.Config{}, func(t *testing.T, w *world, r *replicated, c *lock.Client) {
		permits := c.Semaphore("semaphore")
		if _, err := permits.TrySetPermits(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		w.formerMaster(r, func() {
			if err := permits.Release(t.Context(), 1); err != nil {
				t.Error(err)
			}
			r.tell(func(r *replicated) { r.err = errors.New("no sentinel") })
		})
		w.sleep(10 * time.Second)
		r.tell(func(r *replicated) { r.err = nil })
		w.sleep(time.Minute)
		if n, err := permits.Available(t.Context()); n != 1 || err != nil {
			t.Errorf("Available() = %d, %v; want 1", n, err)
		}
	})
}

// A client changes to a former master and back within a request. The former master has confirmed the change, and the master does not know it.
func TestCountConfirmedByAFormerMaster(t *testing.T) {
	inShard(t, lock.Config{}, func(t *testing.T, w *world, r *replicated, c *lock.Client) {
		permits := c.Semaphore("semaphore")
		if _, err := permits.TrySetPermits(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		w.confirm(func() {
			if err := permits.Release(t.Context(), 1); err != nil {
				t.Error(err)
			}
		})
		r.tell(func(r *replicated) { r.heirs.Changes += 2 })
		w.srv.RestartWithData()
		w.sleep(time.Minute)
		if n, err := permits.Available(t.Context()); n != 1 || err != nil {
			t.Errorf("Available() = %d, %v; want 1", n, err)
		}
	})
}

// A server that has lost its data gets no change again: it does not know the latch either.
func TestCountOfALostServer(t *testing.T) {
	inShard(t, lock.Config{}, func(t *testing.T, w *world, _ *replicated, c *lock.Client) {
		permits := c.Semaphore("semaphore")
		set := func() {
			if _, err := permits.TrySetPermits(t.Context(), 0); err != nil {
				t.Fatal(err)
			}
		}
		set()
		if err := permits.Release(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		w.srv.Restart()
		set()
		w.sleep(10 * time.Second)
		if n, err := permits.Available(t.Context()); n != 0 || err != nil {
			t.Errorf("Available() = %d, %v; want 0", n, err)
		}
	})
}

// A master that has a change from the repetition, and then loses its data, gets the change no more.
func TestCountOfALostSuccessor(t *testing.T) {
	inShard(t, lock.Config{}, func(t *testing.T, w *world, r *replicated, c *lock.Client) {
		permits := c.Semaphore("semaphore")
		set := func() {
			if _, err := permits.TrySetPermits(t.Context(), 0); err != nil {
				t.Fatal(err)
			}
		}
		set()
		w.formerMaster(r, func() {
			if err := permits.Release(t.Context(), 1); err != nil {
				t.Error(err)
			}
		})
		w.sleep(2 * time.Second)
		if n, err := permits.Available(t.Context()); n != 1 || err != nil {
			t.Errorf("Available() = %d, %v; want 1", n, err)
		}
		w.srv.Restart()
		set()
		w.sleep(10 * time.Second)
		if n, err := permits.Available(t.Context()); n != 0 || err != nil {
			t.Errorf("after the loss, Available() = %d, %v; want 0", n, err)
		}
	})
}

// A Close does not wait for what the server has confirmed, and is sent again.
func TestCloseBesideConfirmedWork(t *testing.T) {
	inShard(t, lock.Config{}, func(t *testing.T, w *world, r *replicated, c *lock.Client) {
		r.tell(func(r *replicated) { r.heirs.Bare = true })
		lease, err := c.Reentrant("job").TryLock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		mustUnlock(t, lease)
		if err := c.Semaphore("semaphore").Release(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		w.replace(r)
		w.srv.Intercept(func(fakeredis.Cmd) fakeredis.Action { return fakeredis.Reply("-LOADING the server is not ready\r\n") })
		w.sleep(2 * time.Second)
		began := time.Now()
		if err := c.CloseContext(context.Background()); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > 11*time.Second {
			t.Errorf("CloseContext() took %v", took)
		}
	})
}

// A former master confirms the release of a reader's hold. The next one knows of the hold until its lease ends, and the same Owner waits to write.
func TestWriteBehindAReleaseUnknownToTheNextMaster(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		owner := lock.As(c.NewOwner())
		reader := mustRead(t, c, owner)
		w.confirm(func() { mustUnlock(t, reader) })
		_, err := c.ReadWrite("job").Write().TryLock(t.Context(), owner)
		wantErr(t, "TryLock()", err, lock.ErrNotAcquired)
		began := time.Now()
		writer := mustWrite(t, c, owner)
		if took := time.Since(began); took > 35*time.Second {
			t.Errorf("Lock took %v", took)
		}
		mustUnlock(t, writer)
		w.free()
	})
}

// A former master takes back a downgrade without an answer before its replica hears of that. The replica, as the next master, does not keep the
// hold, whichever it knows.
func TestDowngradeTakenBackUnknownToTheNextMaster(t *testing.T) {
	for what, action := range map[string]fakeredis.Action{"read": fakeredis.RunThenClose(), "write": fakeredis.Close()} {
		t.Run(what, func(t *testing.T) {
			inShard(t, lock.Config{}, func(t *testing.T, w *world, r *replicated, c *lock.Client) {
				r.tell(func(r *replicated) { r.heirs.Bare = true })
				write := mustWrite(t, c)
				w.srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
					switch {
					case isScriptOf("write", cmd, "downgrade"):
						return action
					case strings.HasPrefix(cmd.Name, "EVAL"):
						return fakeredis.Reply(":1\r\n")
					}
					return fakeredis.Run()
				})
				_, err := write.Downgrade(t.Context())
				wantErr(t, "Downgrade", err, lock.ErrUncertain)
				w.sleep(100 * time.Millisecond)
				w.srv.Intercept(nil)
				w.replace(r)
				w.sleep(2 * time.Second)
				if _, taken := w.srv.Key("job"); taken {
					t.Errorf("the lock is taken by nobody, for %v", w.ttl("job"))
				}
			})
		})
	}
}
