package lock_test

import (
	"context"
	"testing"
	"time"

	"github.com/lockwire/lockwire/lock"
)

// Redisson's ExponentialBackOff: the n-th pause is twice the one before it, and less than n ms more.
func TestBackoff(t *testing.T) {
	for name, test := range map[string]struct {
		backoff    lock.Backoff
		initial    time.Duration
		longest    time.Duration
		multiplier int
	}{
		"default":  {lock.Backoff{}, time.Millisecond, 128 * time.Millisecond, 2},
		"max":      {lock.Backoff{Max: time.Second}, time.Millisecond, time.Second, 2},
		"initial":  {lock.Backoff{Initial: time.Second}, time.Second, time.Second, 2},
		"slow":     {lock.Backoff{Initial: 10 * time.Millisecond, Max: time.Hour, Multiplier: 3}, 10 * time.Millisecond, time.Hour, 3},
		"constant": {lock.ConstantBackoff(64 * time.Millisecond), 64 * time.Millisecond, 64 * time.Millisecond, 1},
		"longest":  {lock.Backoff{Initial: 1 << 62, Max: 1<<63 - 1}, 1 << 62, 1<<63 - 1, 2},
	} {
		pauses := lock.Pauses(test.backoff, 40)
		if pauses[0] != test.initial || pauses[len(pauses)-1] != test.longest {
			t.Errorf("%s: pauses from %v to %v", name, pauses[0], pauses[len(pauses)-1])
		}
		for i := 1; i < len(pauses); i++ {
			least := test.longest
			if pauses[i-1] <= test.longest/time.Duration(test.multiplier) {
				least = pauses[i-1] * time.Duration(test.multiplier)
			}
			most := min(test.longest, least+time.Duration(i)*time.Millisecond)
			if least < 0 || pauses[i] < least || pauses[i] > max(least, most) {
				t.Errorf("%s: pause %d is %v after %v", name, i, pauses[i], pauses[i-1])
			}
		}
	}
}

func TestBadBackoff(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		for _, b := range []lock.Backoff{
			{Initial: -1}, {Max: -1}, {Multiplier: -1}, {Initial: time.Second, Max: time.Millisecond}, {Initial: 1},
		} {
			_, err := c.Spin("job", b).Lock(t.Context())
			wantErr(t, "Lock", err, lock.ErrInvalid)
		}
	})
}

// A wait ends with its context, in the middle of a pause. Nothing is published or subscribed to, and the lock is as much a
// Reentrant's as a Spin's.
func TestSpin(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c, other := w.client(lock.Config{}), w.client(lock.Config{})
		lease := mustLock(t, other, "job")
		spin := c.Spin("job", lock.ConstantBackoff(time.Minute))
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		start := time.Now()
		_, err := spin.Lock(ctx)
		wantErr(t, "Lock", err, lock.ErrNotAcquired)
		if took := time.Since(start); took != 1500*time.Millisecond {
			t.Errorf("Lock() returned after %v, want 1.5s", took)
		}
		mustUnlock(t, lease)

		held, err := spin.Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_, err = other.Reentrant("job").TryLock(t.Context())
		wantErr(t, "TryLock by a Reentrant", err, lock.ErrNotAcquired)
		published := w.srv.Count("PUBLISH")
		mustUnlock(t, held)
		if n := w.srv.Count("SUBSCRIBE"); n != 0 || w.srv.Count("PUBLISH") != published {
			t.Errorf("%d subscriptions, %d messages", n, w.srv.Count("PUBLISH")-published)
		}
	})
}

// Who waits looks when its pause is over: at 0, 64 and 128 ms, and then the lock is free.
func TestSpinLooks(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c, other := w.client(lock.Config{}), w.client(lock.Config{})
		lease := mustLock(t, other, "job")
		time.AfterFunc(100*time.Millisecond, func() { mustUnlock(t, lease) })
		start := time.Now()
		held, err := c.Spin("job", lock.ConstantBackoff(64*time.Millisecond)).Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took != 128*time.Millisecond {
			t.Errorf("acquired after %v, want 128ms", took)
		}
		mustUnlock(t, held)
	})
}
