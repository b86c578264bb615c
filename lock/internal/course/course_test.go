package course

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/lock/internal/clock"
	"github.com/lockwire/lockwire/resp"
)

// The errors of a request.
const (
	full      = resp.Error("OOM command not allowed when used memory > 'maxmemory'.")
	denied    = resp.Error("NOPERM User joe has no permissions to run the 'evalsha' command")
	inside    = resp.Error("ERR The user executing the script can't run this command or subcommand script: f, on @user_script:31.")
	wrongType = resp.Error("WRONGTYPE Operation against a key holding the wrong kind of value")
)

var (
	errUnanswered = fmt.Errorf("%w: the connection was lost", conn.ErrUncertain)
	errUnsent     = fmt.Errorf("%w: no connection", conn.ErrNotSent)
	errClosed     = fmt.Errorf("%w: %w", conn.ErrNotSent, conn.ErrClosed)
)

var begin = clock.Instant{Time: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}

func after(d time.Duration) clock.Instant { return clock.Instant{Time: begin.Time.Add(d)} }

// owners are the sorts of owners: of a lease without an Owner, of a call, and of the caller.
var owners = map[string]Course{"fresh": {}, "single": {Owned: true}, "reused": {Owned: true, Reused: true}}

var steps = []string{"later", "now", "released", "not held", "lost", "uncertain", "undone", "refused"}

// situations are the courses in which the last request gets its answer, by what has happened so far.
var situations = map[string]func(c *Course) (answered clock.Instant){
	"first": func(c *Course) clock.Instant {
		c.Ask(begin)
		return after(time.Second)
	},
	"refused": func(c *Course) clock.Instant { // and now the next request
		c.Ask(begin)
		c.Next(0, full, after(time.Second))
		c.Ask(after(time.Hour))
		return after(time.Hour)
	},
	"ran apart": func(c *Course) clock.Instant { // the first request
		c.Ask(begin)
		c.RanApart = true
		return after(time.Second)
	},
	"unanswered": func(c *Course) clock.Instant {
		c.Ask(begin)
		c.Next(0, errUnanswered, after(time.Second))
		c.Ask(after(9 * time.Second))
		return after(10 * time.Second)
	},
	"ages": func(c *Course) clock.Instant { // a repeat on its way when the latch is no longer trusted
		c.Ask(begin)
		c.Next(0, errUnanswered, after(time.Second))
		c.Ask(after(9 * time.Second))
		return after(11 * time.Second)
	},
	"aged": func(c *Course) clock.Instant {
		c.Ask(begin)
		c.Next(0, errUnanswered, after(time.Second))
		c.Ask(after(11 * time.Second))
		return after(12 * time.Second)
	},
	"part": func(c *Course) clock.Instant {
		c.Ask(begin)
		c.Next(0, inside, after(time.Second))
		c.Ask(after(2 * time.Second))
		return after(3 * time.Second)
	},
	"uncounted": func(c *Course) clock.Instant {
		c.Ask(begin)
		c.Next(0, errUnanswered, after(time.Second))
		c.GiveUp()
		c.Uncount()
		c.Ask(after(2 * time.Second))
		return after(3 * time.Second)
	},
}

