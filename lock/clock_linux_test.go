package lock_test

import (
	"testing"
	"time"

	"github.com/lockwire/lockwire/lock"
)

func TestBootClock(t *testing.T) {
	first := lock.SinceBoot()
	if first <= 0 {
		t.Fatalf("the boot clock says %v", first)
	}
	for lock.SinceBoot() == first {
	}
	if second := lock.SinceBoot(); second < first || second-first > time.Minute {
		t.Errorf("the boot clock went from %v to %v", first, second)
	}
}
