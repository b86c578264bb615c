package lock_test

import (
	"context"
	"errors"
	"iter"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/lock"
	"github.com/lockwire/lockwire/lock/internal/kinds"
)

func newMulti(t testing.TB, members ...lock.Member) *lock.Multi {
	t.Helper()
	m, err := lock.NewMulti(members...)
	if err != nil {
		t.Fatalf("NewMulti() = %v", err)
	}
	return m
}

// reentrants are the locks of a client with these names.
func reentrants(c *lock.Client, names ...string) []lock.Member {
	var list []lock.Member
	for _, name := range names {
		list = append(list, c.Reentrant(name))
	}
	return list
}

func lockMulti(t *testing.T, m *lock.Multi, opts ...lock.Option) *lock.Lease {
	t.Helper()
	lease, err := m.Lock(t.Context(), opts...)
	if err != nil {
		t.Fatalf("Lock() = %v", err)
	}
	return lease
}

func TestMultiOfKindsAndServers(t *testing.T) {
	inFleet(t, 2, func(t *testing.T, f fleet) {
		a, b := f[0].client(lock.Config{}), f[1].client(lock.Config{})
		m := newMulti(t, b.Spin("d", lock.Backoff{}), a.Fenced("b"), b.Reentrant("a"), a.NonReentrant("c"), b.Plain("e"))
		lease := lockMulti(t, m)
		if n := f[:1].taken("b") + f[:1].taken("c") + f[1:].taken("a") + f[1:].taken("d") + f[1:].taken("e"); n != 5 {
			t.Errorf("%d of the locks are taken, want 5", n)
		}
		parts := lease.Members()
		if len(parts) != 5 || parts[1].Token() == 0 || lease.Token() != 0 || parts[0].Members() != nil {
			t.Errorf("%d members, token of the fenced one %d, of the whole %d", len(parts), parts[1].Token(), lease.Token())
		}
		least := slices.MinFunc(parts, func(a, b *lock.Lease) int { return a.ValidUntil().Compare(b.ValidUntil()) })
		if got := lease.ValidUntil(); !got.Equal(least.ValidUntil()) {
			t.Errorf("ValidUntil() = %v, of the first that ends %v", got, least.ValidUntil())
		}
		if err := lease.Check(t.Context()); err != nil {
			t.Errorf("Check() = %v", err)
		}
		infos, err := m.Info(t.Context())
		if err != nil || len(infos) != 5 || infos[4].Holders[0].Owner != parts[4].Owner() {
			t.Errorf("Info() = %+v, %v", infos, err)
		}
		_, err = newMulti(t, a.Reentrant("x"), b.Reentrant("d")).TryLock(t.Context())
		wantErr(t, "TryLock of one that is taken and one that is not", err, lock.ErrNotAcquired)
		time.Sleep(5 * time.Minute)
		if err := lease.Check(t.Context()); err != nil {
			t.Errorf("Check() after five minutes = %v", err)
		}
		work, cancel := lease.Context(t.Context())
		defer cancel()
		mustUnlock(t, lease)
		if context.Cause(work) != lock.ErrReleased || lease.Err() != lock.ErrReleased {
			t.Errorf("cause %v, Err() = %v", context.Cause(work), lease.Err())
		}
		mustUnlock(t, lease)
		f[0].srv.Do("DEL", "redisson_lock_token:{b}")
		f.free()
	})
}

// A zero value in place of a lock that a Client made, and a nil pointer, are no members: neither leads to a panic.
func TestMembersThatNoClientMade(t *testing.T) {
	for _, m := range []lock.Member{
		&lock.Reentrant{}, (*lock.Reentrant)(nil), &lock.Fenced{}, (*lock.Fenced)(nil), &lock.Plain{}, (*lock.Plain)(nil),
		&lock.ReadLock{}, (*lock.ReadLock)(nil), new(lock.ReadWrite).Write(), &lock.Handle{}, (*lock.Handle)(nil), nil,
	} {
		if _, err := lock.NewMulti(m); !errors.Is(err, lock.ErrInvalid) {
			t.Errorf("NewMulti(%T) = %v, want ErrInvalid", m, err)
		}
		if _, err := lock.NewRedlock(lock.RedlockConfig{}, m, m, m); !errors.Is(err, lock.ErrInvalid) {
			t.Errorf("NewRedlock(%T) = %v, want ErrInvalid", m, err)
		}
	}
}

