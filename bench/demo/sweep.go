package main

import (
	"cmp"
	"slices"
	"time"
)

// hold is a hold of the lock as seen by its worker: from after Lock returned until before Unlock was called, or until the
// worker's death.
type hold struct {
	worker             int
	asked, from, until time.Time
	killed             bool // ended by the worker's death
}

// overlap is a hold that began before the end of an earlier hold.
type overlap struct{ first, second hold }

// overlaps sorts the holds by their beginning, and returns each overlapping pair.
func overlaps(holds []hold) []overlap {
	slices.SortFunc(holds, func(a, b hold) int {
		return cmp.Or(a.from.Compare(b.from), a.until.Compare(b.until))
	})
	var found []overlap
	for i, last := 1, 0; i < len(holds); i++ {
		if holds[i].from.Before(holds[last].until) {
			found = append(found, overlap{holds[last], holds[i]})
		}
		if holds[i].until.After(holds[last].until) {
			last = i
		}
	}
	return found
}

// handovers returns, sorted, the times from a release to the next acquisition, for acquisitions already waiting at the release.
// holds are sorted by their beginning. A hold ended by the worker's death was not handed over.
func handovers(holds []hold) []time.Duration {
	var times []time.Duration
	for i := 1; i < len(holds); i++ {
		before, after := holds[i-1], holds[i]
		if after.asked.Before(before.until) && !before.killed {
			times = append(times, after.from.Sub(before.until))
		}
	}
	slices.Sort(times)
	return times
}
