package places

import (
	"testing"
	"time"
)

func TestPlaces(t *testing.T) {
	var p Places
	first, second := p.Next("a"), p.Next("a")
	if first != "a:1:100" || second != "a:2:100" {
		t.Errorf("the first places are %v and %v", first, second)
	}
	p.Put("a", first)
	if got := p.Next("b"); got != "b:3:100" {
		t.Errorf("the place of another waiter is %v", got)
	}
	if got := p.Next("a"); got != first {
		t.Errorf("after Put, Next() = %v, want %v", got, first)
	}
	for range 2 * sparePlaces {
		p.Put("a", first)
	}
	if got := len(p.spare["a"]); got != sparePlaces {
		t.Errorf("%d spare places are kept, want %d", got, sparePlaces)
	}
}

// Two slow acquires in a row lengthen the turns, and spare places have turns of the old length.
func TestDistance(t *testing.T) {
	var p Places
	p.Put("a", p.Next("a"))
	slow, now := 50*time.Millisecond, time.Unix(0, 0)
	for i, c := range []struct {
		took time.Duration
		want bool
		next string
	}{
		{slow, false, ""}, {slow - 1, false, ""}, {slow, false, ""}, {slow, true, "a:2:200"},
		{2*slow - 1, false, ""}, {2 * slow, false, ""}, {2 * slow, true, "a:3:400"},
		{4 * slow, false, ""}, {4 * slow, true, "a:4:800"},
		{time.Hour, false, ""}, {time.Hour, false, "a:5:800"}, // no longer than this
	} {
		sent := now
		now = now.Add(c.took)
		if got := p.Measure(sent, now); got != c.want {
			t.Errorf("%d: Measure(%v) = %v", i, c.took, got)
		}
		if c.next == "" {
			continue
		}
		if got := p.Next("a"); got != c.next {
			t.Errorf("%d: Next() = %v, want %s", i, got, c.next)
		}
	}
}

// Acquires that are slow because of one pause of the server lengthen nothing, and turns become shorter again.
func TestPassingDistance(t *testing.T) {
	var p Places
	now := time.Unix(0, 0)
	for range 3 {
		if sent := now; p.Measure(sent, now.Add(300*time.Millisecond)) {
			t.Error("a pause has lengthened the turns")
		}
	}
	now = now.Add(300 * time.Millisecond)
	if !p.Measure(now, now.Add(60*time.Millisecond)) {
		t.Error("slow acquires after each other have not lengthened the turns")
	}
	quick := func(n int, took time.Duration) any {
		for range n {
			now = now.Add(time.Second)
			p.Measure(now, now.Add(took))
		}
		return p.Next("a")
	}
	if got := quick(100, 60*time.Millisecond); got != "a:1:200" {
		t.Errorf("after acquires of 60 ms, Next() = %v", got)
	}
	if got := quick(quickInARow-1, time.Millisecond); got != "a:2:200" {
		t.Errorf("after few quick acquires, Next() = %v", got)
	}
	if got := quick(100, time.Millisecond); got != "a:3:100" {
		t.Errorf("after many quick acquires, Next() = %v", got)
	}
}