func TestMultiMembers(t *testing.T) {
	inFleet(t, 2, func(t *testing.T, f fleet) {
		a, b := f[0].client(lock.Config{}), f[1].client(lock.Config{})
		for _, bad := range [][]lock.Member{nil, {a.Reentrant("x"), a.Fenced("x")}, {a.Reentrant("x"), a.Reentrant("{")}, {a.Reentrant("x"), nil}} {
			if _, err := lock.NewMulti(bad...); !errors.Is(err, lock.ErrInvalid) {
				t.Errorf("NewMulti(%d members) = %v, want ErrInvalid", len(bad), err)
			}
		}
		if _, err := lock.NewMulti(a.Reentrant("y"), a.Reentrant("x"), a.Fenced("x")); !strings.HasPrefix(err.Error(), `lock "x": invalid: `) {
			t.Errorf("NewMulti(two kinds of one name) = %v, want the name", err)
		}
		lease := lockMulti(t, newMulti(t, a.Reentrant("x"), b.Reentrant("x"), a.Reentrant("x"), a.Reentrant("y")))
		if n := len(lease.Members()); n != 3 {
			t.Errorf("%d members, want x and y of one server and x of the other", n)
		}
		mustUnlock(t, lease)
		_, err := newMulti(t, a.Reentrant("x")).Lock(t.Context(), lock.As(b.NewOwner()))
		wantErr(t, "Lock as an Owner of another client", err, lock.ErrInvalid)
		_, err = newMulti(t, a.Reentrant("x")).TryLock(t.Context(), lock.For(1))
		wantErr(t, "TryLock for a nanosecond", err, lock.ErrInvalid)
	})
}

// Two clients of one pool are clients of one server, and its lock is one lock.
func TestMultiOfTwoClientsOfAPool(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		other, err := lock.New(w.pools[0], lock.Config{})
		if err != nil {
			t.Fatal(err)
		}
		w.clients = append(w.clients, other)
		lease := lockMulti(t, newMulti(t, c.Reentrant("x"), other.Reentrant("x")))
		if n := len(lease.Members()); n != 1 {
			t.Errorf("%d members of one lock on one server", n)
		}
		mustUnlock(t, lease)
		w.free()
	})
}

// The Owners of several clients take each the locks of their own, as often as they like.
func TestMultiReentry(t *testing.T) {
	inFleet(t, 2, func(t *testing.T, f fleet) {
		a, b := f[0].client(lock.Config{}), f[1].client(lock.Config{})
		m := newMulti(t, a.Reentrant("x"), a.Reentrant("y"), b.Reentrant("z"))
		as := []lock.Option{lock.As(a.NewOwner()), lock.As(b.NewOwner())}
		outer := lockMulti(t, m, as...)
		inner := lockMulti(t, m, append(as, lock.For(time.Second))...)
		if got := f[0].srv.Do("HGET", "y", inner.Owner()); got != "2" {
			t.Errorf("hold count %v", got)
		}
		mustUnlock(t, inner)
		if err := outer.Check(t.Context()); err != nil {
			t.Errorf("Check() of the outer hold = %v", err)
		}
		_, err := m.TryLock(t.Context(), as[0])
		wantErr(t, "TryLock as one of the Owners", err, lock.ErrNotAcquired)
		mustUnlock(t, outer)
		f.free()
	})
}

