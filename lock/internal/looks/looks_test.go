package looks

import (
	"errors"
	"testing"
	"time"
)

var testPace = Pace{
	Floor: 10 * time.Millisecond, Ceiling: 10 * time.Second, PollMin: 50 * time.Millisecond, PollMax: time.Second, Slack: 2 * time.Millisecond,
}

// after returns how long after at the next look is due.
func after(t *testing.T, l *Looks, at time.Time) time.Duration {
	t.Helper()
	if l.At().IsZero() {
		t.Fatal("a look is due at once")
	}
	return l.At().Sub(at)
}

func listening(at time.Time) Looks {
	l := Begin(&testPace)
	l.Note(at, false, true)
	return l
}

func TestRefused(t *testing.T) {
	at := time.Now()
	for _, test := range []struct {
		name     string
		left     time.Duration
		up       bool
		min, max time.Duration
	}{
		{"the end of the lease", time.Second, true, time.Second + testPace.Slack, time.Second + testPace.Slack},
		{"never later than the ceiling", time.Hour, true, testPace.Ceiling * 9 / 10, testPace.Ceiling + testPace.Slack},
		{"an unknown lease", -1, true, testPace.Ceiling * 9 / 10, testPace.Ceiling},
		{"a lease at its end", 0, true, testPace.Floor, testPace.Floor},
		{"without a subscription", time.Hour, false, testPace.PollMin * 3 / 4, testPace.PollMin},
	} {
		l := Begin(&testPace)
		l.Note(at, false, test.up)
		l.Refused(at, test.left, nil)
		if got := after(t, &l, at); got < test.min || got > test.max {
			t.Errorf("%s: the next look after %v, want %v to %v", test.name, got, test.min, test.max)
		}
	}
}

// Near the end of a lease the pauses grow, up to PollMax, and start anew with a longer lease or an event.
func TestFloorGrows(t *testing.T) {
	at := time.Now()
	l := listening(at)
	for want := testPace.Floor; want < 4*testPace.PollMax; want *= 2 {
		l.Refused(at, 0, nil)
		if got := after(t, &l, at); got != min(want, testPace.PollMax) {
			t.Fatalf("a pause of %v, want %v", got, min(want, testPace.PollMax))
		}
	}
	l.Refused(at, time.Minute, nil)
	l.Refused(at, 0, nil)
	if got := after(t, &l, at); got != testPace.Floor {
		t.Errorf("a pause of %v after a longer lease, want %v", got, testPace.Floor)
	}
	l.Note(at, true, true)
	l.Used()
	l.Refused(at, 0, nil)
	if got := after(t, &l, at); got != testPace.Floor {
		t.Errorf("a pause of %v after an event, want %v", got, testPace.Floor)
	}
}

func TestEventIsUsedOnce(t *testing.T) {
	at := time.Now()
	l := listening(at)
	l.Refused(at, time.Second, nil)
	l.Note(at, true, true)
	if !l.At().IsZero() || !l.Woken() {
		t.Error("an event makes no look due")
	}
	l.Used()
	l.Refused(at, time.Second, nil)
	after(t, &l, at)
	l.Note(at, true, true)
	l.Unreplicated(at)
	l.Wake()
	after(t, &l, at) // the wake-up is that of its own undo
}

// A subscription that breaks brings the next look forward.
func TestBrokenSubscription(t *testing.T) {
	at := time.Now()
	l := listening(at)
	l.Refused(at, time.Hour, nil)
	if l.Note(at, false, true); after(t, &l, at) < testPace.Ceiling*9/10 {
		t.Error("a subscription that is in place brings the next look forward")
	}
	l.Note(at, false, false)
	if got := after(t, &l, at); got != testPace.PollMin || l.Up() {
		t.Errorf("the next look after %v, want %v", got, testPace.PollMin)
	}
}

