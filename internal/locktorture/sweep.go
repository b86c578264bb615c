package locktorture

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Rules are the rules of a kind of lock. The zero Rules describe an exclusive lock with reentry.
type Rules struct {
	Readers bool // many holds of mode Read at once, and a writer may read too
	Single  bool // an owner has a single hold at most
	Tokens  bool // a later owner has a larger token
	Permits bool // as many holds as permits
	Leased  bool // permits come back at the end of their lease
	Count   bool // waiters are released by the last of a number of requests of mode Down
	Queue   bool // waiters are served in the order of the line
}

// Violations returns the violations in a history without forced releases: overlapping holds, losses reported while the hold was
// good, releases that missed a good hold, and complaints of the processes.
func (h *History) Violations(rules Rules) []string {
	events := h.Events()
	found := complaints(events)
	holds := h.Holds()
	switch {
	case rules.Permits:
		found = append(found, excesses(holds, limits(events))...)
		found = append(found, h.unaccounted(events, rules.Leased)...)
	case rules.Count:
		found = append(found, miscounts(events)...)
	default:
		for _, c := range Conflicts(holds, rules) {
			found = append(found, c.String())
		}
	}
	if rules.Queue {
		found = append(found, queueJumps(events, holds)...)
	}
	return found
}

// complaints are events that are violations by themselves.
func complaints(events []Event) []string {
	var found []string
	until := make(map[request]time.Duration)
	for _, e := range events {
		if e.Kind == Failed {
			found = append(found, fmt.Sprintf("process %d: %s", e.Process, e.Text))
		}
		if e.Hold == 0 || e.Kind == Asked {
			continue
		}
		if e.Until != 0 {
			until[e.request()] = max(until[e.request()], e.Until)
		}
		early := until[e.request()] - e.At
		switch {
		case e.Kind == Lost && early > 0:
			found = append(found, fmt.Sprintf("hold %d of process %d of %q was lost %v before its end: %s",
				e.Hold, e.Process, e.Name, early, e.Text))
		case e.Kind == Released && e.Text == NotHeld && early > 0:
			found = append(found, fmt.Sprintf("hold %d of process %d of %q was not held %v before its end",
				e.Hold, e.Process, e.Name, early))
		}
	}
	return found
}

// request is a request of a process, with its hold.
type request struct {
	process int
	id      int64
}

func (e Event) request() request { return request{e.Process, e.Hold} }

// Conflict is a pair of holds against the rules.
type Conflict struct {
	First, Second Hold
	What          string
}

// String describes both holds and the length of their overlap.
func (c Conflict) String() string {
	if shared := min(c.First.To, c.Second.To) - c.Second.From; shared > 0 {
		return fmt.Sprintf("%v of %s: %v; %v", shared, c.What, c.First, c.Second)
	}
	return fmt.Sprintf("%s: %v; %v", c.What, c.First, c.Second)
}

// Conflicts returns the pairs of holds against the rules. The holds must be in the order of their begin.
func Conflicts(holds []Hold, rules Rules) []Conflict {
	var found []Conflict
	current := make(map[string][]Hold) // of each lock, begun holds without a certain end
	last := make(map[string]Hold)      // of each lock, the hold with the largest token
	for _, hold := range holds {
		if hold.To <= hold.From {
			continue
		}
		earlier := slices.DeleteFunc(current[hold.Name], func(h Hold) bool { return h.To <= hold.From })
		for _, h := range earlier {
			if what := rules.conflict(h, hold); what != "" {
				found = append(found, Conflict{h, hold, what})
			}
		}
		current[hold.Name] = append(earlier, hold)
		if !rules.Tokens {
			continue
		}
		before := last[hold.Name]
		if hold.Token < before.Token || hold.Token == before.Token && hold.Owner != before.Owner {
			found = append(found, Conflict{before, hold, fmt.Sprintf("tokens %d and %d", before.Token, hold.Token)})
		} else {
			last[hold.Name] = hold
		}
	}
	return found
}

// conflict is what is wrong with two holds at the same time; "" if nothing is.
func (r Rules) conflict(first, second Hold) string {
	same := strings.TrimSuffix(first.Owner, ":write") == strings.TrimSuffix(second.Owner, ":write")
	switch {
	case same && r.Single:
		return "an owner that has it twice"
	case same && r.Tokens && first.Token != second.Token:
		return fmt.Sprintf("tokens %d and %d of one owner", first.Token, second.Token)
	case same, r.Readers && first.Mode == Read && second.Mode == Read:
		return ""
	}
	return "overlap"
}

