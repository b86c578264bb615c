package gates

import (
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"
)

func open(turn <-chan struct{}) bool {
	select {
	case <-turn:
		return true
	default:
		return false
	}
}

// Callers are admitted in order of arrival, one at a time; one that leaves early is passed over.
func TestOrder(t *testing.T) {
	var g Gates[string]
	first, leaveFirst := g.Enter("a")
	second, leaveSecond := g.Enter("a")
	third, leaveThird := g.Enter("a")
	other, leaveOther := g.Enter("b")
	if !open(first) || open(second) || open(third) || !open(other) {
		t.Fatal("not the first caller of each lock alone is admitted")
	}
	leaveSecond()
	leaveFirst()
	leaveFirst()
	if open(second) || !open(third) {
		t.Error("the caller behind the one that left is not admitted")
	}
	if _, ok := g.TryEnter("a"); ok || g.Free() {
		t.Error("TryEnter is admitted beside another caller")
	}
	leaveThird()
	leaveOther()
	if !g.Free() {
		t.Error("something is left after all have left")
	}
	leave, ok := g.TryEnter("a")
	if !ok {
		t.Fatal("TryEnter is not admitted to a free lock")
	}
	leave()
}

// The callers behind learn why the caller in front has no answer, as long as somebody is in the line, and remember an answer.
func TestFailure(t *testing.T) {
	var g Gates[string]
	first, leaveFirst := g.Enter("a")
	second, leaveSecond := g.Enter("a")
	if g.Failure("a", second) == nil {
		t.Error("an answer is known before the first one")
	}
	g.Note("a", io.EOF)
	leaveFirst()
	if err := g.Failure("a", second); err != io.EOF {
		t.Errorf("Failure() = %v, want %v", err, io.EOF)
	}
	g.Note("a", nil)
	third, leaveThird := g.Enter("a")
	g.Note("a", io.EOF)
	fourth, leaveFourth := g.Enter("a")
	for i, turn := range []<-chan struct{}{second, third} {
		if err := g.Failure("a", turn); err != nil {
			t.Errorf("%d: Failure() after an answer = %v", i, err)
		}
	}
	if err := g.Failure("a", fourth); err != io.EOF {
		t.Errorf("Failure() of a later caller = %v, want %v", err, io.EOF)
	}
	leaveSecond()
	leaveThird()
	leaveFourth()
	g.Note("a", nil) // too late
	again, leave := g.Enter("a")
	if g.Failure("a", again) == nil || g.Failure("b", first) != nil {
		t.Error("the record of an empty line is left")
	}
	leave()
	if !g.Free() {
		t.Error("something is left after all have left")
	}
}

func TestMarks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m Marks[string]
		m.Set("a", true)
		m.Set("b", true)
		m.Set("b", false)
		time.Sleep(markLife - 1)
		if !m.Has("a") || m.Has("b") || m.Has("c") {
			t.Errorf("%v: not a alone is marked", m.of)
		}
		time.Sleep(time.Nanosecond)
		if m.Has("a") {
			t.Error("a mark has no end")
		}
		most := 0
		for i := range 3 * maxMarks {
			m.Set(fmt.Sprint(i), true)
			most = max(most, len(m.of))
		}
		if most != maxMarks || !m.Has(fmt.Sprint(3*maxMarks-1)) {
			t.Errorf("%d are remembered, want %d with the last one", most, maxMarks)
		}
	})
}
