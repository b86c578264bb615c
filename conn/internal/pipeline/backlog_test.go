package pipeline_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockwire/lockwire/conn/internal/pipeline"
	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/resp"
)

// slowly makes srv take d for each command.
func slowly(srv *fakeredis.Server, d time.Duration) {
	srv.Intercept(func(fakeredis.Cmd) fakeredis.Action { return fakeredis.Delay(d, fakeredis.Run()) })
}

// wantNoneAbandoned fails the test unless all commands of l are answered and no caller counts as gone.
func wantNoneAbandoned(t *testing.T, l *link) {
	t.Helper()
	if n, m := l.Outstanding(), l.Abandoned(); n != 0 || m != 0 {
		t.Errorf("%d commands outstanding, %d abandoned; want none", n, m)
	}
}

// TestBacklogOfAbandoned: the callers ask for eight times as much as the server can do, and leave after 50 ms. The
// connection is not busy with their commands for long: a caller without a deadline has an answer soon, during that time and
// afterwards.
func TestBacklogOfAbandoned(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		l := open(t, srv, shared(limits(5*time.Second)))
		defer l.close()
		slowly(srv, 2*time.Millisecond)
		end := time.Now().Add(2 * time.Second)
		patient := func() {
			start := time.Now()
			want(t, l, "null", "GET", "patient")
			between(t, "a patient caller had its answer", time.Since(start), 0, time.Second)
		}
		var wg sync.WaitGroup
		for range 200 {
			wg.Go(func() {
				for time.Now().Before(end) {
					ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
					_, _ = l.Do(ctx, "GET", "key")
					cancel()
				}
			})
		}
		wg.Go(func() {
			for time.Now().Before(end) {
				patient()
			}
		})
		wg.Wait()
		if n := l.Outstanding(); n > 250 {
			t.Errorf("200 callers have left %d commands", n)
		}
		patient()
		time.Sleep(time.Second)
		wantNoneAbandoned(t, l)
	})
}

// TestHeldBackGoOn: callers with and without deadlines share a server that is now fast, now slow. No command is forgotten,
// whatever its kind.
func TestHeldBackGoOn(t *testing.T) {
	for seed := range uint64(3) {
		bubble(t, func(t *testing.T, srv *fakeredis.Server) {
			l := open(t, srv, shared(limits(5*time.Second)))
			defer l.close()
			var mu sync.Mutex
			rnd := rand.New(rand.NewPCG(seed, 1))
			random := func(n int) time.Duration {
				mu.Lock()
				defer mu.Unlock()
				return time.Duration(rnd.IntN(n)) * time.Microsecond
			}
			srv.Intercept(func(fakeredis.Cmd) fakeredis.Action {
				return fakeredis.Delay(max(random(450)-300*time.Microsecond, 0), fakeredis.Run())
			})
			end := time.Now().Add(500 * time.Millisecond)
			var wg sync.WaitGroup
			for i := range 60 {
				wg.Go(func() {
					for n := 0; time.Now().Before(end); n++ {
						ctx, cancel := t.Context(), context.CancelFunc(func() {})
						if i > 2 {
							ctx, cancel = context.WithTimeout(ctx, random(2000))
						}
						start := time.Now()
						var err error
						switch n % 3 {
						case 0:
							_, err = l.Do(ctx, "ECHO", n)
						case 1:
							_, err = l.SendBatch(ctx, []resp.Command{resp.Cmd("ECHO", n), resp.Cmd("ECHO", n)})
						default:
							l.Post(resp.Cmd("ECHO", n))
							time.Sleep(random(1000))
						}
						cancel()
						if i <= 2 {
							between(t, "a patient caller had its answer", time.Since(start), 0, 100*time.Millisecond)
							if err != nil {
								t.Errorf("a patient caller got %v", err)
							}
						}
					}
				})
			}
			wg.Wait()
			time.Sleep(time.Second)
			wantNoneAbandoned(t, l)
			want(t, l, "PONG", "PING")
		})
	}
}

// heldBack makes n callers leave while the server stalls, of which srv has the commands, and then makes later commands,
// which l holds back. It returns after the later ones are pending.
func heldBack(t *testing.T, srv *fakeredis.Server, l *link, n int, later ...func()) *sync.WaitGroup {
	t.Helper()
	srv.Stall(true)
	var leaving, wg sync.WaitGroup
	for range n {
		leaving.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			defer cancel()
			_, err := l.Do(ctx, "GET", "left")
			wantFailure(t, err, errSent, context.DeadlineExceeded)
		})
	}
	leaving.Wait()
	if got := l.Abandoned(); got != n {
		t.Fatalf("%d commands abandoned, want %d", got, n)
	}
	for _, fn := range later {
		wg.Go(fn)
	}
	synctest.Wait()
	return &wg
}