// Two that have locks in common, given in opposite orders, both get them, over and over.
func TestMultiOppositeOrders(t *testing.T) {
	inFleet(t, 2, func(t *testing.T, f fleet) {
		all := names("n", 6)
		inside := map[string]*atomic.Int32{}
		for _, name := range all {
			inside[name] = new(atomic.Int32)
		}
		start := time.Now()
		var wg sync.WaitGroup
		for worker := range 8 {
			p := f.process(lock.Config{})
			random := rand.New(rand.NewPCG(7, uint64(worker)))
			wg.Go(func() {
				for range 25 {
					mine := slices.Clone(all)
					random.Shuffle(len(mine), func(i, j int) { mine[i], mine[j] = mine[j], mine[i] })
					mine = mine[:3]
					var members []lock.Member
					for _, name := range mine {
						members = append(members, p[int(name[1])%2].Reentrant(name))
					}
					err := newMulti(t, members...).Do(t.Context(), func(context.Context) error {
						for _, name := range mine {
							if inside[name].Add(1) != 1 {
								t.Errorf("two have %s", name)
							}
						}
						time.Sleep(10 * time.Millisecond)
						for _, name := range mine {
							inside[name].Add(-1)
						}
						return nil
					})
					if err != nil {
						t.Errorf("Do() = %v", err)
					}
				}
			})
		}
		wg.Wait()
		if took := time.Since(start); took > 30*time.Second {
			t.Errorf("200 turns of 10 ms took %v: they have waited for each other", took)
		}
		f.free()
	})
}

// Somebody who takes the same locks in another order, as Redisson's may, costs time, and not the locks for ever.
func TestMultiGivesWay(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c, other := w.client(lock.Config{}), w.client(lock.Config{})
		second := mustLock(t, other, "b")
		got := make(chan *lock.Lease)
		go func() { got <- lockMulti(t, newMulti(t, reentrants(c, "a", "b")...)) }()
		time.Sleep(time.Second)
		start := time.Now()
		first := mustLock(t, other, "a") // while the Multi has it and waits for b
		if waited := time.Since(start); waited > 2*time.Second {
			t.Errorf("waited for %v", waited)
		}
		mustUnlock(t, first)
		mustUnlock(t, second)
		mustUnlock(t, <-got)
		w.free()
	})
}

// A Lock that ends while it has some of the locks gives them back, at whatever step its caller leaves.
func TestMultiCancelledAtEachStep(t *testing.T) {
	for step := range 9 {
		for _, fixed := range []bool{false, true} {
			inVirtualTime(t, func(t *testing.T, w *world) {
				w.srv.Latency(10 * time.Millisecond)
				c, other := w.client(lock.Config{}), w.client(lock.Config{})
				var opts []lock.Option
				if fixed {
					opts = append(opts, lock.For(2*time.Second))
				}
				taken := mustLock(t, other, "c")
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(step)*10*time.Millisecond+5*time.Millisecond)
				defer cancel()
				start := time.Now()
				_, err := newMulti(t, reentrants(c, "a", "b", "c")...).Lock(ctx, opts...)
				wantErr(t, "Lock()", err, context.DeadlineExceeded)
				if waited := time.Since(start); waited > 100*time.Millisecond {
					t.Errorf("step %d: returned %v after its start", step, waited)
				}
				time.Sleep(time.Second)
				lease := lockMulti(t, newMulti(t, reentrants(other, "a", "b")...))
				mustUnlock(t, lease)
				mustUnlock(t, taken)
				time.Sleep(6 * time.Second)
				w.free()
			})
		}
	}
}

// The loss of one is the loss of all: the whole is told, the others are not renewed, and Unlock gives them back.
func TestMultiLossOfOne(t *testing.T) {
	inFleet(t, 2, func(t *testing.T, f fleet) {
		p := f.process(lock.Config{})
		lease := lockMulti(t, newMulti(t, p[0].Reentrant("a"), p[0].Reentrant("b"), p[1].Reentrant("c")))
		work, cancel := lease.Context(t.Context())
		defer cancel()
		f[1].srv.Do("DEL", "c")
		time.Sleep(11 * time.Second)
		<-lease.Lost()
		lostBecause(t, context.Cause(work), lock.Forced)
		lostBecause(t, lease.Members()[0].Err(), lock.PartLost)
		renewals := p[0].Stats().Renewals
		time.Sleep(15 * time.Second)
		if p[0].Stats().Renewals != renewals || f[:1].taken("a") != 1 {
			t.Errorf("the others are renewed still, or given away")
		}
		err := lease.Unlock(t.Context())
		wantErr(t, "Unlock()", err, lock.ErrNotHeld)
		lostBecause(t, err, lock.Forced)
		if f[:1].taken("a")+f[:1].taken("b") != 0 {
			t.Error("the others are taken after Unlock")
		}
		if again := lease.Unlock(t.Context()); !errors.Is(again, lock.ErrNotHeld) {
			t.Errorf("second Unlock() = %v", again)
		}
		f.free()
	})
}

