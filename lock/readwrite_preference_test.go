package lock_test

import (
	"context"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/lock"
)

const writersKey = "lockwire_rwlock_writers:{job}"

// told is how many writers say that they wait.
func (w *world) told() int64 {
	synctest.Wait()
	n, _ := w.srv.Do("ZCARD", writersKey).(int64)
	return n
}

var preferring = lock.Config{PreferWriters: true}

// readInTurns has readers of two clients come and go, at least one of them there at any time, until done is closed.
func (w *world) readInTurns(t *testing.T, cfg lock.Config, done <-chan struct{}) {
	for i := range 2 {
		c := w.client(cfg)
		go func() {
			w.sleep(time.Duration(i) * time.Second)
			for {
				select {
				case <-done:
					return
				default:
				}
				lease, err := c.ReadWrite("job").Read().Lock(t.Context())
				if err != nil {
					t.Errorf("Lock() = %v", err)
					return
				}
				w.sleep(2 * time.Second)
				mustUnlock(t, lease)
			}
		}()
	}
	w.sleep(1500 * time.Millisecond)
}

// A27: readers that come and go keep no writer out, as Redisson's would.
func TestA27WriterStarvation(t *testing.T) {
	for name, cfg := range map[string]lock.Config{"in the line": {}, "preferring": preferring} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, w *world) {
				done := make(chan struct{})
				w.readInTurns(t, cfg, done)
				c := w.client(cfg)
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
				defer cancel()
				start := time.Now()
				lease, err := c.ReadWrite("job").Write().Lock(ctx)
				took := time.Since(start)
				close(done)
				if err != nil || took > 2*time.Second {
					t.Fatalf("Lock() = %v after %v, want it when the readers of that time have gone", err, took)
				}
				mustUnlock(t, lease)
				w.sleep(5 * time.Second)
				w.free()
			})
		})
	}
}

// Readers that have the lock already, or write, wait for no writer. All others do.
func TestPreferenceLetsHoldersIn(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c, plain := w.client(preferring), w.client(lock.Config{})
		owner := c.NewOwner()
		read := mustRead(t, c, lock.As(owner))
		isTaken(t, c.ReadWrite("job").Write()) // which does not wait, and says nothing
		if n := w.told(); n != 0 {
			t.Errorf("%d writers tell that they wait, want none", n)
		}
		got := make(chan *lock.Lease)
		go func() { got <- mustWrite(t, c, lock.As(c.NewOwner())) }()
		if n := w.told(); n != 1 {
			t.Fatalf("%d writers tell that they wait, want 1", n)
		}
		isTaken(t, c.ReadWrite("job").Read())
		mustUnlock(t, mustRead(t, c, lock.As(owner)))
		isTaken(t, plain.ReadWrite("job").Read())
		w.sleep(time.Minute) // the writer says it again before its word ends
		isTaken(t, c.ReadWrite("job").Read())
		mustUnlock(t, read)
		write := <-got
		if n := w.told(); n != 0 {
			t.Errorf("%d writers tell that they wait, want none", n)
		}
		mustUnlock(t, write)
		w.free()
	})
}

// However a writer stops waiting, it takes its word back, and the readers behind it come in at once.
func TestPreferenceIsTakenBack(t *testing.T) {
	for name, stop := range map[string]func(c *lock.Client, cancel func()){
		"cancelled": func(_ *lock.Client, cancel func()) { cancel() },
		"closed":    func(c *lock.Client, _ func()) { c.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, w *world) {
				c, readers := w.client(preferring), w.client(preferring)
				readers.OnlyWoken()
				keeper := mustRead(t, readers, lock.For(time.Hour))
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				failed := make(chan error)
				for range 3 { // behind each other, of which one says so
					go func() {
						_, err := c.ReadWrite("job").Write().Lock(ctx)
						failed <- err
					}()
					synctest.Wait()
				}
				if n := w.told(); n != 1 {
					t.Fatalf("%d writers tell that they wait, want 1", n)
				}
				got := make(chan *lock.Lease)
				go func() { got <- mustRead(t, readers) }()
				w.sleep(5 * time.Second)
				stopped := time.Now()
				stop(c, cancel)
				for range 3 {
					<-failed
				}
				mustUnlock(t, <-got)
				if took := time.Since(stopped); took > 100*time.Millisecond {
					t.Errorf("the reader came in after %v", took)
				}
				if n := w.told(); n != 0 {
					t.Errorf("%d writers tell that they wait, want none", n)
				}
				mustUnlock(t, keeper)
				w.free()
			})
		})
	}
}

