package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/lockwire/lockwire/conn"
	lockotel "github.com/lockwire/lockwire/contrib/otel"
	lockprom "github.com/lockwire/lockwire/contrib/prometheus"
	"github.com/lockwire/lockwire/lock"
)

// report is the output of a process at its end.
type report struct {
	Process string
	Spans   []span
	Waiting map[string]string // the series about locks and their values, except zeros, while all three want the lock
	Metrics map[string]string // the same at the end
	Log     string
}

// span is a span of OpenTelemetry, reduced to the fields shown.
type span struct {
	Process    string
	Name       string
	ID, Parent string
	Begin, End time.Time
	Notes      []string
}

// start runs this program as a worker.
func start(name, url, parent string) (r report, err error) {
	program, err := os.Executable()
	if err != nil {
		return r, err
	}
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), workerVariable+"="+name, urlVariable+"="+url, traceVariable+"="+parent)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return r, fmt.Errorf("process %s: %w", name, err)
	}
	return r, json.Unmarshal(out, &r)
}

// newTraceParent returns the head of a trace, as a load balancer would send it to all three.
func newTraceParent() string {
	var b [24]byte
	_, _ = rand.Read(b[:])
	return fmt.Sprintf("00-%x-%x-01", b[:16], b[16:])
}

// work is a process: it waits for the lock, works, and reports.
func work(ctx context.Context, name string, out io.Writer) error {
	r := roles[slices.IndexFunc(roles, func(r role) bool { return r.name == name })]
	var log strings.Builder
	spans := &collector{process: name}
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
	telemetry, err := lockotel.New(lockotel.Config{TracerProvider: provider, MeterProvider: noop.NewMeterProvider(), NoCommands: true})
	if err != nil {
		return err
	}
	metrics := lockprom.New(lockprom.Config{})
	registry := prometheus.NewRegistry()
	registry.MustRegister(metrics)

	cfg, err := conn.ParseURL(os.Getenv(urlVariable))
	if err != nil {
		return err
	}
	cfg.Trace = conn.JoinTraces(telemetry.Conn(), metrics.Conn())
	pool, err := conn.Open(ctx, cfg)
	if err != nil {
		return err
	}
	defer pool.Close()
	logger := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{ReplaceAttr: shorten}))
	locks, err := lock.New(pool, lock.Config{
		Name: name, WarnAfter: time.Second, Logger: logger, Trace: lock.JoinTraces(telemetry.Lock(), metrics.Lock()),
	})
	if err != nil {
		return err
	}
	defer locks.Close()

	ctx = propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{"traceparent": os.Getenv(traceVariable)})
	time.Sleep(r.after)
	waiting, cancel := context.WithTimeout(ctx, r.patience)
	defer cancel()
	scraped := make(chan map[string]string, 1)
	time.AfterFunc(r.scrape, func() { scraped <- nonZero(registry) })
	lease, err := locks.Reentrant(lockName).Lock(waiting)
	if err != nil {
		logger.Error("job given up", "error", err)
	} else {
		time.Sleep(r.holds)
		if err := lease.Unlock(ctx); err != nil {
			return err
		}
	}
	return json.NewEncoder(out).Encode(report{Process: name, Spans: spans.taken(), Waiting: <-scraped, Metrics: nonZero(registry), Log: log.String()})
}

// shorten leaves the time out of a line.
func shorten(_ []string, a slog.Attr) slog.Attr {
	if a.Key == slog.TimeKey {
		return slog.Attr{}
	}
	return a
}

// collector keeps the ended spans.
type collector struct {
	process string

	mu    sync.Mutex // guards the following
	spans []span
}

func (c *collector) ExportSpans(_ context.Context, ended []sdktrace.ReadOnlySpan) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range ended {
		kept := span{Process: c.process, Name: s.Name(), ID: s.SpanContext().SpanID().String(), Parent: s.Parent().SpanID().String(), Begin: s.StartTime(), End: s.EndTime()}
		for _, a := range s.Attributes() {
			if key := string(a.Key); key == "lock.name" || key == "lock.owner" || key == "lock.outcome" || key == "lock.attempts" {
				kept.Notes = append(kept.Notes, strings.TrimPrefix(key, "lock.")+"="+a.Value.String())
			}
		}
		if text := s.Status().Description; text != "" {
			kept.Notes = append(kept.Notes, text)
		}
		c.spans = append(c.spans, kept)
	}
	return nil
}

func (*collector) Shutdown(context.Context) error { return nil }

func (c *collector) taken() []span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.spans)
}