// A request gets an answer. The table has what follows, for each sort of owner: a column for each situation; "-" cannot be.
//
// From "aged" on, the request of an Owner is an undo. Any reply to it means the same.
func TestNext(t *testing.T) {
	replies := map[string]Step{"released": Released, "not held": NotHeld, "another lease": Lost, "unexpected": RepeatLater}
	failures := map[string]error{"full": full, "denied": denied, "unsent": errUnsent, "unanswered": errUnanswered, "part": inside,
		"wrong type": wrongType, "closed": errClosed}
	rows := strings.Split(strings.TrimSpace(`
owner  | answer        | first     | refused  | ran apart | unanswered | ages      | aged      | part      | uncounted
fresh  | released      | released  | released | released  | released   | released  | released  | released  | -
fresh  | not held      | not held  | not held | not held  | not held   | uncertain | uncertain | uncertain | -
fresh  | unexpected    | later     | later    | later     | later      | later     | later     | later     | -
fresh  | full          | later     | later    | later     | later      | later     | later     | later     | -
fresh  | denied        | later     | later    | later     | later      | later     | later     | later     | -
fresh  | unsent        | later     | later    | later     | later      | later     | later     | later     | -
fresh  | unanswered    | now       | now      | now       | now        | now       | now       | now       | -
fresh  | part          | now       | now      | now       | now        | now       | now       | now       | -
fresh  | wrong type    | refused   | refused  | refused   | refused    | refused   | refused   | refused   | -
fresh  | closed        | refused   | refused  | refused   | refused    | refused   | refused   | refused   | -
single | released      | released  | released | released  | released   | released  | undone    | undone    | -
single | not held      | not held  | not held | not held  | not held   | uncertain | undone    | undone    | -
single | unanswered    | now       | now      | later     | now        | later     | later     | later     | -
single | part          | later     | later    | later     | later      | later     | later     | later     | -
single | wrong type    | refused   | refused  | refused   | refused    | refused   | refused   | refused   | -
reused | released      | released  | released | released  | released   | released  | undone    | undone    | undone
reused | not held      | not held  | not held | not held  | not held   | uncertain | undone    | undone    | undone
reused | another lease | lost      | lost     | lost      | lost       | lost      | undone    | undone    | undone
reused | unexpected    | later     | later    | later     | later      | later     | undone    | undone    | undone
reused | full          | later     | later    | later     | later      | later     | later     | later     | later
reused | denied        | later     | later    | later     | later      | later     | later     | later     | later
reused | unsent        | later     | later    | later     | later      | later     | later     | later     | later
reused | unanswered    | now       | now      | later     | now        | later     | later     | later     | later
reused | part          | later     | later    | later     | later      | later     | later     | later     | later
reused | wrong type    | refused   | refused  | refused   | later      | later     | later     | later     | later
reused | closed        | refused   | refused  | refused   | later      | later     | later     | later     | later
`), "\n")
	columns := cells(rows[0])
	for _, row := range rows[1:] {
		row := cells(row)
		for i := 2; i < len(columns); i++ {
			if row[i] == "-" {
				continue
			}
			c := owners[row[0]]
			c.Latch = "latch"
			at := situations[columns[i]](&c)
			alone, isReply := replies[row[1]]
			if got := steps[c.Next(alone, failures[row[1]], at)]; got != row[i] {
				t.Errorf("%s owner, %s: %s: %s, want %s", row[0], columns[i], row[1], got, row[i])
			}
			if !isReply && failures[row[1]] == nil {
				t.Fatalf("unknown answer %q", row[1])
			}
		}
	}
}

func cells(row string) (cells []string) {
	for cell := range strings.SplitSeq(row, "|") {
		cells = append(cells, strings.TrimSpace(cell))
	}
	return cells
}

// What the client knows after an answer that does not settle the release: the state, and whether the next request of an Owner is an undo.
func TestStates(t *testing.T) {
	for _, test := range []struct {
		situation string
		err       error // nil is an unexpected reply
		state     State
		next      time.Duration // the next request
		undo      bool
	}{
		{"first", full, Sent, time.Hour, false},
		{"first", errUnsent, Sent, time.Hour, false},
		{"first", errUnanswered, Open, 10 * time.Second, false},
		{"first", errUnanswered, Open, 10*time.Second + 1, true},
		{"first", nil, Open, 10 * time.Second, false},
		{"first", nil, Open, 10*time.Second + 1, true},
		{"first", inside, Unlatched, time.Second, true},
		{"refused", errUnanswered, Open, time.Hour + 10*time.Second, false},
		{"refused", errUnanswered, Open, time.Hour + 10*time.Second + 1, true},
		{"ran apart", full, Sent, time.Second, true},
		{"unanswered", full, Open, 10 * time.Second, false},
		{"unanswered", errUnanswered, Open, 10 * time.Second, false}, // the first request without an answer counts
		{"unanswered", errUnanswered, Open, 10*time.Second + 1, true},
		{"unanswered", inside, Unlatched, 10 * time.Second, true},
		{"part", errUnanswered, Unlatched, time.Hour, true},
		{"uncounted", full, Uncounted, time.Hour, true},
		{"uncounted", inside, Uncounted, time.Hour, true},
	} {
		for sort, c := range owners {
			at := situations[test.situation](&c)
			c.Next(RepeatLater, test.err, at)
			if _, settled := c.Settled(); settled || c.State() != test.state || c.MayRun() != (test.state >= Open) {
				t.Errorf("%s owner, %s: %v: state %d, want %d", sort, test.situation, test.err, c.State(), test.state)
			}
			if got, want := c.Ask(after(test.next)), test.undo && c.Owned; got != want {
				t.Errorf("%s owner, %s: %v: after %v an undo: %v, want %v", sort, test.situation, test.err, test.next, got, want)
			}
		}
	}
}

