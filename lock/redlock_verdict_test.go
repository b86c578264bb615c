package lock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockwire/lockwire/lock"
)

// A TryLock without a majority says whose fault that is: ErrNotAcquired only if the lock is somebody else's on so many servers
// that all the others would be too few. Else the error names the servers that could not be asked.
func TestRedlockVerdicts(t *testing.T) {
	for _, test := range []struct {
		down, taken int // of five servers, the first ones and those behind them
		want        error
	}{
		{0, 3, lock.ErrNotAcquired}, {0, 5, lock.ErrNotAcquired}, {1, 3, lock.ErrNotAcquired}, {2, 3, lock.ErrNotAcquired},
		{1, 2, lock.ErrNoQuorum}, {2, 1, lock.ErrNoQuorum}, {2, 2, lock.ErrNoQuorum}, {3, 0, lock.ErrNoQuorum},
		{3, 2, lock.ErrNoQuorum}, {4, 1, lock.ErrNoQuorum}, {5, 0, lock.ErrNoQuorum}, {2, 0, nil}, {0, 2, nil}, {1, 1, nil},
	} {
		for _, mute := range []bool{false, true} {
			t.Run(fmt.Sprint(test.down, " down, ", test.taken, " taken, mute ", mute), func(t *testing.T) {
				inFleet(t, 5, func(t *testing.T, f fleet) {
					mine, other := f.process(lock.Config{}), f.process(lock.Config{})
					for _, c := range other[test.down : test.down+test.taken] {
						mustLock(t, c, "job")
					}
					for _, w := range f[:test.down] {
						if mute {
							w.srv.Mute(true)
						} else {
							w.srv.Refuse(true)
							w.srv.KillConns(nil)
						}
					}
					r := mine.redlock(t, lock.RedlockConfig{}, false)
					lease, err := r.TryLock(t.Context())
					switch {
					case test.want == nil:
						if err != nil {
							t.Fatalf("TryLock() = %v", err)
						}
						mustUnlock(t, lease)
					case !errors.Is(err, test.want) || errors.Is(err, lock.ErrNotAcquired) != (test.want == lock.ErrNotAcquired):
						t.Errorf("TryLock() = %v, want %v", err, test.want)
					case test.want == lock.ErrNoQuorum:
						for i := range 5 {
							if named := strings.Contains(err.Error(), fmt.Sprintf("node %d", i+1)); named && i >= test.down {
								t.Errorf("TryLock() = %v, which blames node %d", err, i+1)
							}
						}
						if !strings.Contains(err.Error(), "node ") {
							t.Errorf("TryLock() = %v, want the servers' names in it", err)
						}
					}
					f.recover()
				})
			})
		}
	}
}

// The context of a TryLock may end before the servers answer: that is no refusal either.
func TestRedlockVerdictOfAnEarlyEnd(t *testing.T) {
	inFleet(t, 5, func(t *testing.T, f fleet) {
		mine, other := f.process(lock.Config{}), f.process(lock.Config{})
		mustLock(t, other[0], "job")
		for _, w := range f[1:] {
			w.srv.Mute(true)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		_, err := mine.redlock(t, lock.RedlockConfig{NodeTimeout: time.Second}, false).TryLock(ctx)
		if !errors.Is(err, lock.ErrNoQuorum) || !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, lock.ErrNotAcquired) {
			t.Errorf("TryLock() = %v", err)
		}
		f.recover()
	})
}

// recover has all servers answer again, and waits for what is taken back.
func (f fleet) recover() {
	for _, w := range f {
		w.srv.Mute(false)
		w.srv.Refuse(false)
	}
	f[0].sleep(10 * time.Second)
}

// What is left of a Redlock when a server has lost its part lasts until the first of a bare majority ends, and no longer: the
// part that is gone does not count, though it would have ended later.
func TestRedlockValidWithoutALostPart(t *testing.T) {
	inFleet(t, 3, func(t *testing.T, f fleet) {
		r := f.process(lock.Config{}).redlock(t, lock.RedlockConfig{Quarantine: -1}, false)
		lease := lockRed(t, r)
		synctest.Wait()
		time.Sleep(9 * time.Second)
		f[0].srv.Mute(true) // so that its part is not renewed like the others
		time.Sleep(2 * time.Second)
		parts := slices.Clone(lease.Members())
		slices.SortFunc(parts, func(a, b *lock.Lease) int { return a.ValidUntil().Compare(b.ValidUntil()) })
		if !parts[0].ValidUntil().Before(parts[1].ValidUntil()) {
			t.Fatal("all parts have been renewed")
		}
		f.loses(parts[1].Owner())
		if err := parts[1].Check(t.Context()); err == nil {
			t.Fatal("Check() of a part that is gone = nil")
		}
		if got, want := lease.ValidUntil(), parts[0].ValidUntil(); !got.Equal(want) || lease.Err() != nil {
			t.Errorf("ValidUntil() = %v, want %v, the earlier end of the two parts that are left", got, want)
		}
		f[0].srv.Mute(false)
		mustUnlock(t, lease)
	})
}

// loses frees the lock on the server where an owner has it.
func (f fleet) loses(owner string) {
	for i, holder := range f.holders("job") {
		if holder == owner {
			f[i].srv.Do("DEL", "job")
		}
	}
}