// A server that cannot be reached loses the whole when its lock's lease ends, without any answer.
func TestMultiServerUnreachable(t *testing.T) {
	inFleet(t, 2, func(t *testing.T, f fleet) {
		p := f.process(lock.Config{Lease: 3 * time.Second})
		lease := lockMulti(t, newMulti(t, p[0].Reentrant("a"), p[1].Reentrant("b")))
		f[1].srv.Mute(true)
		start := time.Now()
		<-lease.Lost()
		if took := time.Since(start); took < 2*time.Second || took > 3*time.Second {
			t.Errorf("lost after %v with a lease of 3s", took)
		}
		lostBecause(t, lease.Err(), lock.Unreachable)
		if time.Now().After(lease.ValidUntil().Add(time.Millisecond)) {
			t.Errorf("told at %v, valid until %v", time.Now(), lease.ValidUntil())
		}
		wantErr(t, "Unlock()", lease.Unlock(t.Context()), lock.ErrUncertain)
		f[1].srv.Mute(false)
		time.Sleep(10 * time.Second)
		f.free()
	})
}

func TestMultiClosedClient(t *testing.T) {
	inFleet(t, 2, func(t *testing.T, f fleet) {
		p := f.process(lock.Config{})
		m := newMulti(t, p[0].Reentrant("a"), p[1].Reentrant("b"))
		lease := lockMulti(t, m)
		p[1].Close()
		lostBecause(t, lease.Err(), lock.ClientClosed)
		mustUnlock(t, lease)
		_, err := m.Lock(t.Context())
		wantErr(t, "Lock()", err, lock.ErrClosed)
		f.free()
	})
}

// With For the lease counts from when all are held, however long that took, and is that long.
func TestMultiLeaseCountsFromTheLast(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c, other := w.client(lock.Config{}), w.client(lock.Config{})
		mustLock(t, other, "c", lock.For(1200*time.Millisecond))
		lease := lockMulti(t, newMulti(t, reentrants(c, "a", "b", "c")...), lock.For(2*time.Second))
		for _, name := range []string{"a", "b", "c"} {
			if left := w.ttl(name); left > 2*time.Second || left < 1990*time.Millisecond {
				t.Errorf("%s has a lease of %v", name, left)
			}
		}
		if left := time.Until(lease.ValidUntil()); left < 1970*time.Millisecond {
			t.Errorf("valid for %v", left)
		}
		time.Sleep(1900 * time.Millisecond)
		if err := lease.Err(); err != nil {
			t.Errorf("Err() before the end = %v", err)
		}
		time.Sleep(200 * time.Millisecond)
		lostBecause(t, lease.Err(), lock.Expired)
		w.free()
	})
}

// A lock that has gone to somebody else while the rest was waited for is not taken from him when the lease is counted anew.
func TestMultiExtendsOnlyWhatIsItsOwn(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		w.onScript("renew", func(n int) fakeredis.Action {
			if n == 1 {
				w.srv.Do("DEL", "a")
				w.srv.Do("HSET", "a", "stranger:1", "1")
				w.srv.Do("PEXPIRE", "a", "500")
			}
			return fakeredis.Run()
		})
		m := newMulti(t, reentrants(c, "a", "b")...)
		_, err := m.TryLock(t.Context(), lock.For(5*time.Second))
		lostBecause(t, err, lock.Taken)
		if left := w.ttl("a"); left > 500*time.Millisecond || w.srv.Do("HGET", "a", "stranger:1") != "1" {
			t.Errorf("the stranger's lease is %v", left)
		}
		mustUnlock(t, lockMulti(t, m, lock.For(5*time.Second)))
		w.free()
	})
}

