package main

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

func TestShow(t *testing.T) {
	at := func(ms int) time.Time { return time.UnixMilli(int64(1000 + ms)) }
	var out strings.Builder
	err := show(&out, []report{
		{Process: "web-2", Log: "a line\n", Metrics: []string{"waiting 1"}, Spans: []span{{Process: "web-2", Name: "lock.acquire", Begin: at(200), End: at(400), Notes: []string{"name=job"}}}},
		{Process: "nightly", Spans: []span{{Process: "nightly", Name: "lock.hold", Begin: at(0), End: at(400)}}},
	})
	text := out.String()
	for _, want := range []string{
		"  web-2      a line\n",
		"  nightly    lock.hold     |" + strings.Repeat("=", 40) + " |  400.0 ms",
		"  web-2      lock.acquire  |" + strings.Repeat(" ", 20) + strings.Repeat("=", 20) + " |  200.0 ms  name=job\n",
		"THE METRICS of web-2\n  waiting 1\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%s\nlacks %q", text, want)
		}
	}
	if err != nil || strings.Index(text, "lock.hold     ") > strings.Index(text, "lock.acquire  ") {
		t.Errorf("%v; spans in the wrong order:\n%s", err, text)
	}
}

func TestNonZero(t *testing.T) {
	registry := prometheus.NewRegistry()
	for name, value := range map[string]float64{"lockwire_lock_a": 1, "lockwire_lock_b": 0, "go_threads": 7} {
		g := prometheus.NewGauge(prometheus.GaugeOpts{Name: name})
		g.Set(value)
		registry.MustRegister(g)
	}
	lines, err := nonZero(registry)
	if err != nil || len(lines) != 1 || lines[0] != "lockwire_lock_a 1" {
		t.Errorf("nonZero() = %q, %v", lines, err)
	}
}
