package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"time"
)

// table is the sum of many reports.
type table struct {
	mu    sync.Mutex // guards the following
	seeds int
	bad   int
	worst uint64 // the first bad seed
	total report
}

func newTable() *table {
	return &table{total: report{Faults: map[string]int{}, Excused: map[string]int{}, Events: map[string]int{}}}
}

// add counts the runs of n seeds from first. The output goes to w if any of them has failed, or has no report.
func (t *table) add(w io.Writer, first uint64, n int, out []byte, reports []*report, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.seeds += n
	before := t.bad
	for _, r := range reports {
		if r.failed() {
			t.fail(r.Seed)
		}
		t.sum(r)
	}
	for i := len(reports); i < n; i++ {
		t.fail(first + uint64(i))
	}
	if t.bad > before {
		fmt.Fprintf(w, "seeds %d to %d: %v\n%s\n", first, first+uint64(n)-1, err, out)
	}
}

func (t *table) fail(seed uint64) {
	if t.bad++; t.bad == 1 {
		t.worst = seed
	}
}

func (t *table) sum(r *report) {
	t.total.Operations += r.Operations
	t.total.Holds += r.Holds
	t.total.Looks += r.Looks
	t.total.Losses += r.Losses
	t.total.Virtual += r.Virtual
	t.total.Violations += r.Violations
	for name, n := range r.Faults {
		t.total.Faults[name] += n
	}
	for name, n := range r.Excused {
		t.total.Excused[name] += n
	}
	for name, n := range r.Events {
		t.total.Events[name] += n
	}
}

// print writes the table.
func (t *table) print(w io.Writer, took time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	row := func(name string, n any) { fmt.Fprintf(w, "%-28s %12v\n", name, n) }
	row("seeds", t.seeds)
	row("time", took.Round(time.Second))
	row("virtual time", time.Duration(t.total.Virtual).Round(time.Minute))
	row("operations", t.total.Operations)
	row("holds", t.total.Holds)
	row("looks at holds", t.total.Looks)
	row("losses told", t.total.Losses)
	for _, name := range slices.Sorted(maps.Keys(t.total.Faults)) {
		row("fault: "+name, t.total.Faults[name])
	}
	for _, name := range slices.Sorted(maps.Keys(t.total.Excused)) {
		row("excused: "+name, t.total.Excused[name])
	}
	for _, name := range slices.Sorted(maps.Keys(t.total.Events)) {
		row("event: "+name, t.total.Events[name])
	}
	row("violations", t.total.Violations)
	row("seeds that failed", t.bad)
}
