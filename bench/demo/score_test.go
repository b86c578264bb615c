package main

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// madeUp is what two workers might have reported.
type madeUp struct {
	t     *testing.T
	score *score
}

func newMadeUp(t *testing.T) *madeUp {
	m := &madeUp{t, newScore(2)}
	m.say(0, report{Kind: ready, Owner: "one"})
	m.say(1, report{Kind: ready, Owner: "two"})
	return m
}

func (m *madeUp) say(worker int, r report) {
	m.t.Helper()
	if err := m.score.take(event{worker: worker, report: r}); err != nil {
		m.t.Fatal(err)
	}
}

func (m *madeUp) hold(worker, from, until int, value int64) {
	m.t.Helper()
	m.say(worker, report{Kind: acquired, At: at(from), Asked: at(from), Value: value - 1})
	m.say(worker, report{Kind: released, At: at(until), Value: value, Wrote: true})
}

// kill has worker 2 killed at 1000 ms with 2900 ms of its lease left, and worker 1 take over at took.
func (m *madeUp) kill(took int) {
	m.t.Helper()
	m.say(1, report{Kind: acquired, At: at(500), Asked: at(500), Value: 2, Stays: true})
	m.score.killing = &takeover{victim: 1, asked: at(999), left: 2900 * time.Millisecond, killed: at(1000)}
	if err := m.score.take(event{worker: 1, ended: true, err: errors.New("signal: killed")}); err != nil {
		m.t.Fatal(err)
	}
	m.score.done[len(m.score.done)-1].until = at(1001) // instead of this instant
	m.hold(0, took, took+10, 3)
}

func failing(checks []check) string {
	var names []string
	for _, c := range checks {
		if !c.ok {
			names = append(names, c.name)
		}
	}
	return strings.Join(names, " ")
}

func TestVerdict(t *testing.T) {
	const lease = 3 * time.Second
	tests := []struct {
		name    string
		second  int // when the second hold begins; the first ends at 100
		took    int // 0: nobody takes over
		counter int64
		step    time.Duration
		want    string // checks that fail
	}{
		{"all is well", 101, 3905, 3, 0, ""},
		{"a lost increment", 101, 3905, 2, 0, "counter"},
		{"one too many", 101, 3905, 4, 0, "counter"},
		{"an overlap", 99, 3905, 3, 0, "overlaps"},
		{"a takeover before the end of the lease", 101, 3800, 3, 0, "takeover"},
		{"a takeover long after it", 101, 4600, 3, 0, "takeover"},
		{"no takeover", 101, 0, 2, 0, "takeover"},
		{"a clock that was set", 101, 3905, 3, -time.Second, "clock"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := newMadeUp(t)
			m.hold(0, 0, 100, 1)
			m.hold(1, tt.second, 200, 2)
			if tt.took > 0 {
				m.kill(tt.took)
			}
			checks := m.score.verdict(lease, tt.counter, tt.step)
			if got := failing(checks); got != tt.want {
				t.Errorf("failing checks: %q, want %q; all: %v", got, tt.want, checks)
			}
			if allWell(checks) != (tt.want == "") {
				t.Errorf("allWell = %v", allWell(checks))
			}
		})
	}
}

func TestVerdictOfNothing(t *testing.T) {
	if got := failing(newScore(2).verdict(time.Second, 0, 0)); got != "takeover holds" {
		t.Errorf("failing checks: %q", got)
	}
}

// TestKilledWorker shows that what the killed worker had not reported does not count.
func TestKilledWorker(t *testing.T) {
	m := newMadeUp(t)
	m.hold(1, 0, 100, 1)
	m.kill(3905)
	w := m.score.workers[1]
	if !w.killed || w.acquired != 2 || w.counted != 1 {
		t.Errorf("killed %v, acquired %d, counted %d, want true, 2, 1", w.killed, w.acquired, w.counted)
	}
	k := m.score.killing
	if !k.complete || k.by != 0 || k.gap() != 2905*time.Millisecond {
		t.Errorf("takeover %+v, gap %v, want one by 0 after 2.905s", k, k.gap())
	}
}

func TestFailures(t *testing.T) {
	begun := report{Kind: acquired, At: at(0)}
	tests := []struct {
		name  string
		begin []report
		event event
		want  string
	}{
		{"a failure", nil, event{report: report{Kind: failed, Text: "lock: lost"}}, "worker 1: lock: lost"},
		{"a crash", nil, event{ended: true, err: errors.New("exit status 2")}, "worker 1: exit status 2"},
		{"an end with the lock", []report{begun}, event{ended: true}, "without a word"},
		{"a good end", nil, event{ended: true}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := newMadeUp(t)
			for _, r := range tt.begin {
				m.say(0, r)
			}
			err := m.score.take(tt.event)
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
}

func TestFind(t *testing.T) {
	m := newMadeUp(t)
	for owner, want := range map[string]int{"one:1": 0, "two:77": 1, "on:1": nobody, "three:1": nobody, "": nobody} {
		if got := m.score.find(owner); got != want {
			t.Errorf("find(%q) = %d, want %d", owner, got, want)
		}
	}
}
