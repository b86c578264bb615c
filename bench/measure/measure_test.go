package measure_test

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/lockwire/lockwire/bench/measure"
)

func TestQuantiles(t *testing.T) {
	var even, odd, all measure.Histogram
	for i := 1; i <= 100000; i++ {
		h := &even
		if i%2 == 1 {
			h = &odd
		}
		h.Record(time.Duration(i))
	}
	all.Add(&even)
	all.Add(&odd)
	for _, q := range []float64{0.0001, 0.001, 0.25, 0.5, 0.99, 1} {
		want := q * 100000
		if got := all.Quantile(q); math.Abs(got-want) > want/32+1 {
			t.Errorf("Quantile(%v) = %v, want about %v", q, got, want)
		}
	}
	var none measure.Histogram
	if got := none.Quantile(0.5); got != 0 {
		t.Errorf("Quantile of nothing = %v, want 0", got)
	}
}

func TestContend(t *testing.T) {
	// Two processes with two callers each: 0 and 1, 2 and 3. Handed over after 5, taken again by the same after 2, taken
	// away before it was released, handed over after 7.
	c := measure.Contend([]measure.Hold{
		{Caller: 2, Asked: 95, Got: 105, Released: 110},
		{Caller: 0, Asked: 90, Got: 95, Released: 100},
		{Caller: 2, Asked: 110, Got: 112, Released: 120},
		{Caller: 0, Asked: 112, Got: 119, Released: 130},
		{Caller: 1, Asked: 0, Got: 137},
	}, 2, 2)
	if c.Acquisitions != 5 || c.Handoffs != 2 || c.Overlaps != 1 {
		t.Errorf("acquisitions, handoffs, overlaps = %d, %d, %d, want 5, 2, 1", c.Acquisitions, c.Handoffs, c.Overlaps)
	}
	if got := c.Handoff.Quantile(1); got != 7 {
		t.Errorf("longest handoff = %v, want 7", got)
	}
	if got := c.Release.Quantile(0.1); got != 2 {
		t.Errorf("shortest release to acquire = %v, want 2", got)
	}
	if c.Most != 2 || c.Least != 0 || c.Starved != 1 {
		t.Errorf("most, least, starved = %d, %d, %d, want 2, 0, 1", c.Most, c.Least, c.Starved)
	}
	if want := 25.0 / (4 * (4 + 1 + 4)); math.Abs(c.Jain-want) > 1e-9 {
		t.Errorf("Jain = %v, want %v", c.Jain, want)
	}
	if want := 25.0 / (2 * (9 + 4)); math.Abs(c.JainProcs-want) > 1e-9 {
		t.Errorf("Jain of processes = %v, want %v", c.JainProcs, want)
	}
}

func TestCallers(t *testing.T) {
	var marks []string
	env := measure.Env{
		Length: measure.Length{Ops: 7},
		Begin:  func() { marks = append(marks, "begin") },
		End:    func() { marks = append(marks, "end") },
	}
	done := make([]int, 3)
	r, err := measure.Callers(env, 3, 10, func(i int) (func() error, error) {
		return func() error { done[i]++; return nil }, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if r.Ops != 3*7*10 {
		t.Errorf("Ops = %d, want 210", r.Ops)
	}
	for i, n := range done {
		if n != 8 {
			t.Errorf("caller %d did %d operations, want 7 and one to get warm", i, n)
		}
	}
	if len(marks) != 2 || marks[0] != "begin" || marks[1] != "end" {
		t.Errorf("marks = %q, want begin and end", marks)
	}
}

func TestCallersFail(t *testing.T) {
	broken := errors.New("broken")
	_, err := measure.Callers(measure.Env{Length: measure.Length{Ops: 1}}, 2, 1, func(i int) (func() error, error) {
		return func() error {
			if i == 1 {
				return broken
			}
			return nil
		}, nil
	})
	if !errors.Is(err, broken) {
		t.Errorf("err = %v, want broken", err)
	}
}
