package locktorture

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Forever is the end of a hold without an end.
const Forever = time.Duration(1<<63 - 1)

// History is the events of all processes. The zero History is empty and ready; any number of goroutines may use it.
type History struct {
	mu      sync.Mutex // guards the following
	events  []Event
	deaths  map[int]time.Duration
	changed chan struct{} // closed at the next event; nil if nobody waits
}

// Add adds an event. Events of a single process come in order, events of several processes in any order.
func (h *History) Add(e Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = append(h.events, e)
	if h.changed != nil {
		close(h.changed)
		h.changed = nil
	}
}

// Died records that a process was dead at a time: its holds end there.
func (h *History) Died(process int, at time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.deaths == nil {
		h.deaths = make(map[int]time.Duration)
	}
	h.deaths[process] = at
}

// Events returns the events so far.
func (h *History) Events() []Event {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.events)
}

// Count is how many events match.
func (h *History) Count(match func(Event) bool) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := 0
	for _, e := range h.events {
		if match(e) {
			n++
		}
	}
	return n
}

// Await waits for the first event that matches, for as long as ctx allows.
func (h *History) Await(ctx context.Context, match func(Event) bool) (Event, error) {
	for seen := 0; ; {
		h.mu.Lock()
		fresh := h.events[seen:]
		if h.changed == nil {
			h.changed = make(chan struct{})
		}
		changed := h.changed
		h.mu.Unlock()
		if i := slices.IndexFunc(fresh, match); i >= 0 {
			return fresh[i], nil
		}
		seen += len(fresh)
		select {
		case <-changed:
		case <-ctx.Done():
			return Event{}, fmt.Errorf("locktorture: no such event among %d: %w", seen, context.Cause(ctx))
		}
	}
}

// Hold is the time during which an owner could rely on a lock.
type Hold struct {
	Process     int
	ID          int64
	Name, Owner string
	Mode        string
	Token       int64
	Permits     int
	From, To    time.Duration // the time of the release, the loss, the end of the lease, or the death of the process
	Until       time.Duration // the end of the lease, even if released before; Forever for none
	Given       bool          // the release has begun
}

// String tells of the hold.
func (h Hold) String() string {
	owner := h.Owner
	if owner == "" {
		owner = fmt.Sprintf("hold %d", h.ID)
	}
	return fmt.Sprintf("%q by %s in process %d from %v to %v", h.Name, owner, h.Process, h.From, h.To)
}

// Holds returns all holds in the order of their begin.
func (h *History) Holds() []Hold {
	type key struct {
		process int
		id      int64
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	found := make(map[key]*Hold)
	for _, e := range h.events {
		hold := found[key{e.Process, e.Hold}]
		switch e.Kind {
		case Acquired:
			found[key{e.Process, e.Hold}] = &Hold{
				Process: e.Process, ID: e.Hold, Name: e.Name, Owner: e.Owner, Mode: e.Mode, Token: e.Token, Permits: e.Permits,
				From: e.At, To: Forever, Until: orForever(e.Until),
			}
		case Extended, Lost, Releasing:
			if hold == nil {
				continue
			}
			hold.Until = max(hold.Until, orForever(e.Until))
			if e.Kind != Extended {
				hold.To = min(hold.To, e.At)
			}
			hold.Given = hold.Given || e.Kind == Releasing
		}
	}
	holds := make([]Hold, 0, len(found))
	for _, hold := range found {
		if death, died := h.deaths[hold.Process]; died {
			hold.To = min(hold.To, death)
		}
		hold.To = min(hold.To, hold.Until)
		holds = append(holds, *hold)
	}
	slices.SortFunc(holds, func(a, b Hold) int { return cmp.Compare(a.From, b.From) })
	return holds
}

func orForever(until time.Duration) time.Duration {
	if until == 0 {
		return Forever
	}
	return until
}
