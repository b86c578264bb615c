package gates

import (
	"io"
	"testing"
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

// The callers behind learn why the caller in front has no answer, as long as somebody is in the line.
func TestFailure(t *testing.T) {
	var g Gates[string]
	_, leaveFirst := g.Enter("a")
	_, leaveSecond := g.Enter("a")
	if g.Failure("a") == nil {
		t.Error("an answer is known before the first one")
	}
	g.Note("a", io.EOF)
	leaveFirst()
	if err := g.Failure("a"); err != io.EOF {
		t.Errorf("Failure() = %v, want %v", err, io.EOF)
	}
	g.Note("a", nil)
	if err := g.Failure("a"); err != nil {
		t.Errorf("Failure() after an answer = %v", err)
	}
	leaveSecond()
	g.Note("a", nil) // too late
	_, leave := g.Enter("a")
	if g.Failure("a") == nil || g.Failure("b") != nil {
		t.Error("the record of an empty line is left")
	}
	leave()
	if !g.Free() {
		t.Error("something is left after all have left")
	}
}
