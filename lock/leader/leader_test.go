package leader_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/internal/lockscripts"
	"github.com/lockwire/lockwire/lock"
	"github.com/lockwire/lockwire/lock/leader"
)

// world is a fake server in virtual time.
type world struct {
	t   *testing.T
	srv *fakeredis.Server

	mu     sync.Mutex // guards the following
	active []string   // the candidates whose function runs
	events []string
}

func inVirtualTime(t *testing.T, fn func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, srv: fakeredis.New()}
		w.srv.Interpret(lockscripts.Interpret)
		t.Cleanup(w.srv.Close)
		fn(t, w)
	})
}

func (w *world) client() *lock.Client {
	w.t.Helper()
	pool, err := conn.Open(w.t.Context(), conn.Config{Dial: w.srv.Dial})
	if err != nil {
		w.t.Fatal(err)
	}
	c, err := lock.New(pool, lock.Config{})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _, _ = c.Close(), pool.Close() })
	return c
}

// work is the function of a candidate. It fails the test if the function of another candidate runs, and takes so long to stop.
func (w *world) work(name string, stopping time.Duration) func(context.Context) error {
	return func(ctx context.Context) error {
		w.mu.Lock()
		w.active = append(w.active, name)
		if len(w.active) > 1 {
			w.t.Errorf("at once: %q", w.active)
		}
		w.events = append(w.events, name)
		w.mu.Unlock()
		<-ctx.Done()
		time.Sleep(stopping)
		w.mu.Lock()
		w.active = slices.DeleteFunc(w.active, func(s string) bool { return s == name })
		w.mu.Unlock()
		return ctx.Err()
	}
}

// candidate runs a candidate until stop is called, which returns the result of Run.
func (w *world) candidate(c *lock.Client, cfg leader.Config, fn func(context.Context) error) (stop func() error) {
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan error, 1)
	go func() { done <- leader.Run(ctx, c, "job", cfg, fn) }()
	synctest.Wait()
	return func() error {
		cancel()
		return <-done
	}
}

func (w *world) observe() leader.Leader {
	w.t.Helper()
	got, err := leader.Observe(w.t.Context(), w.client(), "job")
	if err != nil {
		w.t.Fatal(err)
	}
	return got
}

// The next leader begins after the function of the last one has returned, however long it takes to stop.
func TestStepDown(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		begin := time.Now()
		first := w.candidate(w.client(), leader.Config{Address: "a:1"}, w.work("a", 2*time.Minute))
		second := w.candidate(w.client(), leader.Config{Address: "b:1"}, w.work("b", 0))
		one := w.observe()
		if one.Address != "a:1" || one.Token == 0 || !one.Since.Equal(begin) || one.Remaining <= 0 {
			t.Errorf("Observe() = %+v, want the first, since %v", one, begin)
		}
		time.Sleep(time.Hour)
		if err := first(); !errors.Is(err, context.Canceled) {
			t.Errorf("Run() = %v, want the end of its context", err)
		}
		synctest.Wait()
		if took := time.Since(begin); took < time.Hour+2*time.Minute {
			t.Errorf("Run() returned after %v, before its function", took)
		}
		if two := w.observe(); two.Address != "b:1" || two.Token <= one.Token {
			t.Errorf("Observe() = %+v, want the second, with a token above %d", two, one.Token)
		}
		if err := second(); !errors.Is(err, context.Canceled) {
			t.Errorf("Run() = %v, want the end of its context", err)
		}
		if none := w.observe(); none != (leader.Leader{}) {
			t.Errorf("Observe() = %+v, want nobody", none)
		}
		w.nothingIsLeft()
	})
}

// A leader that is deposed is told, and leads again as soon as its function has returned.
func TestForced(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		var causes []error
		var tokens []int64
		stop := w.candidate(w.client(), leader.Config{}, func(ctx context.Context) error {
			tokens = append(tokens, leader.Token(ctx))
			<-ctx.Done()
			causes = append(causes, context.Cause(ctx))
			return errors.New("stopped in a hurry")
		})
		time.Sleep(time.Minute)
		if _, err := w.client().Fenced("job").ForceUnlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		err := stop()
		if !errors.Is(err, context.Canceled) || errors.Is(err, lock.ErrLost) {
			t.Errorf("Run() = %v, want only the end of its context, and the function's error", err)
		}
		if len(causes) != 2 || !errors.Is(causes[0], lock.ErrLost) || !errors.Is(causes[1], context.Canceled) {
			t.Errorf("the contexts ended because of %v", causes)
		}
		if len(tokens) != 2 || tokens[1] <= tokens[0] || tokens[0] == 0 {
			t.Errorf("tokens %v", tokens)
		}
	})
}