// When a writer gives up, the one behind it says in its turn that it waits; and when one gets the lock, too.
func TestPreferenceGoesOn(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c, readers := w.client(preferring), w.client(preferring)
		keeper := mustRead(t, readers)
		ctx, cancel := context.WithCancel(t.Context())
		failed := make(chan error)
		go func() {
			_, err := c.ReadWrite("job").Write().Lock(ctx)
			failed <- err
		}()
		synctest.Wait()
		got := make(chan *lock.Lease)
		for range 2 {
			go func() { got <- mustWrite(t, c) }()
		}
		synctest.Wait()
		cancel()
		wantErr(t, "Lock", <-failed, lock.ErrNotAcquired)
		w.sleep(100 * time.Millisecond)
		isTaken(t, readers.ReadWrite("job").Read())
		mustUnlock(t, keeper)
		first := <-got
		w.sleep(100 * time.Millisecond)
		if n := w.told(); n != 1 {
			t.Errorf("%d writers tell that they wait behind the one that writes, want 1", n)
		}
		mustUnlock(t, first)
		mustUnlock(t, <-got)
		w.free()
	})
}

// A writer that dies while it waits keeps readers out no longer than its word lasts.
func TestPreferenceOfTheDead(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c, dying := w.client(preferring), w.client(preferring)
		keeper := mustRead(t, c)
		ctx, cancel := context.WithCancel(t.Context())
		gone := make(chan struct{})
		go func() {
			_, _ = dying.ReadWrite("job").Write().Lock(ctx)
			close(gone)
		}()
		if n := w.told(); n != 1 {
			t.Fatalf("%d writers tell that they wait, want 1", n)
		}
		words := w.srv.Do("ZRANGE", writersKey, "0", "-1", "WITHSCORES").([]any)
		cancel()
		<-gone
		w.sleep(time.Second)
		w.srv.Do("ZADD", writersKey, words[1].(string), "dead:1:write") // what one would have left that cannot take it back
		start := time.Now()
		mustUnlock(t, mustRead(t, c))
		if took := time.Since(start); took > 15*time.Second {
			t.Errorf("the reader waited %v for a dead writer", took)
		}
		w.srv.Do("DEL", writersKey)
		mustUnlock(t, keeper)
		w.free()
	})
}

// The word of a dead writer lasts for no longer if the server's clock is set back.
func TestPreferenceOfTheDeadAndAClockSetBack(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(preferring)
		w.srv.Do("ZADD", writersKey, strconv.FormatInt(time.Now().Add(15*time.Second).UnixMilli(), 10), "dead:1:write")
		w.srv.Do("PEXPIRE", writersKey, "15000")
		w.srv.Jump(-time.Hour)
		start := time.Now()
		mustUnlock(t, mustRead(t, c))
		if took := time.Since(start); took > 15*time.Second {
			t.Errorf("the reader waited %v for a dead writer", took)
		}
		w.srv.Do("DEL", writersKey)
		w.free()
	})
}

// A03: the release of a read lock beneath a write lock does not end the renewal of the write lock.
func TestA03ReadUnlockKeepsTheWriteLockRenewed(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		r := w.redisson("java:1")
		watchdog := redissonWatchdog{plain: map[string]bool{}, read: map[string]bool{}}
		r.writeLock(30 * time.Second)
		watchdog.plain[r.owner] = true
		r.readLock(30 * time.Second)
		watchdog.read[r.owner] = true
		r.readUnlock()
		watchdog.readUnlock(r.owner)
		for range 4 {
			w.sleep(10 * time.Second)
			watchdog.renew(w, 30*time.Second)
		}
		if r.writeIsLocked() {
			t.Error("Redisson's write lock is still renewed: the test shows nothing")
		}

		c, other := w.client(lock.Config{}), w.client(lock.Config{})
		owner := c.NewOwner()
		write := mustWrite(t, c, lock.As(owner))
		mustUnlock(t, mustRead(t, c, lock.As(owner)))
		w.sleep(5 * time.Minute)
		if err := write.Check(t.Context()); err != nil {
			t.Errorf("Check() = %v", err)
		}
		isTaken(t, other.ReadWrite("job").Read())
		mustUnlock(t, write)
		w.free()
	})
}