// Without an answer the pauses grow, up to PollMax, and start anew after an answer, if messages arrive again.
func TestPausesWithoutAnAnswer(t *testing.T) {
	at := time.Now()
	for _, up := range []bool{true, false} {
		l := listening(at)
		want := testPace.PollMin
		unanswered := func() {
			t.Helper()
			l.Wake()
			l.Unanswered(at, at, errors.New("broken"))
			if got := after(t, &l, at); got < want*3/4 || got > want {
				t.Fatalf("up %v: a pause of %v, want at most %v", up, got, want)
			}
		}
		for ; want < testPace.PollMax; want *= 2 {
			unanswered()
		}
		want = testPace.PollMax
		unanswered()
		l.up = up
		if l.Refused(at, time.Minute, nil); up {
			want = testPace.PollMin
		}
		unanswered()
	}
}

// After a first look that came too late to the server the next one is soon. After further ones the pauses grow, up to a minute; an event ends them, and
// an answer in time.
func TestLate(t *testing.T) {
	at := time.Now()
	for range 100 {
		l := listening(at)
		late := func(most time.Duration) {
			t.Helper()
			l.Late(at, at.Add(-5*time.Second))
			if got := after(t, &l, at); got > most || got < testPace.PollMin*3/4 {
				t.Fatalf("a pause of %v, want %v at most", got, most)
			}
		}
		late(testPace.PollMin)
		for most := 10 * time.Second; most < 3*time.Minute; most *= 2 {
			late(min(most, time.Minute))
		}
		l.Wake()
		if !l.At().IsZero() {
			t.Fatal("no look is due after an event")
		}
		l.Refused(at, time.Second, nil)
		late(testPace.PollMin)
	}
}

func TestHopeless(t *testing.T) {
	at, broken := time.Now(), errors.New("broken")
	since := at.Add(-time.Hour)
	l := listening(at)
	hopeless := func(later time.Duration, since time.Time) bool {
		failure, hopeless := l.Hopeless(at.Add(later), since, time.Minute)
		return hopeless && failure == broken
	}
	l.Unanswered(at, at, broken)
	l.Unanswered(at.Add(time.Second), at.Add(time.Second), broken)
	if hopeless(59*time.Second, since) || !hopeless(time.Minute, since) {
		t.Error("the patience does not count from the first look without an answer")
	}
	if hopeless(time.Minute, at.Add(time.Second)) {
		t.Error("the patience counts from before the wait")
	}
	for name, answer := range map[string]func(){
		"a refusal":             func() { l.Refused(at, time.Second, nil) },
		"an unacknowledged one": func() { l.Unreplicated(at) },
		"a late grant":          func() { l.Failed(at) },
	} {
		l.Unanswered(at, at, broken)
		if answer(); hopeless(time.Hour, since) {
			t.Errorf("hopeless after %s", name)
		}
	}
}

func TestEventAfterNoAnswer(t *testing.T) {
	at := time.Now()
	l := listening(at)
	l.Unanswered(at, at, errors.New("broken"))
	l.Wake()
	if got := after(t, &l, at); got != testPace.PollMin {
		t.Errorf("a look %v after one without an answer, want %v", got, testPace.PollMin)
	}
	l.Refused(at, time.Minute, nil)
	if !l.At().IsZero() {
		t.Error("no look at once after a refusal and an event")
	}
}

func TestBackoff(t *testing.T) {
	at := time.Now()
	l := Begin(&testPace)
	backoff := func(looks int, last time.Duration) time.Duration { return last + time.Duration(looks+1)*time.Second }
	for _, want := range []time.Duration{time.Second, 3 * time.Second, 6 * time.Second} {
		l.Refused(at, time.Minute, backoff)
		if got := after(t, &l, at); got != want {
			t.Errorf("a pause of %v, want %v", got, want)
		}
	}
	l.Acquired(at, time.Minute, backoff, false)
	if got := after(t, &l, at); got != time.Second || l.Woken() {
		t.Errorf("a pause of %v for the waiter behind, want 1s", got)
	}
}
