package report

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// goal is a ratio or a number for a case to reach.
type goal struct {
	test, metric string
	us           string  // our contender in the goal, "" for the default contender
	against      string  // bestPeer, bestFloor, the name of a contender, or "" for the number itself
	most         bool    // limit is a maximum, not a minimum
	limit        float64 // of lockwire's number divided by the other's
}

// The rivals in a goal.
const (
	bestPeer  = "the best peer"
	bestFloor = "the best floor"
	itself    = ""
)

// goals are the project's goals.
func goals() []goal {
	const (
		ops, cpu, allocs, ns = "ops/s", "client CPU µs/op", "allocs/op", "ns/op"
	)
	list := []goal{
		{"codec-simple", ns, "", bestPeer, true, 0.9}, {"codec-simple", allocs, "", itself, true, 0},
		{"codec-integer", ns, "", bestPeer, true, 0.9}, {"codec-integer", allocs, "", itself, true, 0},
		{"codec-bulk64", ns, "", bestPeer, true, 0.9}, {"codec-bulk64", allocs, "", itself, true, 1},
		{"codec-bulk16k", allocs, "", itself, true, 1},
		{"codec-array100", ns, "", bestPeer, true, 0.5}, {"codec-array100", allocs, "", itself, true, 3},
		{"typed-array100", ns, "", bestPeer, true, 0.9},
		{"codec-map", ns, "", bestPeer, true, 0.9}, {"codec-map", allocs, "", itself, true, 4},
	}
	for _, job := range []struct {
		name   string
		allocs float64
	}{{"get", 1}, {"set", 0}, {"eval", 0}} {
		alone := job.name + "-tcp-1"
		list = append(list, goal{alone, ops, "", bestPeer, false, 0.95}, goal{alone, cpu, "", bestPeer, true, 1},
			goal{alone, allocs, "", itself, true, job.allocs})
	}
	for _, job := range []string{"get", "set"} {
		many, most := job+"-tcp-64", job+"-tcp-512"
		list = append(list, goal{job + "-tcp-8", ops, "", bestPeer, false, 1},
			goal{many, ops, "", "rueidis", false, 3}, goal{many, ops, "", "go-redis", false, 5}, goal{many, ops, "", bestPeer, false, 1.1},
			goal{most, ops, "", "rueidis", false, 6}, goal{most, ops, "", bestPeer, false, 1.1})
	}
	for _, job := range []string{"get", "set"} {
		for _, callers := range []string{"1", "8"} {
			list = append(list, goal{job + "-16k-" + callers, ops, "", bestPeer, false, 1}, goal{job + "-1m-" + callers, ops, "", bestPeer, false, 1},
				goal{job + "-1m-" + callers, "B/op", "", itself, true, 1.1 * (1 << 20)})
		}
		for _, place := range []string{"both", "free"} {
			list = append(list, goal{job + "-" + place + "-8", ops, "", bestPeer, false, 1}, goal{job + "-" + place + "-8", "p99 µs", "", bestPeer, true, 1})
		}
	}
	list = append(list, goal{"batch-tcp-1", ops, "", bestPeer, false, 1.1}, goal{"batch-tcp-8", ops, "", bestPeer, false, 1.1})
	list = append(list, lockGoals()...)
	return append(list, footprintGoals()...)
}

func lockGoals() []goal {
	const (
		ops, cpu  = "ops/s", "client CPU µs/op"
		fair, p50 = "Jain", "hand-over p50 µs"
		p99, sent = "hand-over p99 µs", "commands sent/op"
		hands     = "hand-overs/s"
		held      = "held %"
	)
	list := []goal{
		{"lock-own-1", ops, "", bestPeer, false, 1}, {"lock-own-1", cpu, "", bestPeer, true, 1}, {"lock-own-1", "allocs/op", "", itself, true, 8},
		{"lock-own-8", ops, "", bestPeer, false, 1},
		{"lock-own-64", ops, "", bestPeer, false, 2.5}, {"lock-own-64", cpu, "", bestPeer, true, 0.4},
		{"contended-1x10", hands, "", "BLPOP", false, 10}, {"contended-1x10", fair, "", itself, false, 0.99},
		{"contended-1x100", hands, "", "BLPOP", false, 10}, {"contended-1x100", fair, "", itself, false, 0.99},
		{"contended-4x25", ops, "", bestPeer, false, 3},
		{"contended-4x25", sent, "", itself, true, 3},
		{"contended-4x25", fair, "", itself, false, 0.95}, {"contended-4x25", "Jain of processes", "", itself, false, 0.95},
		{"contended-rtt-1x10", ops, "", bestPeer, false, 100}, {"contended-rtt-2x10", ops, "", bestPeer, false, 5},
		{"herd-100", sent, "", itself, true, 6}, {"herd-100", held, "", itself, false, 90}, {"herd-100", fair, "", itself, false, 0.95},
		{"herd-100", "starved", "", itself, true, 0},
		{"herd-1000", sent, "", itself, true, 10}, {"herd-1000", held, "", itself, false, 85}, {"herd-1000", fair, "", itself, false, 0.95},
		{"herd-1000", "starved", "", itself, true, 0},
		{"notice", p50, "", "Redisson by hand", true, 1.1}, {"notice", p99, "", p50, true, 2},
		{"handover-rtt-2x1", p50, "", "BLPOP", true, 1.15}, {"handover-rtt-2x1", p99, "", p50, true, 2},
		{"scale-leases", "client CPU %", "", itself, true, 10}, {"scale-leases", "late by PTTL %", "", itself, true, 15},
		{"scale-leases", "lost", "", itself, true, 0},
		{"scale-waiters", "connections", "", itself, true, 2},
	}
	for _, proc := range []string{"1", "2", "3", "4"} {
		list = append(list, goal{"far-4x10", "process " + proc + " %", "", itself, false, 20})
	}
	for _, name := range []string{"slow-1x4-0", "slow-1x4-5", "slow-1x4-50", "slow-1x1-0", "slow-1x1-5", "slow-1x1-50", "slow-2x4-5", "slow-4x4-5"} {
		list = append(list, goal{name, "share of an equal one's", "", itself, false, 0.5})
	}
	for _, name := range []string{"contended-1x10", "contended-1x100", "contended-4x25", "herd-100", "herd-1000", "far-4x10", "slow-2x4-5"} {
		list = append(list, goal{name, "overlaps", "", itself, true, 0})
	}
	return list
}

