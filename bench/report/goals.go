package report

import (
	"fmt"
	"io"
)

// goal is a ratio or a number that a case should reach.
type goal struct {
	test, metric string
	us           string  // the contender of ours that it is about, "" for the one that is always there
	against      string  // bestPeer, bestFloor, the name of a contender, or "" for the number itself
	most         bool    // limit is the most that it may be, not the least
	limit        float64 // of lockwire's number divided by the other's
}

// What a goal may be against.
const (
	bestPeer  = "the best peer"
	bestFloor = "the best floor"
	itself    = ""
)

// goals are those that the project has set itself.
func goals() []goal {
	const (
		ops, cpu, allocs, ns = "ops/s", "client CPU µs/op", "allocs/op", "ns/op"
	)
	list := []goal{
		{"codec-simple", ns, "", bestPeer, true, 0.9}, {"codec-simple", allocs, "", itself, true, 0},
		{"codec-integer", ns, "", bestPeer, true, 0.9}, {"codec-integer", allocs, "", itself, true, 0},
		{"codec-bulk64", ns, "", bestPeer, true, 0.9}, {"codec-bulk64", allocs, "", itself, true, 1},
		{"codec-bulk16k", ns, "", bestPeer, true, 0.9}, {"codec-bulk16k", allocs, "", itself, true, 1},
		{"codec-array100", ns, "", bestPeer, true, 0.4}, {"codec-array100", allocs, "", itself, true, 3},
		{"codec-map", ns, "", bestPeer, true, 0.6}, {"codec-map", allocs, "", itself, true, 4},
	}
	for _, job := range []struct {
		name   string
		allocs float64
	}{{"get", 1}, {"set", 0}, {"eval", 0}} {
		alone := job.name + "-tcp-1"
		list = append(list, goal{alone, ops, "", bestPeer, false, 1}, goal{alone, cpu, "", bestPeer, true, 1},
			goal{alone, allocs, "", itself, true, job.allocs})
	}
	for _, job := range []string{"get", "set"} {
		many, most := job+"-tcp-64", job+"-tcp-512"
		list = append(list, goal{job + "-tcp-8", ops, "", bestPeer, false, 1},
			goal{many, ops, "", "rueidis", false, 3}, goal{many, ops, "", "go-redis", false, 5}, goal{many, ops, "", bestPeer, false, 1.1},
			goal{most, ops, "", "rueidis", false, 6}, goal{most, ops, "", bestPeer, false, 1.1})
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
	)
	return []goal{
		{"lock-own-1", ops, "", bestPeer, false, 1}, {"lock-own-1", cpu, "", bestPeer, true, 1}, {"lock-own-1", "allocs/op", "", itself, true, 8},
		{"lock-own-64", ops, "", bestPeer, false, 2}, {"lock-own-64", cpu, "", bestPeer, true, 0.4},
		{"contended-1x10", hands, "", "rueidislock", false, 2.5}, {"contended-1x10", hands, "", "BLPOP", false, 0.9},
		{"contended-1x10", fair, "", itself, false, 0.99},
		{"contended-1x100", hands, "", "rueidislock", false, 2.5}, {"contended-1x100", hands, "", "BLPOP", false, 0.9},
		{"contended-1x100", fair, "", itself, false, 0.99},
		{"contended-4x25", ops, "", bestPeer, false, 1.3}, {"contended-4x25", hands, "", bestPeer, false, 1.3},
		{"contended-4x25", sent, "", itself, true, 3},
		{"contended-4x25", fair, "", itself, false, 0.95}, {"contended-4x25", "Jain of processes", "", itself, false, 0.95},
		{"contended-1x10", "overlaps", "", itself, true, 0}, {"contended-1x100", "overlaps", "", itself, true, 0},
		{"contended-4x25", "overlaps", "", itself, true, 0},
		{"notice", p50, "", "Redisson by hand", true, 1.1}, {"notice", p99, "", p50, true, 2},
		{"scale-leases", "client CPU %", "", itself, true, 10}, {"scale-leases", "late by PTTL %", "", itself, true, 15},
		{"scale-leases", "lost", "", itself, true, 0},
		{"scale-waiters", "connections", "", itself, true, 2}, {"scale-waiters", "KiB per waiter", "", itself, true, 4},
	}
}

func footprintGoals() []goal {
	return []goal{
		{"footprint-build", "binary KiB", "", "net and crypto/tls alone", true, 1.05},
		{"footprint-build", "other modules", "", itself, true, 1},
		{"footprint-build", "binary KiB", "", "redigo", true, 1},
		{"footprint-build", "binary KiB", "lockwire without TLS", "radix", true, 1},
		{"footprint-run", "goroutines", "", itself, true, 2},
		{"footprint-run", "KiB per idle client", "", itself, true, 64},
		{"footprint-run", "first reply ms", "", "redigo", true, 1},
	}
}

// check returns what was measured, and whether it reaches the goal. ok is false if something is missing.
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
		return measured, measured <= g.limit+0.005, true // what shows as the goal is the goal
	}
	return measured, measured >= g.limit-0.005, true
}

// other is the number that lockwire's is divided by.
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

// Goals writes what was to be reached beside what was.
func (r *Results) Goals(w io.Writer) {
	fmt.Fprint(w, "| case | number | goal | measured | |\n|---|---|---|---:|---|\n")
	for _, g := range goals() {
		measured, met, ok := g.check(r)
		name, text, verdict := g.test, "not measured", ""
		if g.us != "" {
			name += ", " + g.us
		}
		if ok {
			text, verdict = number(measured), "**missed**"
			if met {
				verdict = "reached"
			}
		}
		fmt.Fprintf(w, "| %s | %s | %s | %s | %s |\n", name, g.metric, g, text, verdict)
	}
	fmt.Fprintln(w)
}