// Nor is one that is gone by then.
func TestMultiExtendsOnlyWhatIsThere(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		w.onScript("renew", func(n int) fakeredis.Action {
			if n == 1 {
				w.srv.Do("DEL", "a")
			}
			return fakeredis.Run()
		})
		m := newMulti(t, reentrants(w.client(lock.Config{}), "a", "b")...)
		_, err := m.TryLock(t.Context(), lock.For(5*time.Second))
		lostBecause(t, err, lock.Forced)
		w.free()
	})
}

// Durations that were asked for are those that are sent, however often the locks are tried.
func TestMultiDurationsAreConvertedOnce(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c, other := w.client(lock.Config{}), w.client(lock.Config{})
		mustLock(t, other, "b", lock.For(30*time.Second))
		w.onScript("acquire", func(int) fakeredis.Action { return fakeredis.Run() })
		w.srv.ClearLog()
		lease := lockMulti(t, newMulti(t, reentrants(c, "a", "b")...), lock.For(time.Minute))
		attempts := 0
		for _, cmd := range w.srv.Log() {
			if cmd.Name == "EVALSHA" && cmd.Args[1] == kinds.All()["reentrant"]["acquire"].Digest() {
				attempts++
				if got := cmd.Args[6]; got != "60000" {
					t.Fatalf("attempt %d asks for a lease of %s ms", attempts, got)
				}
			}
		}
		if attempts < 10 {
			t.Errorf("%d attempts in 30 s", attempts)
		}
		synctest.Wait()
		mustUnlock(t, lease)
		w.free()
	})
}

// Of ten who try once, one gets all, and at once.
func TestMultiOneOfMany(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		m := newMulti(t, reentrants(w.client(lock.Config{}), "a", "b", "c")...)
		leases := make(chan *lock.Lease, 10)
		start := time.Now()
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				lease, err := m.TryLock(t.Context(), lock.For(10*time.Second))
				if err == nil {
					leases <- lease
				} else if !errors.Is(err, lock.ErrNotAcquired) {
					t.Errorf("TryLock() = %v", err)
				}
			})
		}
		wg.Wait()
		if n := len(leases); n != 1 || time.Since(start) > time.Second {
			t.Fatalf("%d have them after %v", n, time.Since(start))
		}
		mustUnlock(t, <-leases)
		w.free()
	})
}

// The locks that are held do not run out while the next one is waited for.
func TestMultiKeepsWhatItHas(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c, other := w.client(lock.Config{}), w.client(lock.Config{})
		mustLock(t, other, "c", lock.For(1300*time.Millisecond))
		lease := lockMulti(t, newMulti(t, reentrants(c, "a", "b", "c")...), lock.For(time.Second))
		if n := c.Stats().Lost; n != 0 {
			t.Errorf("%d leases were lost on the way", n)
		}
		mustUnlock(t, lease)
		w.free()
	})
}

// slotted is one server that has slots, as a cluster has: it refuses scripts with keys of several.
type slotted struct{ *conn.Pool }

func (slotted) Slot(key string) int                                            { return slotOf(key) }
func (slotted) Route(string) string                                            { return "" }
func (slotted) Refused(string, error)                                          {}
func (s slotted) StreamTo(ctx context.Context, _ string) (*conn.Stream, error) { return s.Stream(ctx) }
func (slotted) SuccessionOf(context.Context, string, time.Time) (conn.Succession, error) {
	return conn.Succession{}, errors.New("not a cluster")
}
func (s slotted) Doers(context.Context) iter.Seq2[conn.Doer, error] {
	return func(yield func(conn.Doer, error) bool) { yield(s.Pool, nil) }
}

// slottedClient is client on a server that has slots.
func (w *world) slottedClient() *lock.Client {
	w.t.Helper()
	pool := w.pool(conn.Config{})
	c, err := lock.New(slotted{pool}, lock.Config{Acks: lock.AcksOff})
	if err != nil {
		w.t.Fatal(err)
	}
	w.pools, w.clients = append(w.pools, pool), append(w.clients, c)
	return c
}

