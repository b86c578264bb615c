package conn

import (
	"cmp"
	"errors"
	"strings"
	"time"

	"github.com/lockwire/lockwire/conn/internal/pipeline"
	"github.com/lockwire/lockwire/internal/netfail"
	"github.com/lockwire/lockwire/resp"
)

// classify returns the verdict on any error of an attempt. connected reports whether the attempt had a connection.
func classify(err error, connected bool) netfail.Verdict {
	e, transport := err.(*Error)
	switch {
	case errors.Is(err, ErrClosed):
		return netfail.Final // no attempt can succeed any more
	case connected && transport && e.Sent:
		return netfail.Final // the command may have run: never send it twice
	case connected && transport:
		return netfail.Again // no byte was written
	case connected:
		return netfail.Reply(err) // err is the server's error reply
	case transport:
		return netfail.Dial(err) // nothing was sent; some errors of a dial are permanent
	}
	return netfail.Final // the caller's ctx or the Pool has ended
}

// backoff returns the pause before repetition n, counted from 0.
func (r *Retry) backoff(n int) time.Duration {
	return netfail.Backoff(n, r.MinBackoff, r.MaxBackoff)
}

// dialPause returns the pause after n+1 failed dials in a row. Dial pauses grow faster than pauses between commands:
// by default at most 8 dials in two seconds, and yet a dial within half a second of the server's return.
func (r *Retry) dialPause(n int) time.Duration {
	return netfail.Shortened(netfail.Doubled(2*n, r.MinBackoff, r.MaxBackoff), 4)
}

// retryBudget limits the failed attempts of one call: dials and commands together.
type retryBudget struct {
	policy *Retry
	made   int            // failed attempts
	extra  int            // how many of them do not count: 1 after an attempt over a link just replaced by the Pool
	start  time.Time      // time of the first failure; zero before
	spent  bool           // no further attempt is allowed
	stale  *pipeline.Link // link that this call must not use again
}

// countFailure counts a failed attempt, and reports whether the call may make another attempt after pause.
func (a *retryBudget) countFailure(pause time.Duration) (more bool) {
	now := time.Now()
	if a.made == 0 {
		a.start = now
	}
	a.made++
	if most := a.policy.Attempts; most > 0 && a.made-a.extra >= most {
		a.spent = true
	}
	if most := a.policy.Budget; most > 0 && now.Sub(a.start)+pause >= most {
		a.spent = true
	}
	return !a.spent
}

func (a *retryBudget) pause() time.Duration { return a.policy.backoff(a.made - a.extra) }

// refusedTail returns the number n of commands to repeat: the commands at the end of a batch that the server did not
// execute, so that repeating them does not change the order. A command behind ASKING alone is not repeated. why is the
// reason of a refusal anywhere in the batch, preferably one that requires another connection.
func refusedTail(cmds []resp.Command, values []resp.Value) (n int, why error) {
	for i := range values {
		err := values[i].Err()
		verdict := netfail.Reply(err)
		if verdict == netfail.Final {
			n = 0
			continue
		}
		if n++; n == 1 && i > 0 && ruleOfCommand(&cmds[i-1]) == asks {
			n = 0
		}
		if why == nil || verdict == netfail.Redial {
			why = err
		}
	}
	return n, why
}

// refusedAll returns the reason if the server executed none of cmds, and nil otherwise. WAIT and commands that only ask
// about the server do not count.
func refusedAll(cmds []resp.Command, values []resp.Value) error {
	var first error
	for i := range cmds {
		switch strings.ToUpper(cmds[i].Name()) {
		case "INFO", "CLUSTER", "SCRIPT", "ASKING", "WAIT", "WAITAOF":
			continue
		}
		err := values[i].Err()
		if err == nil || netfail.Reply(err) == netfail.Final {
			return nil
		}
		first = cmp.Or(first, err)
	}
	return first
}
