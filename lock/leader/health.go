package leader

import (
	"fmt"
	"sync"
	"time"
)

// Health follows a [Run]: see Config.Health. The zero Health is ready to use. Any number of goroutines may call
// its methods.
type Health struct {
	mu      sync.Mutex // guards the following
	name    string
	running bool            // fn runs
	done    <-chan struct{} // of the context of fn
	ended   time.Time       // when the end of the context was noticed; zero before
}

// Check returns an error if the function still runs although its context ended more than grace ago. The process
// holds the lock, or works without the lock, and should be restarted: Check fits a liveness probe. A process without the
// leadership is healthy.
func (h *Health) Check(grace time.Duration) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.running || h.ended.IsZero() {
		return nil
	}
	if since := time.Since(h.ended); since > grace {
		return fmt.Errorf("leader: %q: the function has not returned %v after its context ended", h.name, since.Round(time.Millisecond))
	}
	return nil
}

// Leading reports whether the function runs and its context has not ended.
func (h *Health) Leading() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	select {
	case <-h.done:
		return false
	default:
		return h.running
	}
}

func (h *Health) begin(name string, done <-chan struct{}) {
	h.set(func() { h.name, h.running, h.done, h.ended = name, true, done, time.Time{} })
}
func (h *Health) stopped() { h.set(func() { h.ended = time.Now() }) }
func (h *Health) end()     { h.set(func() { h.running = false }) }

// set changes h unless h is nil.
func (h *Health) set(change func()) {
	if h != nil {
		h.mu.Lock()
		defer h.mu.Unlock()
		change()
	}
}
