package dashboard

import (
	"bufio"
	"context"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/lockwire/lockwire/conn"
	lockprom "github.com/lockwire/lockwire/contrib/prometheus"
	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/internal/lockscripts"
	"github.com/lockwire/lockwire/lock"
	"github.com/lockwire/lockwire/resp"
)

var get, unknown = resp.Cmd("GET", "key"), resp.Cmd("NOSUCH")

// program is a client of a server in virtual time, and what Prometheus has scraped from it.
type program struct {
	*lock.Client
	pool    *conn.Pool
	srv     *fakeredis.Server
	metrics *lockprom.Metrics
	page    http.Handler
	others  sync.WaitGroup

	t        *testing.T
	interval time.Duration // between scrapes
	next     time.Time     // scrape
	seen     history
}

// observe runs a program, and returns what Prometheus has scraped from it.
func observe(t *testing.T, interval time.Duration, cfg lock.Config, do func(*testing.T, *program)) history {
	seen := history{}
	synctest.Test(t, func(t *testing.T) {
		p := &program{srv: fakeredis.New(), metrics: lockprom.New(lockprom.Config{}), t: t, interval: interval, seen: seen}
		defer p.srv.Close()
		p.srv.Interpret(lockscripts.Interpret)
		registry := prometheus.NewPedanticRegistry()
		registry.MustRegister(p.metrics)
		p.page = promhttp.HandlerFor(registry, promhttp.HandlerOpts{ErrorHandling: promhttp.HTTPErrorOnError})
		var err error
		if p.pool, err = conn.Open(t.Context(), conn.Config{Dial: p.srv.Dial, Trace: p.metrics.Conn()}); err != nil {
			t.Fatal(err)
		}
		defer p.pool.Close()
		cfg.Trace = p.metrics.Lock()
		if p.Client, err = lock.New(p.pool, cfg); err != nil {
			t.Fatal(err)
		}
		defer p.others.Wait()
		defer p.Close()
		p.next = time.Now()
		do(t, p)
		p.pass(0)
	})
	return seen
}

// pass lets time pass, and scrapes when it is due.
func (p *program) pass(d time.Duration) {
	for end := time.Now().Add(d); ; p.next = p.next.Add(p.interval) {
		time.Sleep(min(time.Until(p.next), time.Until(end)))
		if time.Now().Before(p.next) {
			return
		}
		p.scrape()
	}
}

func (p *program) scrape() {
	w := httptest.NewRecorder()
	p.page.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	reader := parser.NewParser(parser.Options{})
	for lines := bufio.NewScanner(w.Body); lines.Scan(); {
		line := lines.Text()
		if strings.HasPrefix(line, "#") {
			continue
		}
		end := strings.LastIndexByte(line, ' ')
		name, err := reader.ParseMetric(line[:end])
		if err != nil {
			p.t.Fatal(err)
		}
		value, err := strconv.ParseFloat(line[end+1:], 64)
		if err != nil {
			p.t.Fatal(err)
		}
		p.seen.add(labels.NewBuilder(name).Set("job", "jobs").Set("instance", "web-1").Labels(), time.Now(), value)
	}
}

// mustLock takes a lock, renewed until the end of the program.
func (p *program) mustLock(t *testing.T, name string) *lock.Lease {
	t.Helper()
	lease, err := p.Reentrant(name).Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

func (p *program) hold(t *testing.T, name string, d time.Duration) {
	t.Helper()
	lease := p.mustLock(t, name)
	p.pass(d)
	if err := lease.Unlock(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// wait waits in vain for a lock.
func (p *program) wait(t *testing.T, name string, d time.Duration) {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	p.others.Go(func() {
		defer cancel()
		if _, err := p.Reentrant(name).Lock(ctx); err == nil {
			t.Error("the lock is free")
		}
	})
	p.pass(d)
}

// away cuts the server off for a time.
func (p *program) away(d time.Duration) {
	p.srv.Refuse(true)
	p.srv.KillConns(nil)
	p.pass(d)
	p.srv.Refuse(false)
}

// rounds reports the renewals of a lease of 30 s for ten minutes, of which one is late: in virtual time none is.
func (p *program) rounds(late time.Duration) {
	for i := range 60 {
		round := lock.RenewalInfo{Renewed: 1, Lease: 30 * time.Second}
		if i == 20 {
			round.Lateness = late
		}
		p.metrics.Lock().Renewal(round)
		p.pass(10 * time.Second)
	}
}
