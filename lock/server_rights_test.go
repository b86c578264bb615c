package lock_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/redistest"
	"github.com/lockwire/lockwire/lock"
)

// lines is a Logger that keeps what it is told.
type lines struct {
	mu   sync.Mutex
	list []string
}

func (l *lines) Warn(text string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = append(l.list, fmt.Sprintln(append([]any{text}, args...)...))
}

// with returns the lines that hold all of the words.
func (l *lines) with(words ...string) (found []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
next:
	for _, line := range l.list {
		for _, w := range words {
			if !strings.Contains(line, w) {
				continue next
			}
		}
		found = append(found, line)
	}
	return found
}

// rightsServer starts a server with users, and returns a way to get a client and the lines it logs.
func rightsServer(t *testing.T, srv *redistest.Server, rules string) (as func(user string) (*lock.Client, *lines)) {
	t.Helper()
	users := []redistest.User{
		{Name: "app", Password: "secret", Rules: rules},
		{Name: "full", Password: "secret", Rules: "~* &* +@all"},
	}
	srv = redistest.Start(t, redistest.Options{Binary: srv.Binary(), Users: users})
	return func(user string) (*lock.Client, *lines) {
		cfg := srv.Config()
		cfg.Username, cfg.Password = user, "secret"
		pool, err := conn.Open(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { pool.Close() })
		log := new(lines)
		c, err := lock.New(pool, lock.Config{Logger: log})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c, log
	}
}

// handOver has holder take a lock, waiter wait for it, and holder release it.
func handOver(t *testing.T, holder, waiter *lock.Client, name string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), redistest.Patience)
	defer cancel()
	held, err := holder.Reentrant(name).Lock(ctx)
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan error, 1)
	go func() {
		lease, err := waiter.Reentrant(name).Lock(ctx, lock.For(time.Second))
		if err == nil {
			err = lease.Unlock(ctx)
		}
		got <- err
	}()
	for waiter.Stats().Waiting == 0 && len(got) == 0 {
		if ctx.Err() != nil {
			t.Fatal("nobody waits")
		}
	}
	if err := held.Unlock(ctx); err != nil {
		t.Fatal(err)
	}
	if err := <-got; err != nil {
		t.Fatal(err)
	}
}

// A user as Redis makes one by default has no channels. Who holds locks is told once that releases wake nobody, and who waits for them that
// nothing wakes it, with the rule that is missing.
func TestServerWithoutChannels(t *testing.T) {
	t.Parallel()
	redistest.Run(t, func(t *testing.T, srv *redistest.Server) {
		if !srv.AtLeast(7, 0) {
			return // a user has all channels by default
		}
		const rule = "&redisson_lock__channel:*"
		as := rightsServer(t, srv, "~* +@all")
		for _, test := range []struct{ holder, waiter string }{{"app", "app"}, {"app", "full"}, {"full", "app"}} {
			holder, told := as(test.holder)
			waiter, heard := as(test.waiter)
			for i := range 3 {
				handOver(t, holder, waiter, fmt.Sprint(test.holder, test.waiter, i))
			}
			holder.Close()
			waiter.Close()
			wantLines := func(who string, l *lines, user, what string) {
				t.Helper()
				want := 0
				if user == "app" {
					want = 1
				}
				if got := l.with(what, rule); len(got) != want || len(l.with(what)) != want {
					t.Errorf("%v: the %s was told %d times that it may not %s, want %d: %q", test, who, len(got), what, want, l.list)
				}
			}
			wantLines("holder", told, test.holder, "publish on")
			wantLines("waiter", heard, test.waiter, "publish on")
			wantLines("waiter", heard, test.waiter, "subscribe to")
			if got := told.with("subscribe to"); len(got) != 0 {
				t.Errorf("%v: the holder was told %q", test, got)
			}
		}
	})
}
