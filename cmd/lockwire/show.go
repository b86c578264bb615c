package main

import (
	"cmp"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/lockwire/lockwire/lock"
)

// lockState is a lock in the output of several commands. Times are in milliseconds; -1 is without end.
type lockState struct {
	Name      string        `json:"name"`
	Kind      string        `json:"kind,omitempty"`
	Held      bool          `json:"held"`
	Mode      string        `json:"mode,omitempty"`
	Remaining int64         `json:"remaining_ms"`
	Token     int64         `json:"token,omitempty"`
	Holders   []holderState `json:"holders"`
	Queue     []waiterState `json:"queue,omitempty"`
	Permits   *permitsState `json:"permits,omitempty"`

	// Of an Inspection:
	Listening      int            `json:"listening,omitempty"`
	Processes      []processState `json:"processes,omitempty"`
	ProcessesError string         `json:"processes_error,omitempty"`
	Latches        []latchState   `json:"latches,omitempty"`
}

type latchState struct {
	Key       string `json:"key"`
	Remaining int64  `json:"remaining_ms"`
}

type holderState struct {
	Owner     string `json:"owner"`
	Holds     int64  `json:"holds"`
	Remaining int64  `json:"remaining_ms"`
}

type waiterState struct {
	Owner    string `json:"owner"`
	Deadline int64  `json:"deadline_ms"`
}

// processState is the process behind owners, whose names begin with ID.
type processState struct {
	ID        string `json:"id"`
	Connected bool   `json:"connected"`
	Name      string `json:"name"`
	Addr      string `json:"addr"`
	Age       int64  `json:"age_ms"` // of the connection
}

type permitsState struct {
	Free  int `json:"free"`
	Taken int `json:"taken"`
}

// stateOf returns the state of a lock found by List or Inspect.
func stateOf(l lock.Listed) lockState {
	s := lockState{
		Name: l.Name, Kind: string(l.Shape), Held: l.Info.Locked, Mode: string(l.Info.Mode), Token: l.Info.Token,
		Remaining: milliseconds(l.Info.Remaining), Holders: []holderState{},
	}
	for _, h := range l.Info.Holders {
		s.Holders = append(s.Holders, holderState{h.Owner, h.Holds, milliseconds(h.Remaining)})
	}
	for _, w := range l.Info.Queue {
		s.Queue = append(s.Queue, waiterState{w.Owner, milliseconds(w.Deadline)})
	}
	if p := l.Info.Permits; p.Set {
		s.Permits = &permitsState{p.Free, p.Taken}
	}
	return s
}

func milliseconds(d time.Duration) int64 {
	if d < 0 {
		return -1
	}
	return d.Milliseconds()
}

const stateHeader = "NAME KIND HOLDER HOLDS LEFT WAITING NOTE"

// rows returns the state as rows of a table: one for each holder.
func (s lockState) rows() [][]string {
	var notes []string
	if s.Mode != "" {
		notes = append(notes, s.Mode)
	}
	if s.Token != 0 {
		notes = append(notes, fmt.Sprint("token ", s.Token))
	}
	if s.Permits != nil {
		notes = append(notes, fmt.Sprintf("%d of %d permits free", s.Permits.Free, s.Permits.Free+s.Permits.Taken))
	}
	kind, waiting, note := orDash(s.Kind), "-", orDash(strings.Join(notes, ", "))
	if len(s.Queue) > 0 {
		waiting = strconv.Itoa(len(s.Queue))
	}
	if len(s.Holders) == 0 {
		return [][]string{{s.Name, kind, "-", "-", "-", waiting, note}}
	}
	var rows [][]string
	for i, h := range s.Holders {
		if i > 0 {
			waiting, note = "", ""
		}
		rows = append(rows, []string{s.Name, kind, h.Owner, strconv.FormatInt(h.Holds, 10), remaining(h.Remaining), waiting, note})
	}
	return rows
}

func orDash(text string) string {
	return cmp.Or(text, "-")
}

// remaining writes a number of milliseconds for people.
func remaining(ms int64) string { return left(time.Duration(ms) * time.Millisecond) }

// printStates writes locks as a table, or as a line of JSON each.
func printStates(w io.Writer, json bool, states []lockState) {
	if json {
		for _, s := range states {
			printJSON(w, s)
		}
		return
	}
	var rows [][]string
	for _, s := range states {
		rows = append(rows, s.rows()...)
	}
	printTable(w, stateHeader, rows)
}
