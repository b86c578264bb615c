package bounds

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// Close waits for the calls under way, and counts those that have not left by the end of its context. Calls that come meanwhile are
// refused, and count for nothing.
func TestCalls(t *testing.T) {
	for name, test := range map[string]struct {
		leaves     time.Duration // of the last call, from the begin of Close
		took       time.Duration
		n, permits int
	}{
		"left":    {500 * time.Millisecond, 500 * time.Millisecond, 0, 0},
		"waiting": {time.Minute, time.Second, 1, 3},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var s Calls
				if !s.Enter(2) {
					t.Error("Enter before Close = false")
				}
				s.Stay(3)
				s.Leave(2)
				time.AfterFunc(test.leaves, func() { s.Leave(3) })
				time.AfterFunc(400*time.Millisecond, func() {
					if s.Enter(5) {
						t.Error("Enter during Close = true")
					}
				})
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				start := time.Now()
				n, permits := s.Close(ctx)
				if took := time.Since(start); n != test.n || permits != test.permits || took != test.took {
					t.Errorf("Close = %d, %d after %v, want %d, %d after %v", n, permits, took, test.n, test.permits, test.took)
				}
				time.Sleep(2 * time.Minute)
			})
		})
	}
}
