package clock_test

import (
	"testing"
	"time"

	"github.com/lockwire/lockwire/lock/internal/clock"
)

func TestBootClock(t *testing.T) {
	first := clock.SinceBoot()
	if first <= 0 {
		t.Fatalf("the boot clock says %v", first)
	}
	for clock.SinceBoot() == first {
	}
	if second := clock.SinceBoot(); second < first || second-first > time.Minute {
		t.Errorf("the boot clock went from %v to %v", first, second)
	}
}
