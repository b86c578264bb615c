package report

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// shown are the cases in bench/README.md, with their titles there.
var shown = []struct{ test, title string }{
	{"get-tcp-1", "GET, 1 caller"},
	{"get-tcp-8", "GET, 8 callers"},
	{"get-tcp-64", "GET, 64 callers"},
	{"get-tcp-512", "GET, 512 callers"},
	{"set-tcp-64", "SET, 64 callers"},
	{"eval-tcp-1", "EVALSHA, 1 caller"},
	{"eval-tcp-64", "EVALSHA, 64 callers"},
	{"batch-tcp-1", "batches of 100 GETs, 1 caller"},
	{"batch-tcp-8", "batches of 100 GETs, 8 callers"},
	{"fan-in", "10,000 messages/s to 1,000 subscriptions"},
	{"codec-integer", "decode an integer"},
	{"get-16k-8", "GET 16 KiB, 8 callers"},
	{"get-1m-8", "GET 1 MiB, 8 callers"},
	{"set-1m-8", "SET 1 MiB, 8 callers"},
	{"codec-array100", "decode an array of 100"},
	{"typed-array100", "decode an array of 100 to strings"},
	{"lock-own-1", "lock and unlock, 1 caller"},
	{"lock-own-8", "lock and unlock, 8 callers, own names"},
	{"lock-own-64", "lock and unlock, 64 callers, own names"},
	{"contended-1x10", "one lock, 10 callers"},
	{"contended-1x100", "one lock, 100 callers"},
	{"contended-4x25", "one lock, 4 processes × 25 callers"},
	{"herd-100", "one lock, 100 clients, held for 5 ms"},
	{"herd-1000", "one lock, 1,000 clients, held for 5 ms"},
	{"far-4x10", "one lock, two of four processes further away"},
	{"notice", "one waiter notices the release"},
	{"footprint-build", "size of a small program"},
}

// The lines between which Readme writes.
const (
	readmeBegin = "<!-- make bench writes what follows -->\n"
	readmeEnd   = "<!-- until here -->\n"
)

// Readme writes the main chart and a table into the file at path, between two required lines. Charts are in the folder dir.
func (r *Results) Readme(path, dir string) error {
	dir, err := filepath.Rel(filepath.Dir(path), filepath.Join(dir, charts))
	if err != nil {
		return err
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	before, rest, ok := strings.Cut(string(text), readmeBegin)
	_, after, closed := strings.Cut(rest, readmeEnd)
	if !ok || !closed {
		return fmt.Errorf("report: %s has no place for results", path)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\n![%s](%s/%s)\n\n", leadsTitle, filepath.ToSlash(dir), leadsFile)
	fmt.Fprint(&b, "| | by | lockwire | best peer | | lead | lead over the best floor |\n|---|---|---:|---:|---|---:|---:|\n")
	for _, s := range shown {
		c := r.Case(s.test)
		if c == nil || len(c.Metrics) == 0 {
			continue
		}
		metric := c.Metrics[0].Name
		us, mine := c.Best(ours, metric)
		best, theirs := c.Best(peer, metric)
		if us == nil || best == nil {
			continue
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s |\n", s.title, metric, number(mine), number(theirs), best.Name,
			c.ratio(peer), c.ratio(floor))
	}
	fmt.Fprintln(&b)
	return os.WriteFile(path, []byte(before+readmeBegin+b.String()+readmeEnd+after), 0o644)
}
