package report_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lockwire/lockwire/bench/report"
)

func spread(f float64) map[string]report.Spread { return spreads("ops/s", f) }

func spreads(name string, f float64) map[string]report.Spread {
	return map[string]report.Spread{name: {Median: f, Min: f / 2, Max: f * 2}}
}

func sample() report.Case {
	return report.Case{
		Group: "clients", Name: "get-tcp-64", Title: "GET", Metrics: []report.Metric{{Name: "ops/s"}}, Rounds: 3,
		Rows: []report.Row{
			{Name: "raw", Kind: "floor", Numbers: spread(4000000)},
			{Name: "go-redis", Kind: "peer", Numbers: spread(500)},
			{Name: "broken", Kind: "peer", Errors: []string{"refused"}},
			{Name: "rueidis", Kind: "peer", Numbers: spread(1000)},
			{Name: "lockwire", Kind: "ours", Numbers: spread(3000)},
		},
	}
}

func TestCollect(t *testing.T) {
	got := report.Collect([]map[string]float64{{"a": 3, "b": 1}, {"a": 1}, {"a": 2, "b": 2}})
	if want := (report.Spread{Median: 2, Min: 1, Max: 3}); got["a"] != want {
		t.Errorf("a = %v, want %v", got["a"], want)
	}
	if want := (report.Spread{Median: 1.5, Min: 1, Max: 2}); got["b"] != want {
		t.Errorf("b = %v, want %v", got["b"], want)
	}
}

func TestLine(t *testing.T) {
	c := sample()
	if got, want := c.Line(), "get-tcp-64 3.00 0.00"; got != want {
		t.Errorf("Line = %q, want %q", got, want)
	}
	c.Metrics[0].Lower = true // as if it were a time: go-redis is best then
	if got, want := c.Line(), "get-tcp-64 0.17 1333.33"; got != want {
		t.Errorf("Line = %q, want %q", got, want)
	}
	c.Rows = c.Rows[4:]
	if got, want := c.Line(), "get-tcp-64 - -"; got != want {
		t.Errorf("Line = %q, want %q", got, want)
	}
}

func TestTable(t *testing.T) {
	var b bytes.Buffer
	c := sample()
	c.Table(&b)
	last := -1
	for _, want := range []string{
		"| **lockwire** | 3000 (1500–6000) |  |", "| rueidis | 1000 (500–2000) | 3.00 |", "| go-redis | 500 (250–1000) | 6.00 |",
		"| broken | – | – |", "| *floor: raw* | 4 000 000 (2 000 000–8 000 000) | 0.00 |", "broken failed in 1 of 3 rounds: refused",
	} {
		at := strings.Index(b.String(), want)
		if at <= last {
			t.Errorf("%q is missing, or out of order, in\n%s", want, b.String())
		}
		last = at
	}
}

func TestGoals(t *testing.T) {
	var r report.Results
	r.Put(sample())
	r.Put(report.Case{Name: "notice", Rows: []report.Row{{Name: "lockwire", Kind: "ours", Numbers: map[string]report.Spread{
		"hand-over p50 µs": {Median: 100}, "hand-over p99 µs": {Median: 210},
	}}}})
	var b bytes.Buffer
	r.Goals(&b)
	for _, want := range []string{
		"| `get-tcp-64` | ops/s 3.00 (≥ 3 × rueidis); ops/s 6.00 (≥ 5 × go-redis); ops/s 3.00 (≥ 1.1 × the best peer) |",
		"## Goals missed: 1, reached: 3\n",
		"| `notice` | hand-over p99 µs | ≤ 2 × hand-over p50 µs | 2.10 |",
		"`set-tcp-64`, ",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is missing in\n%s", want, b.String())
		}
	}
}

func TestWrite(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, report.File)
	r, err := report.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	r.Put(sample())
	r.Put(report.Case{Name: "gone"})
	c := sample()
	c.Title = "GET again"
	r.Put(c)
	r.Sort([]string{"other", "get-tcp-64"})
	if err := r.Save(path); err != nil {
		t.Fatal(err)
	}
	if r, err = report.Load(path); err != nil || len(r.Cases) != 1 || r.Cases[0].Title != "GET again" {
		t.Fatalf("loaded %d cases, %v; want the one that was put last", len(r.Cases), err)
	}
	if err := r.Write(dir); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"RESULTS.md": "ops/s 3.00 (", "TABLES.md": "| rueidis | 1000 (500–2000) | 3.00 |", "charts/get.svg": "floor: raw"} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s: %v; want %q in it", name, err, want)
		}
	}
}
