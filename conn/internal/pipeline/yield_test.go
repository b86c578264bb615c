package pipeline

import (
	"testing"
	"time"
)

func TestYielder(t *testing.T) {
	var y yielder
	for range 100 {
		if !y.due() {
			t.Fatal("no yield although they take no time")
		}
		y.took(longYield)
	}
	y.took(longYield + 1)
	for i := range skippedYields {
		if y.due() {
			t.Fatalf("yield %d of those to be left out", i)
		}
	}
	if !y.due() {
		t.Error("no yield ever again")
	}
	y = yielder{long: longLargeYield}
	if y.took(longLargeYield); !y.due() {
		t.Error("no yield after a large reply although the last one was short enough")
	}
	if y.took(longLargeYield + 1); y.due() {
		t.Error("a yield after a large reply right after a long one")
	}
	if d := y.yield(); d < 0 || d > time.Minute {
		t.Errorf("yield took %v", d)
	}
}
