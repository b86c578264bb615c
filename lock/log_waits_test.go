package lock_test

import (
	"context"
	"log/slog"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockwire/lockwire/lock"
)

// wantLines fails the test unless the log has one line for each pattern, and no further lines.
func wantLines(t *testing.T, out *logText, patterns ...string) {
	t.Helper()
	text := out.String()
	if n := strings.Count(text, "\n"); n != len(patterns) {
		t.Errorf("%d lines, want %d:\n%s", n, len(patterns), text)
	}
	for _, pattern := range patterns {
		if n := len(regexp.MustCompile("(?m)"+pattern+"$").FindAllString(text, -1)); n != 1 {
			t.Errorf("%d lines match %s:\n%s", n, pattern, text)
		}
	}
}

const (
	ownerText  = `owner=[0-9a-f-]{36}:\d+`
	holderText = `holder=[0-9a-f-]{36}:\d+ process=web-7`
)

// The owner in the line about a wait is that of the lease, also for kinds that store more than the owner.
func TestLongWaitNamesItsOwner(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		var out logText
		other := w.client(lock.Config{Name: "web-7"})
		c := w.client(lock.Config{WarnAfter: 30 * time.Second, Logger: slog.New(slog.NewTextHandler(&out, nil))})
		if err := other.PermitSemaphore("seats").SetPermits(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		seat, err := other.PermitSemaphore("seats").Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		values, err := other.FasterMulti("group", "a").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		tryFor(t, func(ctx context.Context, opts ...lock.Option) (*lock.Lease, error) {
			return c.PermitSemaphore("seats").Acquire(ctx, opts...)
		}, 40*time.Second)
		tryFor(t, c.FasterMulti("group", "a", "b").Lock, 40*time.Second)
		wantLines(t, &out,
			`lock=seats kind=permits owner=[0-9a-f]{32} waited=30s holder=`+seat.Owner(),
			`lock=group kind=fastermulti `+ownerText+` waited=30s `+holderText)
		mustUnlock(t, seat)
		mustUnlock(t, values)
	})
}

func TestLongWaitForASemaphore(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		var out logText
		c := w.client(lock.Config{WarnAfter: 30 * time.Second, Logger: slog.New(slog.NewTextHandler(&out, nil))})
		s := c.Semaphore("seats")
		if _, err := s.TrySetPermits(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(time.Minute, func() {
			if err := s.Release(t.Context(), 2); err != nil {
				t.Error(err)
			}
		})
		go func() {
			if err := s.Acquire(t.Context(), 1, lock.Standby()); err != nil {
				t.Error(err)
			}
		}()
		synctest.Wait()
		w.sleep(10 * time.Second)
		if err := s.Acquire(t.Context(), 1); err != nil {
			t.Error(err)
		}
		wantLines(t, &out, `"lock: acquired after a long wait" lock=seats kind=semaphore waited=50s`)
		w.sleep(10 * time.Minute)
		time.AfterFunc(40*time.Second, func() {
			if err := s.Release(t.Context(), 1); err != nil {
				t.Error(err)
			}
		})
		if err := s.Acquire(t.Context(), 1); err != nil {
			t.Error(err)
		}
		wantLines(t, &out, `"lock: acquired after a long wait" lock=seats kind=semaphore waited=50s`,
			`"lock: waiting for long" lock=seats kind=semaphore waited=30s`,
			`"lock: acquired after a long wait" lock=seats kind=semaphore waited=40s`)
		w.sleep(latchLife)
	})
}

// A Multi starts again and again while one of its locks is taken: each start is short, the whole wait is not.
func TestLongWaitOfAMulti(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		var out logText
		other := w.client(lock.Config{Name: "web-7"})
		c := w.client(lock.Config{WarnAfter: 30 * time.Second, Logger: slog.New(slog.NewTextHandler(&out, nil))})
		multi, err := lock.NewMulti(c.Reentrant("a"), c.Reentrant("b"))
		if err != nil {
			t.Fatal(err)
		}
		for _, opts := range [][]lock.Option{{lock.Standby()}, nil} {
			taken := mustLock(t, other, "b")
			time.AfterFunc(time.Minute, func() { mustUnlock(t, taken) })
			both, err := multi.Lock(t.Context(), opts...)
			if err != nil {
				t.Fatal(err)
			}
			mustUnlock(t, both)
		}
		wantLines(t, &out, `"lock: waiting for long" lock=b kind=reentrant waited=3\d(\.\d)?s `+holderText,
			`"lock: acquired after a long wait" lock=a kind=multi `+ownerText+` age=0s waited=1m0(\.\d)?s`)
	})
}

// A caller behind another one of the process asks no server, and waits all the same.
func TestLongWaitForARedlock(t *testing.T) {
	inFleet(t, 3, func(t *testing.T, f fleet) {
		var out logText
		p := f.process(lock.Config{Name: "web-7", WarnAfter: 30 * time.Second, Logger: slog.New(slog.NewTextHandler(&out, nil))})
		r := p.redlock(t, lock.RedlockConfig{}, false)
		for _, opts := range [][]lock.Option{{lock.Standby()}, nil} {
			held := lockRed(t, r, lock.Standby())
			time.AfterFunc(time.Minute, func() { mustUnlock(t, held) })
			mustUnlock(t, lockRed(t, r, opts...))
		}
		wantLines(t, &out, `"lock: waiting for long" lock=job kind=redlock waited=30s `+holderText,
			`"lock: acquired after a long wait" lock=job kind=redlock `+ownerText+` age=0s waited=1m0s`)
		f.free()
	})
}