// The server is gone. The function is stopped so long before the lease ends that it can finish, and campaigns again.
func TestStopBefore(t *testing.T) {
	for _, test := range []struct {
		before, left time.Duration
		cause        error
	}{
		{10 * time.Second, 10 * time.Second, leader.ErrExpiring},
		{0, 29698 * time.Millisecond / 4, leader.ErrExpiring},
		{-1, 0, nil},
	} {
		t.Run(fmt.Sprint(test.before), func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, w *world) {
				health := &leader.Health{}
				began := make(chan time.Time, 10)
				stopped := make(chan error, 10)
				cfg := leader.Config{StopBefore: test.before, Health: health}
				a := w.work("a", test.left)
				stop := w.candidate(w.client(), cfg, func(ctx context.Context) error {
					began <- time.Now()
					err := a(ctx)
					stopped <- context.Cause(ctx)
					return err
				})
				other := w.candidate(w.client(), leader.Config{}, w.work("b", 0))
				w.srv.Mute(true)
				start := <-began
				cause := <-stopped
				if got, want := time.Since(start), 29698*time.Millisecond; got != want {
					t.Errorf("the function returned after %v, want %v", got, want)
				}
				if test.cause != nil && cause != test.cause || !errors.Is(cause, lock.ErrLost) && test.cause == nil {
					t.Errorf("the context ended because of %v", cause)
				}
				synctest.Wait()
				if err := health.Check(0); err != nil || health.Leading() {
					t.Errorf("Check() = %v, Leading() = %v, want a healthy process that does not lead", err, health.Leading())
				}
				w.srv.Mute(false)
				time.Sleep(time.Minute)
				if got := w.observe(); got.Owner == "" {
					t.Error("nobody leads")
				}
				_, _ = stop(), other()
				if len(w.events) < 2 {
					t.Errorf("leaders: %q", w.events)
				}
			})
		})
	}
}

func TestFunctionReturns(t *testing.T) {
	failed := errors.New("failed")
	for _, want := range []error{nil, failed} {
		inVirtualTime(t, func(t *testing.T, w *world) {
			err := leader.Run(t.Context(), w.client(), "job", leader.Config{}, func(context.Context) error { return want })
			if !errors.Is(err, want) {
				t.Errorf("Run() = %v, want %v", err, want)
			}
			if got := w.observe(); got.Owner != "" {
				t.Errorf("%+v still leads", got)
			}
		})
	}
}

// What the function has returned counts, also if the caller's context ends during the release.
func TestContextEndsDuringTheRelease(t *testing.T) {
	failed := errors.New("failed")
	for _, want := range []error{nil, failed} {
		inVirtualTime(t, func(t *testing.T, w *world) {
			ctx, cancel := context.WithCancel(t.Context())
			err := leader.Run(ctx, w.client(), "job", leader.Config{}, func(context.Context) error {
				w.srv.Intercept(func(fakeredis.Cmd) fakeredis.Action {
					cancel()
					return fakeredis.Run()
				})
				return want
			})
			w.srv.Intercept(nil)
			if err != want && !errors.Is(err, failed) || errors.Is(err, context.Canceled) {
				t.Errorf("Run() = %v, want %v", err, want)
			}
		})
	}
}

func TestPanic(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		defer func() {
			if got := recover(); got != "oops" {
				t.Errorf("recover() = %v", got)
			}
			if got := w.observe(); got.Owner != "" {
				t.Errorf("%+v still leads", got)
			}
			w.nothingIsLeft()
		}()
		_ = leader.Run(t.Context(), w.client(), "job", leader.Config{}, func(context.Context) error { panic("oops") })
	})
}

func (w *world) nothingIsLeft() {
	w.t.Helper()
	if n := w.srv.Do("EXISTS", "job", "lockwire_leader:{job}"); n != int64(0) {
		w.t.Errorf("%v keys are left", n)
	}
}