// limits are the numbers of permits, or the counts, by name.
func limits(events []Event) map[string]int {
	set := make(map[string]int)
	for _, e := range events {
		if e.Kind == Set {
			set[e.Name] = e.Permits
		}
	}
	return set
}

// excesses are the holds beyond the number of permits.
func excesses(holds []Hold, limits map[string]int) []string {
	var found []string
	current := make(map[string][]Hold)
	for _, hold := range holds {
		if hold.To <= hold.From {
			continue
		}
		all := append(slices.DeleteFunc(current[hold.Name], func(h Hold) bool { return h.To <= hold.From }), hold)
		current[hold.Name] = all
		taken := 0
		for _, h := range all {
			taken += h.Permits
		}
		if taken > limits[hold.Name] {
			found = append(found, fmt.Sprintf("%d permits of %d taken at once, the last: %v", taken, limits[hold.Name], hold))
		}
	}
	return found
}

// undoing is the time during which a request without an answer may still hold permits: until the undo after the end of the
// faults.
const undoing = 5 * time.Second

// unaccounted is the numbers of permits that cannot be. The number of permits with leases is constant. Permits without leases
// may be lost with a killed process: the permits it held and, for each open request, the permits asked for, however often the
// server was asked. A process that ends in order loses nothing.
func (h *History) unaccounted(events []Event, leased bool) []string {
	limits := limits(events)
	least, most := make(map[string]int), make(map[string]int)
	for name, n := range limits {
		least[name], most[name] = n, n
	}
	if !leased {
		for name, lost := range h.lost(events) {
			least[name] -= lost.certain + lost.perhaps
			most[name] -= lost.certain
		}
	}
	var found []string
	for _, e := range events {
		if e.Kind == Seen && (e.Permits < least[e.Name] || e.Permits > most[e.Name]) {
			found = append(found, fmt.Sprintf("%d permits of %q at %v, want %d to %d", e.Permits, e.Name, e.At, least[e.Name], most[e.Name]))
		}
	}
	return found
}

// losses are permits that will never be returned.
type losses struct{ certain, perhaps int }

func (h *History) lost(events []Event) map[string]losses {
	h.mu.Lock()
	defer h.mu.Unlock()
	last := make(map[request]Event)
	for _, e := range events {
		if _, died := h.deaths[e.Process]; died && e.Hold != 0 {
			last[e.request()] = e
		}
	}
	all := make(map[string]losses)
	for _, e := range last {
		n := all[e.Name]
		switch {
		case e.Kind == Acquired:
			n.certain += e.Permits
		case e.Kind == Asked, e.Kind == Releasing, e.Kind == Released && e.Text != Freed,
			e.Kind == Refused && h.deaths[e.Process]-e.At < undoing:
			n.perhaps += e.Permits
		}
		all[e.Name] = n
	}
	return all
}

// miscounts are waits that ended before enough requests had begun to count down, and observed counts that the requests cannot
// explain.
func miscounts(events []Event) []string {
	var found []string
	set := limits(events)
	begun := make(map[string][]time.Duration)
	counted := make(map[string]int)
	for _, e := range events {
		switch {
		case e.Mode == Down && e.Kind == Asked:
			begun[e.Name] = append(begun[e.Name], e.At)
		case e.Mode == Down && e.Kind == Released && e.Text == Freed:
			counted[e.Name]++
		}
	}
	for name := range begun {
		slices.Sort(begun[name])
	}
	for _, e := range events {
		switch {
		case e.Mode == Wait && e.Kind == Acquired:
			n, _ := slices.BinarySearch(begun[e.Name], e.At)
			if n < set[e.Name] {
				found = append(found, fmt.Sprintf("process %d need not wait for %q at %v, which only %d of %d had counted down",
					e.Process, e.Name, e.At, n, set[e.Name]))
			}
		case e.Kind == Seen:
			least, most := max(0, set[e.Name]-len(begun[e.Name])), max(0, set[e.Name]-counted[e.Name])
			if e.Permits < least || e.Permits > most {
				found = append(found, fmt.Sprintf("%q was at %d, want %d to %d", e.Name, e.Permits, least, most))
			}
		}
	}
	return found
}
