package measure

import (
	"cmp"
	"slices"
	"time"
)

// Contention is the analysis of the holdings of a lock by all processes.
type Contention struct {
	Acquisitions, Handoffs int           // a hand-off goes to another caller
	Release, Handoff       Histogram     // from the call of Unlock to the return of the next Lock: of all, of hand-offs
	Wait                   Histogram     // of calls of Lock
	Overlaps               int           // holdings that began before the end of the previous holding
	Most, Least, Starved   int           // acquisitions of the callers with the most and the least; callers with none
	Jain                   float64       // fairness over callers: 1 is equal shares, 1/n is a single owner of n
	JainProcs              float64       // and over processes
	OfProcs                []int         // acquisitions of each process
	Held                   time.Duration // how long the lock was held in all
}

// Contend analyses holdings of procs processes with as many callers each.
func Contend(holds []Hold, procs, callers int) Contention {
	slices.SortFunc(holds, func(a, b Hold) int { return cmp.Compare(a.Got, b.Got) })
	c := Contention{Acquisitions: len(holds)}
	each := make([]int, procs*callers)
	c.OfProcs = make([]int, procs)
	for i, h := range holds {
		c.Wait.Record(time.Duration(h.Got - h.Asked))
		each[h.Caller]++
		c.OfProcs[int(h.Caller)/callers]++
		c.Held += time.Duration(max(h.Released-h.Got, 0))
		if i == 0 {
			continue
		}
		before := holds[i-1]
		if before.Released == 0 || before.Released > h.Got {
			c.Overlaps++
			continue
		}
		took := time.Duration(h.Got - before.Released)
		c.Release.Record(took)
		if before.Caller != h.Caller {
			c.Handoffs++
			c.Handoff.Record(took)
		}
	}
	c.Most, c.Least = slices.Max(each), slices.Min(each)
	for _, n := range each {
		if n == 0 {
			c.Starved++
		}
	}
	c.Jain, c.JainProcs = jain(each), jain(c.OfProcs)
	return c
}

// jain is Jain's index of fairness: (Σx)² / (n Σx²).
func jain(shares []int) float64 {
	var sum, squares float64
	for _, n := range shares {
		sum += float64(n)
		squares += float64(n) * float64(n)
	}
	if squares == 0 {
		return 0
	}
	return sum * sum / (float64(len(shares)) * squares)
}
