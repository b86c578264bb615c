package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
)

// shrinkRuns is how many runs a shorter list of faults may take.
const shrinkRuns = 150

// shrink returns the faults, of the first n, that are left when as many as possible are left out and fails still reports true. fails
// is asked at most so many times.
func shrink(n, runs int, fails func(omit []int) bool) (left []int) {
	for i := range n {
		left = append(left, i)
	}
	without := func(kept []int) (omit []int) {
		for i := range n {
			if !slices.Contains(kept, i) {
				omit = append(omit, i)
			}
		}
		return omit
	}
	for size := (len(left) + 1) / 2; size > 0 && len(left) > 0; {
		shorter := false
		for from := 0; from < len(left) && runs > 0; {
			kept := slices.Concat(left[:from], left[min(from+size, len(left)):])
			runs--
			if fails(without(kept)) {
				left, shorter = kept, true
			} else {
				from += size
			}
		}
		switch {
		case runs == 0 || size == 1 && !shorter:
			return left
		case size > 1:
			size = (size + 1) / 2
		}
	}
	return left
}

// explain leaves out faults for as long as the seed fails, and prints the remaining faults and the failure.
func explain(ctx context.Context, w io.Writer, m *machine, seed uint64, r *report) {
	if r == nil {
		return
	}
	omitted := []int{}
	left := shrink(r.Happened, shrinkRuns, func(omit []int) bool {
		if ctx.Err() != nil {
			return false
		}
		_, found, err := m.run(ctx, seed, false, omit...)
		if bad := err == nil && found.failed(); bad {
			omitted = omit
			return true
		}
		return false
	})
	out, _, _ := m.run(ctx, seed, true, omitted...)
	fmt.Fprintf(w, "seed %d also fails with %d of %d faults:\n", seed, len(left), r.Happened)
	for line := range bytes.Lines(out) {
		if fields := bytes.Fields(line); len(fields) > 2 && string(fields[1]) == "fault" {
			w.Write(line)
		}
	}
	out, _, _ = m.run(ctx, seed, false, omitted...)
	fmt.Fprintf(w, "and then as follows:\n%s\n", out)
}
