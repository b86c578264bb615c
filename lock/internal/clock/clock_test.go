package clock_test

import (
	"testing"
	"time"

	"github.com/lockwire/lockwire/lock/internal/clock"
)

// The kernel is asked for the boot clock when the wall clock has moved, be it that the machine has slept or that somebody has
// set it, and only then.
func TestBootClockByTheWall(t *testing.T) {
	running, wall, boot, asked := time.Duration(0), time.Duration(0), time.Hour, 0
	clock := clock.NewBootOf(func() (time.Duration, time.Duration, time.Duration) {
		asked++
		return running, wall, boot
	})
	for _, step := range []struct {
		what                string
		runs, sleeps, wound time.Duration
		asked               int
	}{
		{"at first", 0, 0, 0, 1},
		{"running", time.Minute, 0, 0, 1},
		{"adjusted a little", time.Second, 0, 400 * time.Microsecond, 1},
		{"adjusted a little again", time.Second, 0, 400 * time.Microsecond, 2},
		{"asleep for a moment", time.Second, time.Millisecond, 0, 3},
		{"asleep for long", 0, time.Hour, 0, 4},
		{"running again", time.Hour, 0, 0, 4},
		{"set back", time.Second, 0, -time.Hour, 5},
		{"set forward while running", time.Second, 0, time.Hour, 6},
		{"asleep once more", time.Second, time.Minute, 0, 7},
	} {
		running += step.runs
		wall += step.runs + step.sleeps + step.wound
		boot += step.runs + step.sleeps
		if got := clock(running, wall); got != boot || asked != step.asked {
			t.Errorf("%s: %v after asking %d times, want %v after %d", step.what, got, asked, boot, step.asked)
		}
	}
}

func TestNoBootClock(t *testing.T) {
	clock := clock.NewBootOf(func() (time.Duration, time.Duration, time.Duration) { return 1, 2, 0 })
	for range 2 {
		if got := clock(3, 4); got != 0 {
			t.Errorf("without a boot clock it says %v", got)
		}
	}
}