// A context that ends while the address is being published leaves no address.
func TestEndDuringPublish(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		_ = w.candidate(w.client(), leader.Config{Address: "b:1"}, w.work("b", 0))() // the server knows the scripts
		w.srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
			action := fakeredis.Run()
			if strings.HasPrefix(cmd.Name, "EVAL") && slices.Contains(cmd.Args, "a:1") {
				action = action.Late(100 * time.Millisecond)
			}
			return action
		})
		stop := w.candidate(w.client(), leader.Config{Address: "a:1"}, func(context.Context) error { t.Error("called"); return nil })
		time.Sleep(50 * time.Millisecond)
		if err := stop(); !errors.Is(err, context.Canceled) {
			t.Errorf("Run() = %v, want the end of its context", err)
		}
		w.nothingIsLeft()
	})
}

// Campaigns go on while the server cannot be reached, and end for reasons that stay.
func TestCampaigns(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client()
		never := func(context.Context) error { t.Error("called"); return nil }
		for name, cfg := range map[string]leader.Config{"": {}, "job": {StopBefore: 16 * time.Second}} {
			if err := leader.Run(t.Context(), c, name, cfg, never); !errors.Is(err, lock.ErrInvalid) {
				t.Errorf("Run(%q, %+v) = %v, want ErrInvalid", name, cfg, err)
			}
		}
		w.srv.Refuse(true)
		w.srv.KillConns(nil)
		stop := w.candidate(c, leader.Config{}, w.work("a", 0))
		time.Sleep(5 * time.Minute)
		w.srv.Refuse(false)
		time.Sleep(20 * time.Second)
		if got := w.observe(); got.Owner == "" {
			t.Error("nobody leads 20s after the server returned")
		}
		w.srv.Refuse(true)
		w.srv.KillConns(nil)
		time.Sleep(5 * time.Minute)
		if err := stop(); !errors.Is(err, context.Canceled) {
			t.Errorf("Run() = %v, want the end of its context", err)
		}
		w.srv.Refuse(false)
		closed := w.client()
		_ = closed.Close()
		if err := leader.Run(t.Context(), closed, "job", leader.Config{}, never); !errors.Is(err, lock.ErrClosed) {
			t.Errorf("Run() = %v, want ErrClosed", err)
		}
	})
}

// A lock that is granted late does not end Run: with too little of the lease left it is given back.
func TestLateGrant(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		var first sync.Once
		w.srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
			action := fakeredis.Run()
			if slices.Contains(cmd.Args, "job") {
				first.Do(func() { action = action.Late(4 * time.Second) })
			}
			return action
		})
		stop := w.candidate(w.client(), leader.Config{StopBefore: 14 * time.Second}, w.work("a", 0))
		time.Sleep(time.Minute)
		if got := w.observe(); got.Owner == "" {
			t.Error("nobody leads a minute after a late grant")
		}
		if err := stop(); !errors.Is(err, context.Canceled) {
			t.Errorf("Run() = %v, want the end of its context", err)
		}
	})
}

// The health check speaks up when the function does not stop.
func TestHealth(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		health := &leader.Health{}
		stop := w.candidate(w.client(), leader.Config{Health: health}, w.work("a", time.Minute))
		if !health.Leading() || health.Check(0) != nil {
			t.Errorf("Leading() = %v, Check() = %v", health.Leading(), health.Check(0))
		}
		ended := make(chan error)
		go func() { ended <- stop() }()
		time.Sleep(30 * time.Second)
		if err := health.Check(31 * time.Second); err != nil || health.Leading() {
			t.Errorf("Check() = %v, Leading() = %v, want no error yet", err, health.Leading())
		}
		if err := health.Check(29 * time.Second); err == nil {
			t.Error("Check() = nil, want an error: the function does not stop")
		}
		<-ended
		if err := health.Check(0); err != nil {
			t.Errorf("Check() = %v after Run", err)
		}
	})
}

// At the end of its context the function leads no more.
func TestLeadingEndsWithTheContext(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		health := &leader.Health{}
		for range 20 {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Second, cancel)
			err := leader.Run(ctx, w.client(), "job", leader.Config{Health: health}, func(ctx context.Context) error {
				<-ctx.Done()
				if health.Leading() {
					t.Error("Leading() = true after the end of the context")
				}
				return nil
			})
			if !errors.Is(err, context.Canceled) {
				t.Errorf("Run() = %v, want the end of its context", err)
			}
		}
	})
}
