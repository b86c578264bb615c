package callback_test

import (
	"testing"

	"github.com/lockwire/lockwire/internal/callback"
)

// Call calls each function until its stop. A function added twice is called twice.
func TestList(t *testing.T) {
	var l callback.List
	l.Call()
	var n int
	add := func() { n++ }
	first := l.Add(add)
	second := l.Add(add)
	l.Call()
	if n != 2 {
		t.Errorf("%d calls of two functions, want 2", n)
	}
	first()
	first()
	l.Call()
	if n != 3 {
		t.Errorf("%d calls after the first stop, want 3", n)
	}
	second()
	l.Call()
	if n != 3 {
		t.Errorf("%d calls after both stops, want 3", n)
	}
}
