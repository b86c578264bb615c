package callback_test

import (
	"testing"

	"github.com/lockwire/lockwire/internal/callback"
)

// Each function is called by each Call until it is stopped, the same function added twice also twice.
func TestList(t *testing.T) {
	var l callback.List
	l.Call()
	var n int
	add := func() { n++ }
	first := l.Add(add)
	second := l.Add(add)
	l.Call()
	if n != 2 {
		t.Errorf("%d calls of two functions", n)
	}
	first()
	first()
	l.Call()
	if n != 3 {
		t.Errorf("%d calls after one was stopped, want 3", n)
	}
	second()
	l.Call()
	if n != 3 {
		t.Errorf("%d calls after both were stopped, want 3", n)
	}
}