// TestHeldBack: behind many abandoned commands a caller can still leave without sending its own, a large one as well, and
// the other commands follow in their order.
func TestHeldBack(t *testing.T) {
	for _, n := range []int{14, 16} { // abandoned before; the first of the two below makes one more
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			bubble(t, func(t *testing.T, srv *fakeredis.Server) {
				l := open(t, srv, shared(limits(5*time.Second)))
				defer l.close()
				sent := errSent
				if n >= 16 {
					sent = errNotSent
				}
				big := strings.Repeat("x", 2<<20) // more than there is room for
				wg := heldBack(t, srv, l, n,
					func() {
						for _, value := range []string{"v", big} {
							ctx, cancel := context.WithTimeout(t.Context(), time.Second)
							_, err := l.Do(ctx, "SET", "left", value)
							cancel()
							wantFailure(t, err, sent, context.DeadlineExceeded)
						}
						if _, err := l.Do(t.Context(), "SET", "big", big); err != nil {
							t.Errorf("SET of a large value = %v", err)
						}
					},
					func() { want(t, l, "null", "GET", "key") },
					func() { l.Post(resp.Cmd("PING")) })
				time.Sleep(3 * time.Second)
				srv.Stall(false)
				wg.Wait()
				want(t, l, "PONG", "PING")
				for _, cmd := range srv.Log() {
					if n >= 16 && cmd.Name == "SET" && cmd.Args[1] == "left" {
						t.Error("the server got a command that was withdrawn")
					}
				}
				wantNoneAbandoned(t, l)
			})
		})
	}
}

// TestHeldBackAndFailed: the end of the link ends the commands held back, which were not sent.
func TestHeldBackAndFailed(t *testing.T) {
	for name, test := range map[string]struct {
		end  func(srv *fakeredis.Server, l *link)
		want error
	}{
		"Timeout": {func(*fakeredis.Server, *link) { time.Sleep(10 * time.Second) }, os.ErrDeadlineExceeded},
		"Fail":    {func(_ *fakeredis.Server, l *link) { l.Fail(errClosed) }, errClosed},
		"Drain": {func(_ *fakeredis.Server, l *link) {
			l.Drain(time.Second)
			time.Sleep(2 * time.Second)
		}, errDue},
		"server": {func(srv *fakeredis.Server, _ *link) { srv.KillConns(nil) }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, srv *fakeredis.Server) {
				l := open(t, srv, shared(limits(5*time.Second)))
				wg := heldBack(t, srv, l, 20, func() {
					_, err := l.Do(t.Context(), "GET", "key")
					if !errors.Is(err, errNotSent) || test.want != nil && !errors.Is(err, test.want) {
						t.Errorf("GET = %v, want it not sent because of %v", err, test.want)
					}
				})
				test.end(srv, l)
				wg.Wait()
				l.close()
				if n := l.Abandoned(); n != 0 || l.outstanding != 21 {
					t.Errorf("%d abandoned, %d ended with the link; want 0 and 21", n, l.outstanding)
				}
			})
		})
	}
}

// TestHeldBackAndDrained: a link with commands held back drains once they are answered or withdrawn.
func TestHeldBackAndDrained(t *testing.T) {
	for name, patience := range map[string]time.Duration{"withdrawn": time.Second, "answered": time.Minute} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, srv *fakeredis.Server) {
				l := open(t, srv, pipeline.Config{Timeout: time.Minute, Shared: true})
				wg := heldBack(t, srv, l, 20, func() {
					ctx, cancel := context.WithTimeout(t.Context(), patience)
					defer cancel()
					_, err := l.Do(ctx, "GET", "key")
					if name == "answered" && err != nil {
						t.Errorf("GET = %v", err)
					}
				})
				l.Drain(0)
				time.Sleep(2 * time.Second)
				srv.Stall(false)
				wg.Wait()
				<-l.Done()
				l.close()
				if !errors.Is(l.err, errClosed) || l.outstanding != 0 {
					t.Errorf("the link ended with %v and %d outstanding, want %v and none", l.err, l.outstanding, errClosed)
				}
			})
		})
	}
}
