//go:build linux || darwin || dragonfly || freebsd || netbsd || openbsd

package pipeline

import (
	"runtime"
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

// The readers of many connections take long to yield to each other, though nothing else computes.
func TestPollersDoNotKeepEachOtherPolling(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const readers = 1 << 20
	yielding.Add(readers)
	defer yielding.Add(-readers)
	for range 10 {
		others := make(chan struct{})
		go func() {
			defer close(others)
			for start := time.Now(); time.Since(start) < time.Millisecond; {
			}
		}()
		var p poller
		if p.again() {
			t.Errorf("a reader polls after the yields of %d readers", readers)
		}
		<-others
	}
}