// slotOf makes a slot of the first letter of what is hashed of a key.
func slotOf(key string) int {
	if _, tag, ok := strings.Cut(key, "{"); ok {
		key = tag
	}
	return int(key[0])
}

// crossSlot is what a server that has slots does with a script.
func crossSlot(cmd fakeredis.Cmd) fakeredis.Action {
	if !strings.HasPrefix(cmd.Name, "EVAL") {
		return fakeredis.Run()
	}
	n, _ := strconv.Atoi(cmd.Args[2])
	for _, key := range cmd.Args[3 : 3+n] {
		if slotOf(key) != slotOf(cmd.Args[3]) {
			return fakeredis.Reply("-CROSSSLOT Keys in request don't hash to the same slot\r\n")
		}
	}
	return fakeredis.Run()
}

// In a cluster the locks are of several slots, which no script may mix.
func TestMultiOfSlots(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		pool := w.pool(conn.Config{})
		c, err := lock.New(slotted{pool}, lock.Config{Publish: lock.PublishPlain})
		if err != nil {
			t.Fatal(err)
		}
		w.pools, w.clients = append(w.pools, pool), append(w.clients, c)
		w.srv.Intercept(crossSlot)
		m := newMulti(t, reentrants(c, "a", "b", "c")...)
		for _, opts := range [][]lock.Option{nil, {lock.For(time.Second)}} {
			lease, err := m.TryLock(t.Context(), opts...)
			if err != nil {
				t.Fatalf("TryLock() with %d options = %v", len(opts), err)
			}
			if err := lease.Check(t.Context()); err != nil {
				t.Errorf("Check() = %v", err)
			}
			mustUnlock(t, lease)
		}
		w.free()
	})
}

// While the server of one of the locks cannot be asked, Lock goes on for as long as a lease, keeps nothing from others for long,
// and then says what is wrong, which is not that a lock is taken.
func TestMultiServerDown(t *testing.T) {
	for how, set := range down {
		t.Run(how, func(t *testing.T) {
			inFleet(t, 2, func(t *testing.T, f fleet) {
				p, other := f.process(lock.Config{}), f.process(lock.Config{})
				m := newMulti(t, p[0].Reentrant("a"), p[1].Reentrant("b"))
				set(f[1].srv, true)
				_, err := m.TryLock(t.Context())
				if err == nil || errors.Is(err, lock.ErrNotAcquired) {
					t.Errorf("TryLock() = %v", err)
				}
				failed := make(chan error)
				start := time.Now()
				go func() {
					_, err := m.Lock(t.Context())
					failed <- err
				}()
				f[0].sleep(5 * time.Second)
				mustUnlock(t, mustLock(t, other[0], "a"))
				if waited := time.Since(start); waited > 10*time.Second {
					t.Errorf("a was kept for %v", waited-5*time.Second)
				}
				err = <-failed
				if took := time.Since(start); took < 30*time.Second || took > 40*time.Second {
					t.Errorf("gave up after %v", took)
				}
				if err == nil || errors.Is(err, lock.ErrNotAcquired) {
					t.Errorf("Lock() = %v", err)
				}
				set(f[1].srv, false)
				mustUnlock(t, lockMulti(t, m))
				f[0].sleep(10 * time.Second)
				f.free()
			})
		})
	}
}

// A Multi has no read lock to become, whatever its first member is: nothing is sent, and all members stay held.
func TestDowngradeOfAMulti(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		whole := lockMulti(t, newMulti(t, c.ReadWrite("a").Write(), c.Reentrant("b")))
		_, err := whole.Downgrade(t.Context())
		wantErr(t, "Downgrade", err, lock.ErrInvalid)
		if err := whole.Check(t.Context()); err != nil {
			t.Errorf("Check() = %v, want the lease untouched", err)
		}
		mustUnlock(t, whole)
		w.free()
	})
}
