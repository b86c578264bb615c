package locktorture

import (
	"fmt"
	"slices"
	"time"
)

// unmoved is the least time after which the head of a line may be dropped from a free lock: a second, less the difference of
// the clocks.
const unmoved = 990 * time.Millisecond

// queues follows the lines of all locks, event by event in the order of the server.
type queues struct {
	lines    map[string]*line
	deadline map[string]time.Duration // of owners with a known limit of their wait
	gaveUp   map[string]bool          // owners whose request failed, or whose process died
	dropped  map[string]bool          // owners who had to stand in line again, or found no line
	found    []string
}

// line is the waiters of a lock.
type line struct {
	owners  []string
	last    string // the last owner of the lock
	touched time.Duration
}

// queueJumps are violations of the lines of locks: whoever gets a lock heads its line or finds no line, returns to the front
// only if a grant is undone, leaves only when giving up, and is dropped only when out of time or without interest in a free
// lock. In the end, the order of grants is compared with the holders' own logs.
func queueJumps(events []Event, holds []Hold) []string {
	q := &queues{
		lines: make(map[string]*line), deadline: make(map[string]time.Duration),
		gaveUp: make(map[string]bool), dropped: make(map[string]bool),
	}
	unanswered := make(map[request]string)
	for _, e := range events {
		switch e.Kind {
		case Asked:
			unanswered[e.request()] = e.Owner
			if until, known := q.deadline[e.Owner]; !known || e.Until < until {
				q.deadline[e.Owner] = e.Until
			}
		case Refused:
			q.gaveUp[e.Owner] = true
			delete(unanswered, e.request())
		case Acquired:
			delete(unanswered, e.request())
		}
	}
	for _, owner := range unanswered { // the time of the kill
		q.gaveUp[owner] = true
	}
	for _, e := range events {
		q.follow(e)
	}
	return append(q.found, outOfOrder(events, holds, q.dropped)...)
}

func (q *queues) complain(e Event, format string, args ...any) {
	q.found = append(q.found, fmt.Sprintf("%q at %v: ", e.Name, e.At)+fmt.Sprintf(format, args...))
}

func (q *queues) follow(e Event) {
	l := q.lines[e.Name]
	if l == nil {
		l = new(line)
		q.lines[e.Name] = l
	}
	stood := slices.Index(l.owners, e.Owner)
	switch e.Kind {
	case Queued:
		if stood >= 0 {
			q.complain(e, "%s stands in line twice", e.Owner)
		}
		l.owners = append(l.owners, e.Owner)
	case Fronted:
		if e.Owner != l.last && stood != 0 {
			q.complain(e, "%s is put in front, and %s had the lock last", e.Owner, l.last)
		}
		l.owners = slices.Insert(without(l.owners, e.Owner), 0, e.Owner)
	case Left:
		if stood >= 0 && !q.gaveUp[e.Owner] {
			q.complain(e, "%s is out of the line and has not given up", e.Owner)
		}
		l.owners = without(l.owners, e.Owner)
	case Dropped:
		q.drop(l, e)
	case Granted:
		if stood != 0 && len(l.owners) > 0 && e.Owner != l.last {
			q.complain(e, "%s has overtaken %s", e.Owner, l.owners[0])
		}
		l.owners = without(l.owners, e.Owner)
		l.last, l.touched = e.Owner, e.At
	case Touched:
		l.touched = e.At
	}
}

func (q *queues) drop(l *line, e Event) {
	if len(l.owners) == 0 {
		return
	}
	head := l.owners[0]
	l.owners = l.owners[1:]
	q.dropped[head] = true
	if until := q.deadline[head]; until != 0 && e.At >= until-time.Millisecond || e.At-l.touched >= unmoved {
		return
	}
	q.complain(e, "%s is dropped %v after the lock was last taken or given back", head, e.At-l.touched)
}

func without(owners []string, owner string) []string {
	return slices.DeleteFunc(owners, func(o string) bool { return o == owner })
}

// outOfOrder are holds that began after the holds of later arrivals, for owners who stood in line once, before their grant, were never dropped or
// put in front, and were granted the lock once; and holds not granted by the server.
func outOfOrder(events []Event, holds []Hold, dropped map[string]bool) []string {
	place := make(map[[2]string]int) // of each owner by lock; below 0 if the place means nothing
	granted := make(map[[2]string]bool)
	for i, e := range events {
		owner := [2]string{e.Name, e.Owner}
		switch e.Kind {
		case Queued:
			if _, again := place[owner]; again {
				i = -1
			}
			place[owner] = i
		case Fronted:
			place[owner] = -1
		case Granted:
			if _, stood := place[owner]; granted[owner] || !stood {
				place[owner] = -1 // the hold had ended before its owner knew, or a late request will stand in line
			}
			granted[owner] = true
		}
	}
	var found []string
	last := make(map[string]Hold)
	for _, hold := range holds {
		owner := [2]string{hold.Name, hold.Owner}
		if hold.To <= hold.From {
			continue
		}
		if !granted[owner] {
			found = append(found, fmt.Sprintf("the server has granted nothing to %v", hold))
		}
		at, stood := place[owner]
		if !stood || at < 0 || dropped[hold.Owner] {
			continue
		}
		before, any := last[hold.Name]
		if any && at < place[[2]string{before.Name, before.Owner}] {
			found = append(found, fmt.Sprintf("who came first was second: %v; %v", before, hold))
			continue
		}
		last[hold.Name] = hold
	}
	return found
}
