package lock_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/lock"
	"github.com/lockwire/lockwire/lock/internal/kinds"
)

func countFrom(t *testing.T, c *lock.Client, n int) *lock.CountDownLatch {
	t.Helper()
	l := c.CountDownLatch("latch")
	if set, err := l.TrySetCount(t.Context(), n); err != nil || !set {
		t.Fatalf("TrySetCount(%d) = %v, %v", n, set, err)
	}
	return l
}

func wantCount(t *testing.T, l *lock.CountDownLatch, want int) {
	t.Helper()
	if n, err := l.Count(t.Context()); err != nil || n != want {
		t.Fatalf("Count() = %d, %v, want %d", n, err, want)
	}
}

func TestLatchCounts(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c, ctx := w.client(lock.Config{}), t.Context()
		l := c.CountDownLatch("latch")
		wantCount(t, l, 0)
		wantOK(t, "Wait of what nobody set", l.Wait(ctx))
		wantOK(t, "CountDown of what nobody set", l.CountDown(ctx))
		wantCount(t, l, 0)
		countFrom(t, c, 2)
		if set, err := l.TrySetCount(ctx, 3); set || err != nil {
			t.Errorf("TrySetCount() = %v, %v", set, err)
		}
		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		err := l.Wait(short)
		wantErr(t, "Wait", err, lock.ErrNotAcquired)
		wantErr(t, "Wait", err, context.DeadlineExceeded)
		for _, want := range []int{1, 0, 0} {
			wantOK(t, "CountDown", l.CountDown(ctx))
			wantCount(t, l, want)
		}
		wantOK(t, "Wait", l.Wait(ctx))
		countFrom(t, c, 1)
		for _, want := range []bool{true, false} {
			if deleted, err := l.Delete(ctx); deleted != want || err != nil {
				t.Errorf("Delete() = %v, %v, want %v", deleted, err, want)
			}
		}
		var told []string
		for _, m := range w.srv.Messages() {
			told = append(told, m.Channel+" "+m.Payload)
		}
		const channel = "redisson_countdownlatch__channel__{latch} "
		if want := []string{channel + "1", channel + "0", channel + "1", channel + "1", channel + "0"}; fmt.Sprint(told) != fmt.Sprint(want) {
			t.Errorf("published %q, want %q", told, want)
		}
		w.free()
	})
}

func TestLatchRefuses(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c, ctx := w.client(lock.Config{}), t.Context()
		for _, name := range []string{"", "{a}", "a{b}", "a}"} {
			bad := c.CountDownLatch(name)
			_, set := bad.TrySetCount(ctx, 1)
			_, count := bad.Count(ctx)
			_, deleted := bad.Delete(ctx)
			for what, err := range map[string]error{"Wait": bad.Wait(ctx), "CountDown": bad.CountDown(ctx), "TrySetCount": set, "Count": count, "Delete": deleted} {
				wantErr(t, what+" of a bad name", err, lock.ErrInvalid)
			}
		}
		l := c.CountDownLatch("latch")
		for _, n := range []int64{-1, 0, 1 << 31} {
			_, err := l.TrySetCount(ctx, int(n))
			wantErr(t, "TrySetCount", err, lock.ErrInvalid)
		}
		if n := w.srv.Count("EVALSHA") + w.srv.Count("EVAL"); n != 0 {
			t.Errorf("%d scripts were sent", n)
		}
		for _, set := range [][]string{{"SET", "latch", "kept"}, {"HSET", "latch", "a", "b"}} {
			w.srv.Do("DEL", "latch")
			w.srv.Do(set...)
			_, set := l.TrySetCount(ctx, 1)
			_, count := l.Count(ctx)
			_, deleted := l.Delete(ctx)
			for what, err := range map[string]error{"Wait": l.Wait(ctx), "CountDown": l.CountDown(ctx), "TrySetCount": set, "Count": count, "Delete": deleted} {
				wantErr(t, what+" of another type", err, lock.ErrWrongType)
				if !strings.Contains(fmt.Sprint(err), `lock "latch": `) {
					t.Errorf("%s of another type = %v, which does not name the latch", what, err)
				}
			}
		}
		w.srv.Do("DEL", "latch")
		w.free()
	})
}

// All who wait are released at once, in every process, and one of each process asks meanwhile.
func TestLatchReleasesAll(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		w.srv.Latency(time.Millisecond)
		c := w.client(lock.Config{})
		l := countFrom(t, c, 3)
		var wg sync.WaitGroup
		for range 3 {
			other := w.client(lock.Config{})
			other.OnlyWoken()
			for range 20 {
				wg.Go(func() {
					if err := other.CountDownLatch("latch").Wait(t.Context()); err != nil {
						t.Errorf("Wait() = %v", err)
					}
				})
			}
		}
		w.sleep(time.Hour)
		if n := w.srv.Count("SUBSCRIBE"); n != 3 {
			t.Errorf("%d subscriptions, want one for each process", n)
		}
		for range 3 {
			w.sleep(time.Second)
			wantOK(t, "CountDown", l.CountDown(t.Context()))
		}
		start := time.Now()
		wg.Wait()
		if took := time.Since(start); took > 5*time.Millisecond {
			t.Errorf("released %v later", took)
		}
		w.settled()
	})
}

