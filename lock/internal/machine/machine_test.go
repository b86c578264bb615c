package machine

import (
	"testing"
	"testing/synctest"
	"time"
)

// The clock tells of the given time, however late it is asked: a lease counts from the moment before its request.
func TestClockOfTheGivenTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m Machine
		clock := m.Clock()
		at := time.Now()
		first := clock(at)
		time.Sleep(time.Millisecond)
		if late := clock(at); late != first {
			t.Errorf("the clock says %v of a moment, and %v when asked 1ms later", first, late)
		}
		m.Sleep(time.Minute)
		if slept := clock(at) - first; slept != time.Minute {
			t.Errorf("a minute of sleep is %v by the clock", slept)
		}
	})
}
