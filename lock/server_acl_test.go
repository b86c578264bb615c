package lock_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/lockwire/lockwire/internal/redistest"
	"github.com/lockwire/lockwire/lock"
)

// A user with just the rules that README.md names can use each kind.
func TestServerRulesOfUsers(t *testing.T) {
	redistest.Run(t, func(t *testing.T, srv *redistest.Server) {
		if !srv.AtLeast(6, 2) {
			return // there are no rules for channels
		}
		as := rightsServer(t, srv, rulesOfReadme(t))
		a, log := as("app")
		b, _ := as("app")
		handOver(t, a, b, "orders:1")
		ctx := t.Context()
		for name, l := range map[string]interface {
			Lock(ctx context.Context, opts ...lock.Option) (*lock.Lease, error)
		}{
			"fair": a.Fair("orders:2"), "fenced": a.Fenced("orders:3"), "spin": a.Spin("orders:4", lock.Backoff{}), "plain": a.Plain("orders:5"),
			"read": a.ReadWrite("orders:6").Read(), "write": a.ReadWrite("orders:7").Write(),
		} {
			lease, err := l.Lock(ctx)
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			if err := lease.Unlock(ctx); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		mustUnlock(t, mustLock(t, a, "orders:8", lock.As(a.NewOwner())))
		mustUnlock(t, mustLock(t, a, "orders:kept", lock.AtLeast(time.Second)))
		mustLock(t, a, "orders:9")
		if forced, err := b.Reentrant("orders:9").ForceUnlock(ctx); err != nil || !forced {
			t.Errorf("ForceUnlock() = %v, %v", forced, err)
		}
		useSynchronizers(t, a)
		if got := log.with("missing"); len(got) != 0 {
			t.Errorf("logged %q", got)
		}
	})
}

// rulesOfReadme are the rules that README.md names, for locks whose names begin with "orders".
func rulesOfReadme(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, after, ok := strings.Cut(string(text), "`~orders")
	rules, _, end := strings.Cut(after, "`")
	if !ok || !end {
		t.Fatal("README.md names no rules")
	}
	return "~orders" + rules
}

func useSynchronizers(t *testing.T, c *lock.Client) {
	t.Helper()
	ctx := t.Context()
	s, p, l := c.Semaphore("orders:10"), c.PermitSemaphore("orders:11"), c.CountDownLatch("orders:12")
	_, err := s.TrySetPermits(ctx, 1)
	_, failed := p.TrySetPermits(ctx, 1)
	_, unset := l.TrySetCount(ctx, 1)
	if err := errors.Join(err, failed, unset, s.Acquire(ctx, 1), s.Release(ctx, 1)); err != nil {
		t.Error(err)
	}
	lease, err := p.Acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(lease.Unlock(ctx), l.CountDown(ctx), l.Wait(ctx)); err != nil {
		t.Error(err)
	}
}