// A20: a message that is lost costs a waiter some seconds, and who deletes the latch releases those who wait.
func TestA20Latch(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c, deaf := w.client(lock.Config{}), w.client(lock.Config{})
		deaf.OnlyWoken()
		l, done := countFrom(t, c, 1), make(chan error)
		go func() { done <- l.Wait(t.Context()) }()
		w.sleep(time.Minute)
		w.srv.Do("DEL", "latch") // and nobody is told
		start := time.Now()
		wantOK(t, "Wait", <-done)
		if took := time.Since(start); took > 10*time.Second {
			t.Errorf("released after %v", took)
		}
		// Without a look of its own, as Redisson waits, it is not released.
		countFrom(t, c, 1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		go func() { done <- deaf.CountDownLatch("latch").Wait(ctx) }()
		w.sleep(time.Minute)
		w.srv.Do("DEL", "latch")
		wantErr(t, "Wait that only messages wake", <-done, context.DeadlineExceeded)

		countFrom(t, c, 1)
		go func() { done <- deaf.CountDownLatch("latch").Wait(t.Context()) }()
		w.sleep(time.Minute)
		if deleted, err := l.Delete(t.Context()); !deleted || err != nil {
			t.Errorf("Delete() = %v, %v", deleted, err)
		}
		wantOK(t, "Wait", <-done)

		countFrom(t, c, 1)
		w.srv.Do("PEXPIRE", "latch", "2000")
		start = time.Now()
		wantOK(t, "Wait of what expires", l.Wait(t.Context()))
		if took := time.Since(start); took < 2*time.Second || took > 2100*time.Millisecond {
			t.Errorf("released after %v", took)
		}
		w.settled()
	})
}

// A1, A2: what is sent twice counts once, and tells what it did.
func TestA02Latch(t *testing.T) {
	for name, action := range map[string]fakeredis.Action{"lost answer": fakeredis.RunThenClose(), "lost request": fakeredis.Close()} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, w *world) {
				l, ctx := w.client(lock.Config{}).CountDownLatch("latch"), t.Context()
				w.onKind("latch", "set", first(action))
				if set, err := l.TrySetCount(ctx, 3); !set || err != nil {
					t.Errorf("TrySetCount() = %v, %v", set, err)
				}
				for want := 2; want >= 1; want-- {
					w.onKind("latch", "down", first(action))
					wantOK(t, "CountDown", l.CountDown(ctx))
					wantCount(t, l, want)
				}
				w.onKind("latch", "delete", first(action))
				if deleted, err := l.Delete(ctx); !deleted || err != nil {
					t.Errorf("Delete() = %v, %v", deleted, err)
				}
				w.srv.Intercept(nil)
				w.settled()
			})
		})
	}
}

// A CountDown arrives once more when its repeat has been answered, and a count has been set anew.
func TestLatchLateCountDown(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		l, down := countFrom(t, c, 1), kinds.All()["latch"]["down"]
		var late []string
		w.srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
			if late == nil && len(cmd.Args) > 1 && cmd.Args[1] == down.Digest() {
				late = cmd.Args
				return fakeredis.Close()
			}
			return fakeredis.Run()
		})
		wantOK(t, "CountDown", l.CountDown(t.Context()))
		countFrom(t, c, 2)
		w.sleep(10 * time.Second)
		w.srv.Do(late...)
		wantCount(t, l, 2)
		w.settled("latch")
	})
}

func TestLatchUncertain(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		l := countFrom(t, w.client(lock.Config{}), 2)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		wantOK(t, "CountDown under a cancelled context", l.CountDown(ctx))
		w.sleep(time.Second)
		w.srv.Mute(true)
		wantErr(t, "CountDown", l.CountDown(t.Context()), lock.ErrUncertain)
		w.sleep(time.Minute)
		w.srv.Mute(false)
		wantOK(t, "Wait", l.Wait(t.Context()))
		w.settled()
	})
}

func TestLatchCancelledAtEachStep(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		w.srv.Latency(time.Millisecond)
		c := w.client(lock.Config{})
		l := countFrom(t, c, 1)
		for step := range 40 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(step)*250*time.Microsecond)
			if err := l.Wait(ctx); err == nil {
				t.Error("Wait() returned with a count of 1")
			}
			cancel()
			w.sleep(time.Second)
			if !c.Idle() {
				t.Fatalf("a wait that ended at step %d has left something", step)
			}
		}
		w.settled("latch")
	})
}
