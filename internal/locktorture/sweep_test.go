package locktorture_test

import (
	"strings"
	"testing"
	"time"

	"github.com/lockwire/lockwire/internal/locktorture"
)

// hold is one with an end, of somebody of his own.
func hold(process int, from, to time.Duration, changes ...func(e *locktorture.Event)) locktorture.Event {
	e := acquired(process, 1, from, to)
	for _, change := range changes {
		change(&e)
	}
	return e
}

func mode(m string) func(e *locktorture.Event) { return func(e *locktorture.Event) { e.Mode = m } }
func token(n int64) func(e *locktorture.Event) { return func(e *locktorture.Event) { e.Token = n } }
func permits(n int) func(e *locktorture.Event) { return func(e *locktorture.Event) { e.Permits = n } }
func owner(owner string) func(e *locktorture.Event) {
	return func(e *locktorture.Event) { e.Owner = owner }
}

// number is how many permits there are, or what a count is at.
func number(kind locktorture.Kind, n int) locktorture.Event {
	return locktorture.Event{Kind: kind, At: 90, Name: "n", Permits: n}
}

// want fails the test unless the violations are one with that text, or none where it is empty.
func want(t *testing.T, what string, found []string, text string) {
	t.Helper()
	if text == "" && len(found) > 0 || text != "" && (len(found) != 1 || !strings.Contains(found[0], text)) {
		t.Errorf("%s: violations %q, want %q", what, found, text)
	}
}

func TestRulesOfLocks(t *testing.T) {
	plain, readers := locktorture.Rules{}, locktorture.Rules{Readers: true}
	single, tokens := locktorture.Rules{Single: true}, locktorture.Rules{Tokens: true}
	type events = []locktorture.Event
	read := mode(locktorture.Read)
	for _, c := range []struct {
		name  string
		rules locktorture.Rules
		holds events
		want  string
	}{
		{"readers", readers, events{hold(1, 10, 50, read), hold(2, 20, 60, read)}, ""},
		{"readers of a lock without", plain, events{hold(1, 10, 50, read), hold(2, 20, 60, read)}, "overlap"},
		{"reader and writer", readers, events{hold(1, 10, 50, read), hold(2, 20, 60)}, "30ns of overlap"},
		{"writer and reader", readers, events{hold(1, 10, 50), hold(2, 20, 60, read)}, "overlap"},
		{"writers", readers, events{hold(1, 10, 50), hold(2, 20, 60)}, "overlap"},
		{"a reader behind one that lasts, and a writer", readers,
			events{hold(1, 10, 90, read), hold(2, 20, 30, read), hold(3, 40, 60)}, "overlap"},
		{"a writer that reads", readers, events{hold(1, 10, 50, owner("a:write")), hold(2, 20, 60, owner("a"), read)}, ""},
		{"twice", single, events{hold(1, 10, 50, owner("a")), hold(2, 20, 60, owner("a"))}, "twice"},
		{"once more", single, events{hold(1, 10, 50, owner("a")), hold(2, 50, 60, owner("a"))}, ""},
		{"a larger token", tokens, events{hold(1, 10, 20, token(7)), hold(2, 20, 30, token(8))}, ""},
		{"a smaller token", tokens, events{hold(1, 10, 20, token(7)), hold(2, 20, 30, token(6))}, "tokens 7 and 6"},
		{"the same token", tokens, events{hold(1, 10, 20, token(7)), hold(2, 20, 30, token(7))}, "tokens 7 and 7"},
		{"no token", tokens, events{hold(1, 10, 20)}, "tokens 0 and 0"},
		{"one smaller than that before the last", tokens,
			events{hold(1, 10, 20, token(7)), hold(2, 20, 30, token(9)), hold(3, 40, 50, token(8))}, "tokens 9 and 8"},
		{"the token of a further hold", tokens,
			events{hold(1, 10, 50, owner("a"), token(7)), hold(2, 20, 60, owner("a"), token(7))}, ""},
		{"another token of a further hold", tokens,
			events{hold(1, 10, 50, owner("a"), token(7)), hold(2, 20, 60, owner("a"), token(8))}, "of one owner"},
		{"the token of a hold that was over before it began", tokens,
			events{hold(1, 10, 20, token(7)), hold(2, 25, 22, token(6)), hold(3, 30, 40, token(8))}, ""},
	} {
		want(t, c.name, history(c.holds...).Violations(c.rules), c.want)
	}
}

