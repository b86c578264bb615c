package gates

import "testing"

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
