package lock_test

import (
	"slices"
	"strings"
	"time"

	"github.com/lockwire/lockwire/internal/locktorture"
	"github.com/lockwire/lockwire/internal/redistest"
)

const queueKey = "redisson_lock_queue:"

// queueWatch tells a history what the server does to the lines of fair locks, from the commands that it runs. One script is one
// step.
type queueWatch struct {
	history *locktorture.History
	monitor *redistest.Monitor
	script  []queueStep // so far
}

// queueStep is one command within a script: its words, the first in lower case.
type queueStep struct {
	at    time.Duration
	words []string
}

// look takes in what has happened since it was last called.
func (q *queueWatch) look() {
	for _, c := range q.monitor.Commands() {
		rest, inside := strings.CutPrefix(c.Line, "[0 lua] ")
		if !inside {
			q.flush()
			continue
		}
		words := strings.Fields(strings.ReplaceAll(rest, `"`, ""))
		switch words[0] = strings.ToLower(words[0]); words[0] {
		case "rpush", "lpush", "lpop", "lrem", "hincrby", "hset", "del", "pexpire":
			q.script = append(q.script, queueStep{locktorture.At(c.At), words})
		}
	}
	q.flush()
}

// flush logs what a script has done.
func (q *queueWatch) flush() {
	for i, step := range q.script {
		name, owner := step.words[1], ""
		queue := strings.HasPrefix(name, queueKey)
		if queue {
			name = strings.Trim(strings.TrimPrefix(name, queueKey), "{}")
		} else if strings.Contains(name, ":") {
			continue // neither the queue of a lock nor the lock
		}
		if len(step.words) > 2 {
			owner = step.words[len(step.words)-1]
		}
		later := func(command string, words ...string) bool {
			return slices.ContainsFunc(q.script[i+1:], func(s queueStep) bool {
				return s.words[0] == command && slices.Equal(s.words[2:], words)
			})
		}
		var kind locktorture.Kind
		switch command := step.words[0]; {
		case queue && command == "rpush":
			kind = locktorture.Queued
		case queue && command == "lpush":
			kind = locktorture.Fronted
		case queue && command == "lrem" && !later("lpush", owner):
			kind = locktorture.Left
		case queue && command == "lpop" && !q.granted(i):
			kind, owner = locktorture.Dropped, ""
		case !queue && command == "hincrby" && owner == "1":
			kind, owner = locktorture.Granted, step.words[2]
		case !queue:
			kind, owner = locktorture.Touched, ""
		default:
			continue
		}
		q.history.Add(locktorture.Event{At: step.at, Kind: kind, Name: name, Owner: owner})
	}
	q.script = q.script[:0]
}

// granted reports whether the i-th command of a script is the last that takes somebody out of the line before that one gets the lock.
func (q *queueWatch) granted(i int) bool {
	for _, s := range q.script[i+1:] {
		switch s.words[0] {
		case "lpop":
			return false
		case "hincrby":
			return s.words[len(s.words)-1] == "1"
		}
	}
	return false
}
