package main

import (
	"slices"
	"testing"
)

func TestShrink(t *testing.T) {
	for _, c := range []struct {
		n    int
		need []int // faults without which nothing fails
	}{{0, nil}, {1, nil}, {1, []int{0}}, {10, nil}, {10, []int{3}}, {10, []int{0, 9}}, {97, []int{5, 50, 51, 96}}} {
		runs := 0
		left := shrink(c.n, 1000, func(omit []int) bool {
			runs++
			return !slices.ContainsFunc(c.need, func(i int) bool { return slices.Contains(omit, i) })
		})
		if !slices.Equal(left, c.need) {
			t.Errorf("of %d faults %v are left, want %v", c.n, left, c.need)
		}
		if most := 10 + 8*(len(c.need)+1)*8; runs > most {
			t.Errorf("of %d faults: %d runs, want %d at most", c.n, runs, most)
		}
	}
	if left := shrink(8, 3, func([]int) bool { return true }); len(left) > 4 {
		t.Errorf("after 3 runs %v are left of 8, all of which can go", left)
	}
}
