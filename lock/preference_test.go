package lock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

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
