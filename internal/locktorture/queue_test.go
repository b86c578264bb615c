package locktorture_test

import (
	"testing"
	"time"

	"github.com/lockwire/lockwire/internal/locktorture"
)

// step is something that the server does to a line, 10 ms after the one before it or after a pause.
type step struct {
	kind  locktorture.Kind
	owner string
	pause time.Duration
}

// line is the events of some steps.
func line(steps ...step) []locktorture.Event {
	var events []locktorture.Event
	at := time.Duration(0)
	for _, s := range steps {
		at += 10*time.Millisecond + s.pause
		events = append(events, locktorture.Event{At: at, Kind: s.kind, Name: "n", Owner: s.owner})
	}
	return events
}

// waiters are a and b, who wait for a long time, brief, who does for 20 ms, gone, who was refused, and killed, who never had an
// answer.
func waiters() []locktorture.Event {
	var events []locktorture.Event
	for i, name := range []string{"a", "b", "brief", "gone", "killed"} {
		asked := event(i, 1, locktorture.Asked, 1, time.Minute)
		if asked.Owner = name; name == "brief" {
			asked.Until = 20 * time.Millisecond
		}
		events = append(events, asked)
		answer := event(i, 1, locktorture.Acquired, 3, 2) // and over
		if answer.Owner = name; name == "gone" {
			answer.Kind = locktorture.Refused
		}
		if name != "killed" {
			events = append(events, answer)
		}
	}
	return events
}

func TestRulesOfQueues(t *testing.T) {
	queued := func(o string) step { return step{kind: locktorture.Queued, owner: o} }
	fronted := func(o string) step { return step{kind: locktorture.Fronted, owner: o} }
	left := func(o string) step { return step{kind: locktorture.Left, owner: o} }
	granted := func(o string) step { return step{kind: locktorture.Granted, owner: o} }
	touched, dropped := step{kind: locktorture.Touched}, step{kind: locktorture.Dropped}
	late := func(s step) step { s.pause = time.Second; return s }
	type steps = []step
	for _, c := range []struct {
		name  string
		steps steps
		want  string
	}{
		{"in order", steps{granted("x"), queued("a"), queued("b"), touched, granted("a"), touched, granted("b")}, ""},
		{"out of order", steps{granted("x"), queued("a"), queued("b"), touched, granted("b")}, "b has overtaken a"},
		{"past the line", steps{granted("x"), queued("a"), touched, granted("y")}, "y has overtaken a"},
		{"once more", steps{granted("x"), queued("a"), granted("x")}, ""},
		{"twice in line", steps{granted("x"), queued("a"), queued("a")}, "twice"},
		{"without having given up", steps{granted("x"), queued("a"), left("a")}, "has not given up"},
		{"having given up", steps{granted("x"), queued("gone"), queued("a"), left("gone"), granted("a")}, ""},
		{"having been killed", steps{granted("x"), queued("killed"), queued("a"), left("killed"), granted("a")}, ""},
		{"out of no line", steps{left("a")}, ""},
		{"dropped", steps{granted("x"), queued("a"), touched, dropped}, "a is dropped 10ms after"},
		{"dropped when its time was up", steps{granted("x"), queued("brief"), queued("b"), dropped, granted("b")}, ""},
		{"dropped since it did not come", steps{granted("x"), queued("a"), queued("b"), touched, late(dropped), granted("b")}, ""},
		{"dropped since it did not come while the lock was taken",
			steps{granted("x"), queued("a"), late(touched), dropped}, "a is dropped 10ms after"},
		{"nobody dropped", steps{dropped}, ""},
		{"what it got taken back", steps{granted("x"), queued("a"), touched, fronted("x"), granted("x"), touched, granted("a")}, ""},
		{"put in front", steps{granted("x"), queued("a"), touched, fronted("b")}, "b is put in front"},
		{"put where it stood", steps{granted("x"), queued("a"), queued("b"), fronted("a"), granted("a")}, ""},
	} {
		h := history(append(waiters(), line(c.steps...)...)...)
		want(t, c.name, h.Violations(locktorture.Rules{Queue: true}), c.want)
	}
}

// Who had a lock in which order is compared with the line, whatever the server says of what it granted.
func TestOrderOfHolds(t *testing.T) {
	server := line(
		step{kind: locktorture.Queued, owner: "a"}, step{kind: locktorture.Queued, owner: "b"},
		step{kind: locktorture.Granted, owner: "a"}, step{kind: locktorture.Granted, owner: "b"},
	)
	a, b := hold(1, 10, 20, owner("a")), hold(2, 30, 40, owner("b"))
	first := hold(3, 5, 8, owner("b"))
	stranger := hold(3, 50, 60, owner("c"))
	again := line(step{kind: locktorture.Queued, owner: "b"})
	for _, c := range []struct {
		name   string
		events []locktorture.Event
		want   string
	}{
		{"in order", append(server, a, b), ""},
		{"out of order", append(server, first, a), "who came first was second"},
		{"out of order by one who had stood in line before", append(append(server, again...), first, a), ""},
		{"out of order by one whose grant was over before it knew", append(append(line(
			step{kind: locktorture.Queued, owner: "b"}, step{kind: locktorture.Granted, owner: "b"}, step{kind: locktorture.Queued, owner: "a"},
			step{kind: locktorture.Granted, owner: "a"}), line(step{kind: locktorture.Granted, owner: "b"})...),
			hold(1, 10, 20, owner("a")), hold(2, 30, 40, owner("b"))), ""},
		{"out of order by one whose late request stands in line behind its hold", append(line(
			step{kind: locktorture.Granted, owner: "b"}, step{kind: locktorture.Queued, owner: "a"}, step{kind: locktorture.Queued, owner: "b"},
			step{kind: locktorture.Granted, owner: "a"}),
			hold(1, 10, 20, owner("b")), hold(2, 30, 40, owner("a"))), ""},
		{"without a grant", append(server, a, stranger), "has granted nothing"},
	} {
		want(t, c.name, history(c.events...).Violations(locktorture.Rules{Queue: true}), c.want)
	}
}
