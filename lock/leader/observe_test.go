package leader_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/lock/leader"
)

// What a dead leader has published does not belong to the next holder of the lock.
func TestObserveTheRightTerm(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		w.srv.Do("HSET", "lockwire_leader:{job}", "owner", "dead:1", "address", "d:1", "since", "1000")
		if got := w.observe(); got != (leader.Leader{}) {
			t.Errorf("Observe() = %+v, want nobody", got)
		}
		lease, err := w.client().Fenced("job").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		got := w.observe()
		if got.Owner != lease.Owner() || got.Token != lease.Token() || got.Address != "" || !got.Since.IsZero() {
			t.Errorf("Observe() = %+v, want %q without an address", got, lease.Owner())
		}
		if err := lease.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		stop := w.candidate(w.client(), leader.Config{Address: "a:1"}, w.work("a", 0))
		if got := w.observe(); got.Address != "a:1" || !got.Since.Equal(time.Now()) {
			t.Errorf("Observe() = %+v, want a:1", got)
		}
		_ = stop()
	})
}

// The token of a term is known for as long as the term, also after the end of the lock's counter.
func TestObserveAfterTheEndOfTheCounter(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		var token int64
		stop := w.candidate(w.client(), leader.Config{}, func(ctx context.Context) error {
			token = leader.Token(ctx)
			<-ctx.Done()
			return nil
		})
		w.srv.Do("DEL", "redisson_lock_token:{job}") // as after lock.Config.TokenLife
		if got := w.observe(); got.Token != token || token == 0 {
			t.Errorf("Observe() = %+v, want the token %d", got, token)
		}
		_ = stop()
	})
}

func TestWatch(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		var seen []string
		ctx, cancel := context.WithCancel(t.Context())
		watched := make(chan struct{})
		c := w.client()
		go func() {
			defer close(watched)
			for now, err := range leader.Watch(ctx, c, "job", 0) {
				if err != nil {
					now.Address = "error"
				}
				seen = append(seen, now.Address)
			}
		}()
		time.Sleep(300 * time.Millisecond) // so that no question coincides with a change
		for _, address := range []string{"a:1", "b:1"} {
			time.Sleep(10 * time.Second)
			stop := w.candidate(w.client(), leader.Config{Address: address}, w.work(address, 0))
			time.Sleep(10 * time.Second)
			_ = stop()
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		cancel()
		<-watched
		if want := []string{"", "a:1", "", "b:1", ""}; !slices.Equal(seen, want) {
			t.Errorf("Watch() yielded %q, want %q", seen, want)
		}
		for range leader.Watch(t.Context(), w.client(), "job", time.Hour) {
			break
		}
	})
}

// Whoever takes an error for no leader learns then that there is one.
func TestWatchAfterAnError(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		stop := w.candidate(w.client(), leader.Config{Address: "a:1"}, w.work("a:1", 0))
		time.Sleep(10 * time.Second)
		var seen []string
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for now, err := range leader.Watch(ctx, w.client(), "job", 0) {
			if seen = append(seen, now.Address); len(seen) == 3 {
				break
			}
			if (err != nil) != (len(seen) == 2) {
				t.Errorf("answer %d: %v", len(seen), err)
			}
			failing := len(seen) == 1
			w.srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
				if cmd.Name == "HMGET" && failing {
					return fakeredis.Reply("-ERR no\r\n")
				}
				return fakeredis.Run()
			})
		}
		if want := []string{"a:1", "", "a:1"}; !slices.Equal(seen, want) {
			t.Errorf("Watch() yielded %q, want %q", seen, want)
		}
		_ = stop()
	})
}