// A04: the release of a read lock beneath a write lock does not shorten the write lock's lease to that of other reads.
func TestA04ReadUnlockKeepsTheWriteLease(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		r := w.redisson("java:1")
		r.writeLock(time.Minute)
		r.readLock(time.Second)
		r.readLock(time.Second)
		r.readUnlock()
		if got := w.ttl("job"); got != time.Second {
			t.Errorf("Redisson's write lock lasts %v: the test shows nothing", got)
		}
		w.sleep(2 * time.Second)

		c := w.client(lock.Config{})
		owner := c.NewOwner()
		write := mustWrite(t, c, lock.As(owner), lock.For(time.Minute))
		outer := mustRead(t, c, lock.As(owner), lock.For(time.Second))
		mustUnlock(t, mustRead(t, c, lock.As(owner), lock.For(time.Second)))
		if got := w.ttl("job"); got != time.Minute {
			t.Errorf("the write lock lasts %v, want 1m", got)
		}
		mustUnlock(t, outer)
		if got := w.ttl("job"); got != time.Minute {
			t.Errorf("the write lock lasts %v, want 1m", got)
		}
		mustUnlock(t, write)
		w.free()
	})
}

// A05: a reader's renewal does not shorten the lease of another reader.
func TestA05RenewalKeepsLongerLeases(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		renewing, long := w.redisson("java:1"), w.redisson("java:2")
		renewing.readLock(30 * time.Second)
		long.readLock(time.Minute)
		renewing.renewRead(30 * time.Second)
		if got := w.ttl("job"); got != 30*time.Second {
			t.Errorf("Redisson's lock lasts %v: the test shows nothing", got)
		}
		w.srv.Do("FLUSHALL")

		c, other := w.client(lock.Config{}), w.client(lock.Config{})
		reader, keeper := mustRead(t, c), mustRead(t, other, lock.For(time.Minute))
		w.sleep(10 * time.Second)
		synctest.Wait()
		if n := c.Stats().Renewals; n != 1 {
			t.Fatalf("%d renewals, want 1", n)
		}
		if got := w.ttl("job"); got != 50*time.Second {
			t.Errorf("after the renewal the lock lasts %v, want the other reader's 50s", got)
		}
		c.Close() // the reader that is renewed dies
		w.sleep(30 * time.Second)
		isTaken(t, other.ReadWrite("job").Write())
		mustUnlock(t, reader)
		mustUnlock(t, keeper)
		w.free()
	})
}

// A09: the release of what is not held is not, at its repeat, taken for one that has worked.
func TestA09ReleaseOfNothingIsNoSuccess(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		r := w.redisson("java:1")
		if first, again := r.readUnlockOnce(), r.readUnlockOnce(); first != nil || again != int64(1) {
			t.Errorf("Redisson's answers are %v and %v: the test shows nothing", first, again)
		}
		w.srv.Do("DEL", redissonLatch)

		c := w.client(lock.Config{})
		for _, half := range []string{"read", "write"} {
			for _, opts := range [][]lock.Option{nil, {lock.As(c.NewOwner())}} {
				lease := mustHave(t, halves(c)[half], opts...)
				w.srv.Do("DEL", "job")
				w.onScriptOf(half, "release", func(n int) fakeredis.Action {
					if n == 1 {
						return fakeredis.RunThenClose()
					}
					return fakeredis.Run()
				})
				wantErr(t, "Unlock of the "+half+" lock", lease.Unlock(t.Context()), lock.ErrNotHeld)
			}
		}
		w.sleep(latchLife)
		w.free()
	})
}

