//go:build linux || darwin || dragonfly || freebsd || netbsd || openbsd

package pipeline

import (
	"testing"
	"time"
)

// A reader does not poll for long: a reply that takes its time would cost a busy process many system calls.
func TestPollerEnds(t *testing.T) {
	p := poller{since: time.Now().Add(-pollFor)}
	if p.again() {
		t.Errorf("the reader polls after %v", pollFor)
	}
}
