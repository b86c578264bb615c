package simulation

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// entry is an event.
type entry struct {
	at     time.Duration // since the run began
	who    string        // a process or a worker, the server, or "fault"
	object string        // the object concerned; "" for everything
	format string        // made into text only if somebody wants to see it: the arguments must not change
	args   []any
}

func (e entry) String() string {
	return fmt.Sprintf("%12.6f  %-7s %-8s %s", e.at.Seconds(), e.who, e.object, fmt.Sprintf(e.format, e.args...))
}

// history is the events of a run, in order.
type history struct {
	start time.Time // constant

	mu      sync.Mutex // guards the following
	entries []entry
}

func (h *history) add(who, object, format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.entries = append(h.entries, entry{time.Since(h.start), who, object, format, args})
}

// length is how many events there are.
func (h *history) length() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.entries)
}

// lines returns the whole history, an entry to a line.
func (h *history) lines() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := make([]string, len(h.entries))
	for i, e := range h.entries {
		all[i] = e.String()
	}
	return all
}

// timelineLength is how many entries a timeline has at most.
const timelineLength = 120

// timeline returns the events up to this moment about the object; all events for "".
func (h *history) timeline(object string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var lines []string
	for _, e := range slices.Backward(h.entries) {
		if len(lines) == timelineLength {
			break
		}
		if object == "" || e.object == "" || strings.Contains(e.object, object) {
			lines = append(lines, e.String())
		}
	}
	slices.Reverse(lines)
	return strings.Join(lines, "\n")
}