func footprintGoals() []goal {
	return []goal{
		{"footprint-build", "binary KiB", "", "net and crypto/tls alone", true, 1.05},
		{"footprint-build", "other modules", "", itself, true, 1},
		{"footprint-build", "binary KiB", "", "redigo", true, 1},
		{"footprint-build", "binary KiB", "lockwire without TLS", "radix", true, 1},
		{"footprint-run", "goroutines", "", itself, true, 2},
		{"footprint-run", "KiB per idle client", "", itself, true, 64},
	}
}

// check returns the measured number, and whether the number reaches the goal. ok is false if a number is missing.
func (g goal) check(r *Results) (measured float64, met, ok bool) {
	c := r.Case(g.test)
	if c == nil {
		return 0, false, false
	}
	us, mine := c.Best(ours, g.metric)
	if g.us != "" {
		if us = c.Row(g.us); us != nil {
			mine = us.Numbers[g.metric].Median
		}
	}
	if us == nil {
		return 0, false, false
	}
	measured = mine
	if g.against != itself {
		other, found := g.other(c, us)
		if !found || other == 0 {
			return 0, false, false
		}
		measured = mine / other
	}
	if g.most {
		return measured, measured <= g.limit+0.005, true // a number equal to the goal as shown reaches the goal
	}
	return measured, measured >= g.limit-0.005, true
}

// other is the divisor of lockwire's number.
func (g goal) other(c *Case, us *Row) (float64, bool) {
	kinds := map[string]string{bestPeer: peer, bestFloor: floor}
	if kind, ok := kinds[g.against]; ok {
		row, value := c.Best(kind, g.metric)
		return value, row != nil
	}
	if row := c.Row(g.against); row != nil {
		s, ok := row.Numbers[g.metric]
		return s.Median, ok
	}
	s, ok := us.Numbers[g.against] // another number of our own
	return s.Median, ok
}

func (g goal) String() string {
	sign := "≥"
	if g.most {
		sign = "≤"
	}
	if g.against == itself {
		return fmt.Sprintf("%s %s", sign, plain(g.limit))
	}
	return fmt.Sprintf("%s %s × %s", sign, plain(g.limit), g.against)
}

func plain(f float64) string { return fmt.Sprintf("%g", f) }

// Goals writes the missed goals, and then the goals reached, a row for each case.
func (r *Results) Goals(w io.Writer) {
	var missed, unmeasured, cases []string
	reached := map[string][]string{}
	met := 0
	for _, g := range goals() {
		name := "`" + g.test + "`"
		if g.us != "" {
			name += " " + g.us
		}
		measured, ok, known := g.check(r)
		switch {
		case !known && !slices.Contains(unmeasured, name):
			unmeasured = append(unmeasured, name)
		case known && !ok:
			missed = append(missed, fmt.Sprintf("| %s | %s | %s | %s |\n", name, g.metric, g, number(measured)))
		case known:
			if reached[name] == nil {
				cases = append(cases, name)
			}
			met++
			reached[name] = append(reached[name], fmt.Sprintf("%s %s (%s)", g.metric, number(measured), g))
		}
	}
	fmt.Fprintf(w, "## Goals missed: %d, reached: %d\n\n", len(missed), met)
	fmt.Fprint(w, "A number is lockwire's divided by the other's, or lockwire's own.\n\n")
	if len(missed) > 0 {
		fmt.Fprint(w, "| missed | number | goal | measured |\n|---|---|---|---:|\n", strings.Join(missed, ""), "\n")
	}
	if len(unmeasured) > 0 {
		fmt.Fprintf(w, "Not measured: %s.\n\n", strings.Join(unmeasured, ", "))
	}
	fmt.Fprint(w, "| reached | numbers, and the goals |\n|---|---|\n")
	for _, name := range cases {
		fmt.Fprintf(w, "| %s | %s |\n", name, strings.Join(reached[name], "; "))
	}
	fmt.Fprintln(w)
}