// A14: when a write lock becomes a read lock, by Downgrade or by the release of the write lock above a read lock, readers that
// wait come in.
func TestA14DowngradeWakesReaders(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		r := w.redisson("java:1")
		r.writeLock(time.Hour)
		r.readLock(time.Hour)
		before := len(w.srv.Messages())
		r.writeUnlock(time.Hour)
		if n := len(w.srv.Messages()) - before; n != 0 {
			t.Errorf("Redisson publishes %d messages: the test shows nothing", n)
		}
		r.readUnlock()

		for name, downgrade := range map[string]func(write *lock.Lease, owner lock.Owner, c *lock.Client) *lock.Lease{
			"Downgrade": func(write *lock.Lease, _ lock.Owner, _ *lock.Client) *lock.Lease { return mustDowngrade(t, write) },
			"Unlock": func(write *lock.Lease, owner lock.Owner, c *lock.Client) *lock.Lease {
				read := mustRead(t, c, lock.As(owner))
				mustUnlock(t, write)
				return read
			},
		} {
			c, other := w.client(lock.Config{}), w.client(lock.Config{})
			other.OnlyWoken()
			owner := c.NewOwner()
			write := mustWrite(t, c, lock.As(owner), lock.For(time.Hour))
			got := make(chan *lock.Lease)
			for range 5 {
				go func() { got <- mustRead(t, other) }()
			}
			w.sleep(time.Second)
			start := time.Now()
			read := downgrade(write, owner, c)
			for range 5 {
				mustUnlock(t, <-got)
			}
			if took := time.Since(start); took != 0 {
				t.Errorf("%s: readers came in after %v", name, took)
			}
			if all := w.srv.Messages(); !slices.ContainsFunc(all, func(m fakeredis.Message) bool { return m.Payload == "1" }) {
				t.Errorf("%s: messages %v, want a 1, by which Redisson's readers come in together", name, all)
			}
			mustUnlock(t, read)
		}
		w.free()
	})
}

// A15: a message that comes after the server's refusal was sent, and before the waiter sleeps, is not lost.
func TestA15WakeUpBeforeSleep(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		writer, reader := w.redisson("java:1"), w.redisson("java:2")
		writer.writeLock(time.Minute)
		left := reader.readLock(time.Minute).(int64) // refused
		writer.writeUnlock(time.Minute)
		gate := redissonGate{permits: make(chan struct{}, 100)}
		gate.heard("1") // nobody is parked yet
		start := time.Now()
		gate.park(time.Duration(left) * time.Millisecond)
		if took := time.Since(start); took != time.Minute {
			t.Errorf("Redisson's reader slept for %v: the test shows nothing", took)
		}

		c, other := w.client(lock.Config{}), w.client(lock.Config{})
		c.OnlyWoken()
		lease := mustWrite(t, other, lock.For(time.Hour))
		w.onScriptOf("read", "acquire", func(n int) fakeredis.Action {
			if n == 2 { // with the subscription in place: the refusal takes a second, in which the writer releases
				return fakeredis.Run().Late(time.Second)
			}
			return fakeredis.Run()
		})
		start = time.Now()
		got := make(chan *lock.Lease)
		go func() { got <- mustRead(t, c) }()
		w.sleep(500 * time.Millisecond)
		mustUnlock(t, lease)
		mustUnlock(t, <-got)
		if took := time.Since(start); took != time.Second {
			t.Errorf("the reader came in after %v, want it as soon as the refusal was there", took)
		}
		w.free()
	})
}

// A26: a further write hold does not add its lease to what is left of the first.
func TestA26WriteReentryAddsNothing(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		r := w.redisson("java:1")
		r.writeLock(30 * time.Second)
		r.writeLock(30 * time.Second)
		if got := w.ttl("job"); got != time.Minute {
			t.Errorf("Redisson's lock lasts %v: the test shows nothing", got)
		}
		r.writeUnlock(30 * time.Second)
		r.writeUnlock(30 * time.Second)

		c := w.client(lock.Config{})
		owner := c.NewOwner()
		outer := mustWrite(t, c, lock.As(owner), lock.For(30*time.Second))
		for _, lease := range []time.Duration{30 * time.Second, time.Second, 40 * time.Second} {
			inner := mustWrite(t, c, lock.As(owner), lock.For(lease))
			if got, want := w.ttl("job"), max(lease, 30*time.Second); got != want {
				t.Errorf("after a further hold for %v the lock lasts %v, want %v", lease, got, want)
			}
			mustUnlock(t, inner)
			if got := w.ttl("job"); got != 30*time.Second {
				t.Errorf("after the release of the hold for %v the lock lasts %v, want 30s", lease, got)
			}
		}
		mustUnlock(t, outer)
		w.free()
	})
}