// An undo of which a part has run goes again under a new latch, and then under its own if a request with that may still arrive.
func TestLatches(t *testing.T) {
	for _, test := range []struct {
		name    string
		answers []error // to the requests after the first, of which a part has run; nil is a reply
		latches []string
		last    Step
	}{
		{"a release and an undo", []error{nil}, []string{"1", "1"}, Undone},
		{"part of the undo", []error{inside, nil, nil}, []string{"1", "1", "2", "1"}, Undone},
		{"part of both undos", []error{inside, inside, nil, nil}, []string{"1", "1", "2", "3", "1"}, Undone},
		{"part of the last undo", []error{inside, nil, inside, nil, nil}, []string{"1", "1", "2", "1", "3", "1"}, Undone},
		{"a refusal", []error{inside, full, nil, full, nil}, []string{"1", "1", "2", "2", "1", "1"}, Undone},
		{"no answer", []error{errUnanswered, nil, nil}, []string{"1", "1", "1", "2"}, Undone},
		{"no answer, then part", []error{errUnanswered, inside, nil, nil}, []string{"1", "1", "1", "2", "1"}, Undone},
		{"no answer twice, each time part", []error{errUnanswered, inside, errUnanswered, inside, nil, nil, nil}, []string{"1", "1", "1", "2", "2", "3", "1", "2"}, Undone},
		{"no answer under a new latch", []error{inside, errUnanswered, nil, nil, nil}, []string{"1", "1", "2", "2", "3", "1"}, Undone},
		{"no answer under a former latch", []error{inside, nil, errUnanswered, inside, nil, nil}, []string{"1", "1", "2", "1", "1", "3", "1"}, Undone},
	} {
		c := Course{Owned: true}
		made := 0
		var latches []string
		ask := func() {
			if c.Latch == "" {
				made++
				c.Latch = fmt.Sprint(made)
			}
			latches = append(latches, c.Latch)
			c.Ask(begin)
		}
		ask()
		last := c.Next(0, inside, begin)
		for _, err := range test.answers {
			ask()
			last = c.Next(Released, err, begin)
		}
		if !slices.Equal(latches, test.latches) || last != test.last {
			t.Errorf("%s: latches %v, last %s, want %v and %s", test.name, latches, steps[last], test.latches, steps[test.last])
		}
	}
}

// Without an Owner a release has one latch, also if a part has run.
func TestLatchWithoutAnOwner(t *testing.T) {
	c := Course{Latches: Latches{Latch: "1"}}
	for _, err := range []error{errUnanswered, inside, full, inside} {
		if c.Ask(begin) || c.Latch != "1" {
			t.Errorf("the latch is %q", c.Latch)
		}
		c.Next(0, err, begin)
	}
}

// A release given up is counted as long as no request may have run. What is left of its latches is of no use.
func TestGiveUp(t *testing.T) {
	for situation, want := range map[string]bool{"first": false, "refused": false, "ran apart": false, "unanswered": true, "aged": true, "part": true, "uncounted": false} {
		c := Course{Owned: true}
		situations[situation](&c)
		if got := c.GiveUp(); got != want {
			t.Errorf("%s: GiveUp() = %v, want %v", situation, got, want)
		}
	}
	c := Course{Owned: true, Latches: Latches{Latch: "1"}}
	situations["part"](&c)
	c.Next(0, inside, begin)
	c.GiveUp()
	c.Latch = "2"
	c.Ask(begin)
	if got := c.Next(Released, nil, begin); got != Undone || c.Latch != "2" {
		t.Errorf("after GiveUp: %s under latch %s, want an undo under latch 2", steps[got], c.Latch)
	}
}

// A request that came too late has changed nothing: it goes again after any time.
func TestLateRequest(t *testing.T) {
	c := Course{Owned: true}
	if c.Ask(begin); c.MustUndo(after(time.Hour)) {
		t.Error("after a late request a release must be an undo")
	}
}

func TestSettle(t *testing.T) {
	var c Course
	if c.State() != Unsent {
		t.Errorf("the state is %d at first", c.State())
	}
	outcome := errors.New("outcome")
	c.Settle(outcome)
	if got, settled := c.Settled(); got != outcome || !settled {
		t.Errorf("Settled() = %v, %v, want %v, true", got, settled, outcome)
	}
}

func TestNoLatch(t *testing.T) {
	for situation, want := range map[string]bool{"first": false, "unanswered": false, "aged": false, "ran apart": true, "part": true} {
		var c Course
		situations[situation](&c)
		if c.NoLatch() != want {
			t.Errorf("%s: NoLatch() = %v, want %v", situation, c.NoLatch(), want)
		}
	}
}

func TestSettles(t *testing.T) {
	for s, name := range steps {
		if got, want := Step(s).Settles(), name != "now" && name != "later"; got != want {
			t.Errorf("%s settles: %v, want %v", name, got, want)
		}
	}
}

// An undo without an answer may have been stopped by a missing right whose refusal was lost: the answer to its repeat says nothing.
func TestUndoInDoubt(t *testing.T) {
	l := Latches{Latch: "1"}
	l.Unsure(false)
	if last := l.Answered(); last || l.Latch != "" {
		t.Errorf("after an undo without an answer: Answered() = %v, latch %q, want a further undo under a new latch", last, l.Latch)
	}
	l.Latch = "2"
	if !l.Answered() {
		t.Error("Answered() = false after the further undo")
	}
}
