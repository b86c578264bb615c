package lockprom_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/lockwire/lockwire/conn"
	lockprom "github.com/lockwire/lockwire/contrib/prometheus"
	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/internal/lockscripts"
	"github.com/lockwire/lockwire/lock"
)

// program is a client of a server in virtual time, and the page that Prometheus scrapes.
type program struct {
	*lock.Client
	pool *conn.Pool
	srv  *fakeredis.Server
	page http.Handler
}

func run(t *testing.T, cfg lockprom.Config, fn func(t *testing.T, p *program)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := &program{srv: fakeredis.New()}
		defer p.srv.Close()
		p.srv.Interpret(lockscripts.Interpret)
		metrics, registry := lockprom.New(cfg), prometheus.NewPedanticRegistry()
		registry.MustRegister(metrics)
		p.page = promhttp.HandlerFor(registry, promhttp.HandlerOpts{ErrorHandling: promhttp.HTTPErrorOnError})
		pool, err := conn.Open(t.Context(), conn.Config{Dial: p.srv.Dial, Trace: metrics.Conn()})
		if err != nil {
			t.Fatal(err)
		}
		defer pool.Close()
		p.pool = pool
		metrics.Pool("locks", pool.Stats)
		if p.Client, err = lock.New(pool, lock.Config{Trace: metrics.Lock(), HandOverFor: time.Second}); err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		fn(t, p)
	})
}

// want scrapes the page, and fails the test unless it has the lines.
func (p *program) want(t *testing.T, lines ...string) {
	t.Helper()
	w := httptest.NewRecorder()
	p.page.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	page := "\n" + w.Body.String()
	for _, line := range lines {
		if !strings.Contains(page, "\n"+line+"\n") {
			name, _, _ := strings.Cut(line, "{")
			var near []string
			for l := range strings.Lines(page) {
				if strings.HasPrefix(l, name) {
					near = append(near, l)
				}
			}
			t.Errorf("no line %s\n%s", line, strings.Join(near, ""))
		}
	}
}

func TestScrape(t *testing.T) {
	group := func(name string) string { kind, _, _ := strings.Cut(name, ":"); return kind }
	run(t, lockprom.Config{Group: group}, func(t *testing.T, p *program) {
		lease, err := p.Reentrant("order:1").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := p.Reentrant("order:1").Do(t.Context(), func(context.Context) error { return nil }); err != nil {
				t.Error(err)
			}
		})
		time.Sleep(100 * time.Millisecond)
		if _, err := p.Reentrant("order:1").TryLock(t.Context()); !errors.Is(err, lock.ErrNotAcquired) {
			t.Fatal(err)
		}
		p.want(t, `lockwire_locks_held{group="order",kind="reentrant"} 1`, `lockwire_lock_waiting{group="order",kind="reentrant"} 1`,
			// Without a 0 before it Prometheus would not see the first loss as an increase.
			`lockwire_lock_losses_total{group="order",kind="reentrant",reason="forced"} 0`,
			`lockwire_lock_losses_total{group="order",kind="reentrant",reason="expired"} 0`,
			`lockwire_lock_grants_unacknowledged_total{group="order",kind="reentrant"} 0`)
		if err := lease.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		wg.Wait()
		lost, err := p.Reentrant("stock:1").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(11 * time.Second)
		p.srv.Do("DEL", "stock:1")
		time.Sleep(10 * time.Second)
		if lost.Err() == nil {
			t.Fatal("the lock is not lost")
		}
		_, _ = p.pool.Do(t.Context(), "NOSUCH")
		p.want(t,
			`lockwire_locks_held{group="order",kind="reentrant"} 0`,
			`lockwire_locks_held{group="stock",kind="reentrant"} 0`,
			`lockwire_lock_waiting{group="order",kind="reentrant"} 0`,
			`lockwire_lock_acquire_duration_seconds_count{group="order",kind="reentrant",outcome="acquired"} 2`,
			`lockwire_lock_acquire_duration_seconds_count{group="order",kind="reentrant",outcome="refused"} 1`,
			`lockwire_lock_hold_duration_seconds_count{group="order",kind="reentrant",outcome="released"} 2`,
			`lockwire_lock_hold_duration_seconds_count{group="stock",kind="reentrant",outcome="lost"} 1`,
			`lockwire_lock_losses_total{group="stock",kind="reentrant",reason="forced"} 1`,
			`lockwire_lock_handovers_total{group="order",kind="reentrant"} 1`,
			`lockwire_lock_renewals_total{outcome="renewed"} 2`,
			`lockwire_lock_renewals_total{outcome="gone"} 1`,
			`lockwire_lock_lease_seconds 30`,
			`lockwire_connections{pool="locks",state="used"} 1`,
			`lockwire_connection_requests_pending{pool="locks"} 0`,
			`lockwire_dial_duration_seconds_count{error="",server="127.0.0.1:6379"} 2`,
			`lockwire_command_duration_seconds_count{command="NOSUCH",error="ERR",script="",server="127.0.0.1:6379"} 1`,
		)
	})
}

// A candidate behind a leader is no job that is stuck.
func TestScrapeStandby(t *testing.T) {
	run(t, lockprom.Config{}, func(t *testing.T, p *program) {
		lease, err := p.Fenced("billing").Lock(t.Context(), lock.Standby())
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for _, opts := range [][]lock.Option{nil, {lock.Standby()}, {lock.Standby()}} {
			wg.Go(func() {
				if err := p.Fenced("billing").Do(t.Context(), func(context.Context) error { return nil }, opts...); err != nil {
					t.Error(err)
				}
			})
		}
		time.Sleep(time.Minute)
		p.want(t, `lockwire_lock_waiting{group="",kind="fenced"} 1`, `lockwire_lock_standby{group="",kind="fenced"} 2`)
		if err := lease.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		wg.Wait()
		p.want(t, `lockwire_lock_waiting{group="",kind="fenced"} 0`, `lockwire_lock_standby{group="",kind="fenced"} 0`)
	})
}

func TestScrapePendingRelease(t *testing.T) {
	run(t, lockprom.Config{}, func(t *testing.T, p *program) {
		lease, err := p.Reentrant("job").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		p.srv.Latency(time.Minute)
		if err := lease.Unlock(t.Context()); !errors.Is(err, lock.ErrUncertain) {
			t.Fatalf("Unlock() = %v", err)
		}
		p.want(t, `lockwire_lock_releases_pending{group="",kind="reentrant"} 1`)
		p.srv.Latency(0)
		time.Sleep(2 * time.Minute)
		p.want(t, `lockwire_lock_releases_pending{group="",kind="reentrant"} 0`, `lockwire_locks_held{group="",kind="reentrant"} 0`)
	})
}

// A group that cuts a name inside a character is no reason to panic in a caller of Unlock.
func TestGroupCutsACharacter(t *testing.T) {
	run(t, lockprom.Config{Group: func(name string) string { return name[:4] }}, func(t *testing.T, p *program) {
		lease, err := p.Reentrant("订单:1").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		p.want(t, "lockwire_locks_held{group=\"订\ufffd\",kind=\"reentrant\"} 1")
		if err := lease.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
		p.want(t, "lockwire_locks_held{group=\"订\ufffd\",kind=\"reentrant\"} 0")
	})
}