// A27: an owner that reads and asks for the write lock is told at once, wherever it would have to stand in line.
func TestA27UpgradeFailsAtOnce(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		r := w.redisson("java:1")
		r.readLock(time.Minute)
		if left, _ := r.writeLock(time.Minute).(int64); left != 60_000 {
			t.Errorf("Redisson's answer is %d: the test shows nothing", left)
		}
		r.readUnlock()

		for _, cfg := range []lock.Config{{}, preferring} {
			c := w.client(cfg)
			owner := c.NewOwner()
			read := mustRead(t, c, lock.As(owner))
			ctx, cancel := context.WithCancel(t.Context())
			line := make(chan error)
			for range 2 { // in front of which it would stand
				go func() {
					_, err := c.ReadWrite("job").Write().Lock(ctx)
					line <- err
				}()
			}
			w.sleep(time.Second)
			start := time.Now()
			wait, stop := context.WithTimeout(t.Context(), time.Minute)
			_, err := c.ReadWrite("job").Write().Lock(wait, lock.As(owner))
			stop()
			wantErr(t, "Lock for writing", err, lock.ErrUpgrade)
			_, err = c.ReadWrite("job").Write().TryLock(t.Context(), lock.As(owner))
			wantErr(t, "TryLock for writing", err, lock.ErrUpgrade)
			if took := time.Since(start); took != 0 {
				t.Errorf("that took %v", took)
			}
			if err := read.Check(t.Context()); err != nil {
				t.Errorf("Check() of the read lock = %v", err)
			}
			cancel()
			wantErr(t, "Lock", <-line, context.Canceled)
			wantErr(t, "Lock", <-line, context.Canceled)
			mustUnlock(t, read)
			mustUnlock(t, mustWrite(t, c, lock.As(owner)))
		}
		w.free()
	})
}

// A writer that asks to read does not stand behind the readers of its process, who wait for it.
func TestReadBeneathWriteBeforeWaitingReaders(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		owner := c.NewOwner()
		write := mustWrite(t, c, lock.As(owner))
		got := make(chan *lock.Lease)
		for range 3 {
			go func() { got <- mustRead(t, c) }()
		}
		w.sleep(time.Second)
		read := mustRead(t, c, lock.As(owner))
		mustUnlock(t, write)
		for range 3 {
			mustUnlock(t, <-got)
		}
		mustUnlock(t, read)
		w.free()
	})
}

// A30: what Info says of a half is the same whoever asks and however, and agrees with Redisson's isLocked, which its
// isLockedAsync does not.
func TestA30WhatIsLocked(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		owner := c.NewOwner()
		r := w.redisson("java:1")
		disagree := 0
		look := func(state string, mode lock.Mode, readers, writers int) {
			t.Helper()
			read, err := c.ReadWrite("job").Read().Info(t.Context())
			if err != nil || read.Mode != mode || read.Locked != r.readIsLocked() || len(read.Holders) != readers || read.Locked != (readers > 0) {
				t.Errorf("%s: Read().Info() = %+v, %v, want mode %q and %d readers", state, read, err, mode, readers)
			}
			write, err := c.ReadWrite("job").Write().Info(t.Context())
			if err != nil || write.Mode != mode || write.Locked != r.writeIsLocked() || len(write.Holders) != writers || write.Locked != (writers > 0) {
				t.Errorf("%s: Write().Info() = %+v, %v, want mode %q and %d writers", state, write, err, mode, writers)
			}
			if r.isLockedAsync() != r.readIsLocked() || r.isLockedAsync() != r.writeIsLocked() {
				disagree++
			}
		}
		look("free", "", 0, 0)
		write := mustWrite(t, c, lock.As(owner))
		look("one writes", lock.ModeWrite, 0, 1)
		read := mustRead(t, c, lock.As(owner))
		look("one writes and reads", lock.ModeWrite, 1, 1)
		mustUnlock(t, write)
		look("one reads", lock.ModeRead, 1, 0)
		r.readLock(time.Minute)
		look("two read", lock.ModeRead, 2, 0)
		r.readUnlock()
		mustUnlock(t, read)
		look("free again", "", 0, 0)
		if disagree == 0 {
			t.Error("Redisson's two answers are always the same: the test shows nothing")
		}
		w.free()
	})
}
