package main

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lockwire/lockwire/lock"
)

func TestShow(t *testing.T) {
	at := func(ms int) time.Time { return time.UnixMilli(int64(1000 + ms)) }
	seen := lock.Inspection{Name: "job", Listening: 2, Info: lock.Info{Locked: true, Holders: []lock.Holder{{Owner: "1d:7", Remaining: 29 * time.Second}, {Owner: "2e:1"}}},
		Clients: []lock.ClientProcess{{ID: "1d", Connected: true, Name: "nightly", Addr: "host:1"}, {ID: "2e"}}}
	var out strings.Builder
	show(&out, seen, []report{
		{Process: "web-2", Log: "a line\n", Waiting: map[string]string{"waiting": "1"}, Spans: []span{{Process: "web-2", Name: "lock.acquire", Begin: at(200), End: at(400), Notes: []string{"name=job"}}}},
		{Process: "nightly", Waiting: map[string]string{"held": "1"}, Spans: []span{{Process: "nightly", Name: "lock.hold", Begin: at(0), End: at(400)}}},
	})
	text := out.String()
	space := strings.Repeat(" ", 90-len("waiting"))
	for _, want := range []string{
		"  job is held by 1d:7, whose lease has 29s left: the process nightly at host:1, alive; 2 clients listen for the release\n",
		"  job is held by 2e:1, whose lease has 0s left: not connected; ",
		"  web-2      a line\n",
		"  nightly    lock.hold     |" + strings.Repeat("=", 40) + " |  400.0 ms",
		"  web-2      lock.acquire  |" + strings.Repeat(" ", 20) + strings.Repeat("=", 20) + " |  200.0 ms  name=job\n",
		"      web-2    nightly\n",
		"\n  waiting" + space + "          1          .\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%s\nlacks %q", text, want)
		}
	}
	if strings.Index(text, "lock.hold     ") > strings.Index(text, "lock.acquire  ") {
		t.Errorf("spans in the wrong order:\n%s", text)
	}
}

func TestNonZero(t *testing.T) {
	registry := prometheus.NewRegistry()
	for name, value := range map[string]float64{"lockwire_lock_a": 1, "lockwire_lock_b": 0, "go_threads": 7} {
		g := prometheus.NewGauge(prometheus.GaugeOpts{Name: name, ConstLabels: prometheus.Labels{"group": "", "kind": "fair"}})
		g.Set(value)
		registry.MustRegister(g)
	}
	if series := nonZero(registry); len(series) != 1 || series[`lockwire_lock_a{kind="fair"}`] != "1" {
		t.Errorf("nonZero() = %q", series)
	}
}