func TestRulesOfPermits(t *testing.T) {
	leased, unleased := locktorture.Rules{Permits: true, Leased: true}, locktorture.Rules{Permits: true}
	type events = []locktorture.Event
	two := func(process int, kind locktorture.Kind, at time.Duration) locktorture.Event {
		e := event(process, 1, kind, at, 0)
		e.Permits = 2
		return e
	}
	freed := two(1, locktorture.Released, 50)
	freed.Text = locktorture.Freed
	seen := func(n int) locktorture.Event { return number(locktorture.Seen, n) }
	for _, c := range []struct {
		name   string
		rules  locktorture.Rules
		events events
		want   string
	}{
		{"all", leased, events{hold(1, 10, 50, permits(2)), hold(2, 20, 60, permits(1))}, ""},
		{"too many", leased, events{hold(1, 10, 50, permits(2)), hold(2, 20, 60, permits(2))}, "4 permits of 3"},
		{"one after the other", leased, events{hold(1, 10, 50, permits(2)), hold(2, 50, 60, permits(2))}, ""},
		{"three", leased, events{hold(1, 10, 50, permits(1)), hold(2, 20, 60, permits(2)), hold(3, 30, 40, permits(1))}, "4 permits of 3"},
		{"as many as were set", leased, events{seen(3)}, ""},
		{"one less", leased, events{seen(2)}, "2 permits"},
		{"one more", leased, events{seen(4)}, "4 permits"},
		{"one more without leases", unleased, events{seen(4)}, "want 3 to 3"},
		{"lost with a process", unleased, events{two(1, locktorture.Acquired, 10), seen(1)}, ""},
		{"lost with a process and there", unleased, events{two(1, locktorture.Acquired, 10), seen(3)}, "want 1 to 1"},
		{"given back after its death", unleased, events{two(1, locktorture.Acquired, 10), freed, seen(1)}, "want 3 to 3"},
		{"perhaps lost with a process", unleased, events{two(1, locktorture.Asked, 10), seen(0)}, "want 1 to 3"},
		{"perhaps taken back by a process", unleased, events{two(1, locktorture.Refused, 10), seen(0)}, "want 1 to 3"},
		{"perhaps given back by a process", unleased,
			events{two(1, locktorture.Acquired, 10), two(1, locktorture.Releasing, 20), seen(4)}, "want 1 to 3"},
		{"lost with a process that lives", unleased, events{two(2, locktorture.Acquired, 10), seen(1)}, "want 3 to 3"},
	} {
		h := history(append(events{number(locktorture.Set, 3)}, c.events...)...)
		h.Died(1, 60)
		want(t, c.name, h.Violations(c.rules), c.want)
	}
}

func TestRulesOfCounts(t *testing.T) {
	type events = []locktorture.Event
	down := func(hold int64, kind locktorture.Kind, at time.Duration) locktorture.Event {
		e := event(1, hold, kind, at, 0)
		e.Mode, e.Text = locktorture.Down, locktorture.Freed
		return e
	}
	first, second := down(1, locktorture.Asked, 10), down(2, locktorture.Asked, 20)
	done := events{first, second, down(1, locktorture.Released, 25), down(2, locktorture.Released, 26)}
	open := hold(2, 30, 0, mode(locktorture.Wait))
	seen := func(n int) locktorture.Event { return number(locktorture.Seen, n) }
	for _, c := range []struct {
		name   string
		events events
		want   string
	}{
		{"open", events{first, second, open}, ""},
		{"open too early", events{first, open, down(2, locktorture.Asked, 31)}, "1 of 2"},
		{"seen open", append(done, seen(0)), ""},
		{"not open", append(done, seen(1)), "want 0 to 0"},
		{"perhaps not open", events{first, second, seen(1)}, ""},
		{"counted twice", events{first, seen(0)}, "want 1 to 2"},
	} {
		h := history(append(events{number(locktorture.Set, 2)}, c.events...)...)
		want(t, c.name, h.Violations(locktorture.Rules{Count: true}), c.want)
	}
}
