package lock_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockwire/lockwire/lock"
)

// A reader that has been called comes in, although meanwhile a writer has come that goes first: otherwise neither has the free lock
// until the end of the reader's turn.
func TestCalledReaderComesInBeforeAPreferringWriter(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		lease, called := mustWrite(t, w.client(preferring)), w.client(preferring)
		reader := lockOf(toRead).waits(t, t.Context(), called)
		arrive := w.hangs(called)
		mustUnlock(t, lease)
		writer := lockOf(toWrite).waits(t, t.Context(), w.client(preferring))
		begin := time.Now()
		arrive()
		var wg sync.WaitGroup
		for _, got := range []<-chan *lock.Lease{reader, writer} {
			wg.Go(func() { wantOK(t, "Unlock", (<-got).Unlock(t.Context())) })
		}
		wg.Wait()
		if took := time.Since(begin); took != 0 {
			t.Errorf("both have had the lock after %v", took)
		}
		w.sleep(latchLife)
		w.free()
	})
}

// A TryLock to write that readers refuse leaves the writer of its process in its place, next in the line.
func TestTryLockBesideAWaitingWriter(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		keeper := mustRead(t, w.client(lock.Config{}))
		first := lockOf(toWrite).waits(t, t.Context(), c)
		w.sleep(time.Millisecond)
		second := lockOf(toWrite).waits(t, t.Context(), w.client(lock.Config{}))
		isTaken(t, c.ReadWrite("job").Write())
		if lease, err := w.client(lock.Config{}).ReadWrite("job").Read().TryLock(t.Context()); err == nil {
			t.Error("a reader passed a writer")
			mustUnlock(t, lease)
		}
		mustUnlock(t, keeper)
		synctest.Wait()
		for i, got := range []<-chan *lock.Lease{first, second} {
			select {
			case lease := <-got:
				mustUnlock(t, lease)
				synctest.Wait()
			default:
				t.Fatalf("writer %d waits", i+1)
			}
		}
		w.sleep(time.Second)
		w.free()
	})
}

// Two writers of a process ask for the first time at once, and so by two places. The second leaves the first its place, in front of
// another process.
func TestSecondWriterLeavesTheFirstItsPlace(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c, d := w.client(lock.Config{}), w.client(lock.Config{})
		keeper := mustRead(t, w.client(lock.Config{}))
		isTaken(t, c.ReadWrite("job").Write())
		isTaken(t, d.ReadWrite("job").Write())
		w.srv.Latency(5 * time.Millisecond)
		var writers []<-chan *lock.Lease
		for _, client := range []*lock.Client{c, d, c} {
			writers = append(writers, lockOf(toWrite).waits(t, t.Context(), client))
			w.sleep(time.Millisecond)
		}
		w.sleep(5 * time.Millisecond)
		if line := fmt.Sprint(w.srv.Do("ZRANGE", jobLine, "0", "0")); !strings.HasPrefix(line, "[~"+c.ID()) {
			t.Errorf("the line begins with %s, want the writer that is next", line)
		}
		w.srv.Latency(0)
		w.sleep(100 * time.Millisecond)
		mustUnlock(t, keeper)
		var wg sync.WaitGroup
		for _, got := range writers {
			wg.Go(func() { wantOK(t, "Unlock", (<-got).Unlock(t.Context())) })
		}
		wg.Wait()
		w.sleep(time.Second)
		w.free()
	})
}

// An Owner's further hold, under way while the last waiter of the process gets the lock, leaves no place in the line.
func TestFurtherHoldLeavesNoPlace(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		other, c := w.client(lock.Config{}), w.client(lock.Config{})
		owner := c.NewOwner()
		lease := mustWrite(t, other)
		first := readsAs(owner).waits(t, t.Context(), c)
		second := lockOf(toRead).waits(t, t.Context(), c)
		w.srv.Latency(5 * time.Millisecond)
		unlocked := unlocks(t, lease) // at 10 ms the first reader is called, at 20 ms it has the lock, and the second asks
		w.sleep(21 * time.Millisecond)
		further := readsAs(owner).waits(t, t.Context(), c) // its acquire arrives behind the one of the second, and leaves before the answer to that
		for _, got := range []<-chan *lock.Lease{second, further, first} {
			mustUnlock(t, <-got)
		}
		<-unlocked
		w.srv.Latency(0)
		w.sleep(time.Second)
		if line := w.srv.Do("EXISTS", jobLine); line != int64(0) {
			t.Errorf("places are left: %v", w.srv.Do("ZRANGE", jobLine, "0", "-1"))
		}
		w.sleep(latchLife)
		w.free()
	})
}

// Two readers of a process ask by the same place. The first is granted and leaves the place, the second is refused because a writer is
// next, and takes the place again. It leaves the place when it stops waiting.
func TestRefusedReaderKeepsThePlaceThatAnotherLeft(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		owner := c.NewOwner()
		write := mustWrite(t, c, lock.As(owner))
		outer := mustRead(t, c, lock.As(owner))
		first := lockOf(toRead).waits(t, t.Context(), c)
		w.sleep(time.Millisecond)
		writer := lockOf(toWrite).waits(t, t.Context(), w.client(lock.Config{}))
		w.srv.Latency(5 * time.Millisecond)
		unlocked := unlocks(t, write) // at 10 ms the first is called, at 20 ms it has the lock
		w.sleep(7 * time.Millisecond)
		further := readsAs(owner).waits(t, t.Context(), c) // granted at 17 ms: the second may ask
		w.sleep(5 * time.Millisecond)
		ctx, cancel := context.WithCancel(t.Context())
		second := lockOf(toRead).waits(t, ctx, c)
		w.sleep(30 * time.Millisecond)
		if len(second) != 0 {
			t.Error("a reader passed a writer")
		}
		cancel()
		<-second
		<-unlocked
		w.sleep(30 * time.Millisecond)
		for _, l := range []*lock.Lease{<-first, <-further, outer} {
			mustUnlock(t, l)
		}
		mustUnlock(t, <-writer)
		w.srv.Latency(0)
		w.sleep(time.Second)
		if line := w.srv.Do("EXISTS", jobLine); line != int64(0) {
			t.Errorf("places are left: %v", w.srv.Do("ZRANGE", jobLine, "0", "-1"))
		}
		w.sleep(latchLife)
		w.free()
	})
}

// asOwner is a lock that an Owner takes.
type asOwner struct {
	goldenLock
	owner lock.Owner
}

func (l asOwner) Lock(ctx context.Context, opts ...lock.Option) (*lock.Lease, error) {
	return l.goldenLock.Lock(ctx, append(opts, lock.As(l.owner))...)
}

func readsAs(owner lock.Owner) lockOf {
	return func(c *lock.Client) goldenLock { return asOwner{toRead(c), owner} }
}

// unlocks releases l in a goroutine.
func unlocks(t *testing.T, l *lock.Lease) (done <-chan struct{}) {
	over := make(chan struct{})
	go func() {
		defer close(over)
		wantOK(t, "Unlock", l.Unlock(t.Context()))
	}()
	return over
}
