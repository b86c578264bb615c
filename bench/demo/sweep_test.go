package main

import (
	"math/rand/v2"
	"testing"
	"time"
)

// at is an instant so many milliseconds into a made-up run.
func at(ms int) time.Time { return time.Unix(1_000_000_000, int64(ms)*1e6) }

func holdOf(worker, from, until int) hold {
	return hold{worker: worker, asked: at(from), from: at(from), until: at(until)}
}

func TestOverlaps(t *testing.T) {
	tests := []struct {
		name  string
		holds []hold
		want  int
	}{
		{"none", nil, 0},
		{"one", []hold{holdOf(0, 0, 10)}, 0},
		{"in turn", []hold{holdOf(0, 0, 10), holdOf(1, 11, 20), holdOf(0, 21, 30)}, 0},
		{"at the same instant", []hold{holdOf(0, 0, 10), holdOf(1, 10, 20)}, 0},
		{"not in order", []hold{holdOf(1, 20, 30), holdOf(0, 0, 10), holdOf(2, 10, 20)}, 0},
		{"by a millisecond", []hold{holdOf(0, 0, 10), holdOf(1, 9, 20)}, 1},
		{"one inside another", []hold{holdOf(0, 0, 100), holdOf(1, 10, 20), holdOf(2, 30, 40), holdOf(1, 100, 110)}, 2},
		{"reported late", []hold{holdOf(1, 9, 20), holdOf(0, 0, 10)}, 1},
		{"two that began together", []hold{holdOf(0, 5, 10), holdOf(1, 5, 8)}, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if found := overlaps(tt.holds); len(found) != tt.want {
				t.Errorf("overlaps(%v) = %v, want %d of them", tt.holds, found, tt.want)
			}
		})
	}
}

// TestOverlapsLikeEachWithEach compares the sweep with a comparison of every hold with every other.
func TestOverlapsLikeEachWithEach(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		holds := make([]hold, random.IntN(12))
		for i := range holds {
			from := random.IntN(100)
			holds[i] = holdOf(i, from, from+1+random.IntN(20))
		}
		found := overlaps(holds)
		want := 0
		for i, h := range holds {
			for _, earlier := range holds[:i] {
				if h.from.Before(earlier.until) {
					want++
					break
				}
			}
		}
		if len(found) != want {
			t.Fatalf("overlaps(%v) = %d, want %d", holds, len(found), want)
		}
		for _, o := range found {
			if !o.second.from.Before(o.first.until) || o.second.from.Before(o.first.from) {
				t.Fatalf("overlaps(%v): %v is none", holds, o)
			}
		}
	}
}

func TestHandovers(t *testing.T) {
	waited := func(h hold, asked int) hold {
		h.asked = at(asked)
		return h
	}
	died := holdOf(2, 40, 50)
	died.killed = true
	holds := []hold{
		holdOf(0, 0, 10),
		waited(holdOf(1, 13, 20), 5),
		waited(holdOf(0, 25, 30), 22), // nobody waited at 20
		waited(holdOf(1, 31, 39), 12),
		died,
		waited(holdOf(0, 90, 99), 41), // waited for a lease, not for a release
	}
	got := handovers(holds)
	want := []time.Duration{time.Millisecond, 3 * time.Millisecond}
	if len(got) != len(want) || got[0] != want[0] || got[1] != want[1] {
		t.Errorf("handovers = %v, want %v", got, want)
	}
}
