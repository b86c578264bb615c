package main

import (
	"fmt"
	"slices"
	"time"
)

// check is a condition at the end.
type check struct {
	name string
	ok   bool
	text string
}

const (
	// earliest is by how much a lock may seem to be taken too early: milliseconds are rounded, clocks differ.
	earliest = 10 * time.Millisecond
	// latest is how long after the end of a whole lease the lock of a dead worker must have been taken at the latest.
	latest = 500 * time.Millisecond
	// stepped is by how much the wall clock may differ from the monotonic one before holds cannot be compared.
	stepped = 10 * time.Millisecond
)

// verdict judges the run by all reports, by the counter on the server, and by changes of the machine's clock meanwhile.
func (s *score) verdict(lease time.Duration, counter int64, step time.Duration) []check {
	found := overlaps(s.done)
	acquired, counted := totals(s.workers)
	checks := []check{
		{"overlaps", len(found) == 0, fmt.Sprintf("%s in %s holds", thousands(len(found)), thousands(len(s.done)))},
		{"counter", int(counter) == counted, fmt.Sprintf("%s on the server, %s counted by the workers",
			thousands(int(counter)), thousands(counted))},
		s.takeoverCheck(lease),
	}
	if len(found) > 0 {
		a, b := found[0].first, found[0].second
		checks[0].text += fmt.Sprintf("; worker %d came %s before worker %d had left",
			b.worker+1, milliseconds(a.until.Sub(b.from)), a.worker+1)
	}
	if acquired != len(s.done) || acquired == 0 {
		checks = append(checks, check{"holds", false, fmt.Sprintf("%s began and %s ended",
			thousands(acquired), thousands(len(s.done)))})
	}
	if step.Abs() > stepped {
		checks = append(checks, check{"clock", false,
			fmt.Sprintf("set by %v during the run, so that holds cannot be compared", step)})
	}
	return checks
}

func (s *score) takeoverCheck(lease time.Duration) check {
	c := check{name: "takeover"}
	k := s.killing
	switch {
	case k == nil || !k.complete:
		c.text = "none"
	case k.from.Sub(k.asked) < k.left-earliest:
		c.text = fmt.Sprintf("%s after SIGKILL, although the lease had %s left", seconds(k.gap()), seconds(k.left))
	case k.gap() > lease+latest:
		c.text = fmt.Sprintf("only %s after SIGKILL, with a lease of %v", seconds(k.gap()), lease)
	default:
		c.ok = true
		c.text = fmt.Sprintf("%s after SIGKILL, when the lease had %s left", seconds(k.gap()), seconds(k.left))
	}
	return c
}

// handover describes the speed of hand-overs from a worker to the next waiting worker; "" without hand-overs.
func (s *score) handover() string {
	slices.SortFunc(s.done, func(a, b hold) int { return a.from.Compare(b.from) })
	times := handovers(s.done)
	if len(times) == 0 {
		return ""
	}
	return fmt.Sprintf("%s at the median, %s for 99 in 100, from release to acquisition",
		milliseconds(times[len(times)/2]), milliseconds(times[len(times)*99/100]))
}

func allWell(checks []check) bool {
	return !slices.ContainsFunc(checks, func(c check) bool { return !c.ok })
}
