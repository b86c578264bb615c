package locktorture_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockwire/lockwire/internal/locktorture"
)

func history(events ...locktorture.Event) *locktorture.History {
	h := new(locktorture.History)
	for _, e := range events {
		h.Add(e)
	}
	return h
}

func event(process int, hold int64, kind locktorture.Kind, at, until time.Duration) locktorture.Event {
	owner := string(rune('A'+process)) + ":" + string(rune('0'+hold))
	return locktorture.Event{At: at, Process: process, Hold: hold, Kind: kind, Name: "n", Owner: owner, Until: until}
}

func acquired(process int, hold int64, at, until time.Duration) locktorture.Event {
	return event(process, hold, locktorture.Acquired, at, until)
}

func TestHolds(t *testing.T) {
	h := history(
		acquired(1, 1, 10, 100), event(1, 1, locktorture.Releasing, 40, 100), // given back
		acquired(2, 1, 50, 100), event(2, 1, locktorture.Lost, 103, 100), // told late: it ended at 100
		acquired(1, 2, 110, 150),                                              // forgotten: it ended at 150
		acquired(3, 1, 160, 200), event(3, 1, locktorture.Extended, 180, 300), // its process died at 250
		acquired(2, 2, 260, 0), // without end
		event(9, 9, locktorture.Releasing, 5, 0),
	)
	h.Died(3, 250)
	want := [][2]time.Duration{{10, 40}, {50, 100}, {110, 150}, {160, 250}, {260, locktorture.Forever}}
	var got [][2]time.Duration
	for _, hold := range h.Holds() {
		got = append(got, [2]time.Duration{hold.From, hold.To})
	}
	if !slices.Equal(got, want) {
		t.Errorf("holds from and to %v, want %v", got, want)
	}
	if found := h.Violations(locktorture.Rules{}); len(found) != 0 {
		t.Errorf("violations in a history without: %q", found)
	}
}

// The judge sees an overlap, however the first hold goes on.
func TestConflicts(t *testing.T) {
	other := acquired(2, 1, 50, 90)
	other.Name = "m"
	again := acquired(1, 2, 50, 90)
	again.Owner = "B:1"
	for name, c := range map[string]struct {
		events []locktorture.Event
		want   int
	}{
		"one after the other": {[]locktorture.Event{acquired(1, 1, 10, 50), acquired(2, 1, 50, 90)}, 0},
		"both valid":          {[]locktorture.Event{acquired(1, 1, 10, 51), acquired(2, 1, 50, 90)}, 1},
		"logged the other way round": {
			[]locktorture.Event{acquired(2, 1, 50, 90), acquired(1, 1, 10, 51)}, 1},
		"another lock":   {[]locktorture.Event{acquired(1, 1, 10, 100), other}, 0},
		"the same owner": {[]locktorture.Event{acquired(1, 1, 10, 100), again}, 0},
		"behind a hold of the same owner": {
			[]locktorture.Event{acquired(1, 1, 10, 100), again, acquired(2, 1, 95, 99)}, 1},
		"extended into it": {
			[]locktorture.Event{acquired(1, 1, 10, 40), event(1, 1, locktorture.Extended, 30, 60), acquired(2, 1, 50, 90)}, 1},
		"released too late": {
			[]locktorture.Event{acquired(1, 1, 10, 0), acquired(2, 1, 50, 90), event(1, 1, locktorture.Releasing, 51, 0)}, 1},
		"released in time": {
			[]locktorture.Event{acquired(1, 1, 10, 0), acquired(2, 1, 50, 90), event(1, 1, locktorture.Releasing, 49, 0)}, 0},
		"over before it began": {[]locktorture.Event{acquired(1, 1, 10, 100), acquired(2, 1, 50, 40)}, 0},
		"three at once": {
			[]locktorture.Event{acquired(1, 1, 10, 100), acquired(2, 1, 20, 30), acquired(3, 1, 50, 60)}, 2},
	} {
		h := history(c.events...)
		if got := locktorture.Conflicts(h.Holds(), locktorture.Rules{}); len(got) != c.want {
			t.Errorf("%s: %d conflicts, want %d: %v", name, len(got), c.want, got)
		}
		if got := h.Violations(locktorture.Rules{}); len(got) != c.want {
			t.Errorf("%s: %d violations, want %d: %q", name, len(got), c.want, got)
		}
	}
}

func TestViolations(t *testing.T) {
	notHeld := func(at time.Duration) locktorture.Event {
		e := event(1, 1, locktorture.Released, at, 0)
		e.Text = locktorture.NotHeld
		return e
	}
	complaint := event(1, 0, locktorture.Failed, 5, 0)
	complaint.Text = "this cannot be"
	for name, c := range map[string]struct {
		event locktorture.Event
		want  string
	}{
		"lost in time":           {event(1, 1, locktorture.Lost, 50, 50), ""},
		"lost before its end":    {event(1, 1, locktorture.Lost, 49, 50), "was lost"},
		"not held after its end": {notHeld(51), ""},
		"not held within":        {notHeld(49), "was not held"},
		"complaint":              {complaint, "this cannot be"},
	} {
		found := history(acquired(1, 1, 10, 50), c.event).Violations(locktorture.Rules{})
		if c.want == "" && len(found) > 0 || c.want != "" && (len(found) != 1 || !strings.Contains(found[0], c.want)) {
			t.Errorf("%s: violations %q, want %q", name, found, c.want)
		}
	}
}

func TestAwait(t *testing.T) {
	h := history(acquired(1, 1, 10, 50))
	second := func(e locktorture.Event) bool { return e.Process == 2 }
	found := make(chan locktorture.Event, 1)
	go func() {
		e, err := h.Await(t.Context(), second)
		if err != nil {
			t.Error(err)
		}
		found <- e
	}()
	h.Add(acquired(3, 1, 60, 70))
	h.Add(acquired(2, 1, 80, 90))
	if e := <-found; e.At != 80 {
		t.Errorf("Await found %+v", e)
	}
	if n := h.Count(second); n != 1 {
		t.Errorf("Count = %d, want 1", n)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := h.Await(ctx, func(e locktorture.Event) bool { return e.Process == 4 })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("Await of nothing = %v, want Canceled", err)
	}
}
