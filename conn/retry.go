package conn

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/lockwire/lockwire/internal/netfail"
)

type contextKey uint8

// NoTryAgain is the key of a context value. Under a context with the value true a cluster returns TRYAGAIN to its caller at
// once: one who can ask for the keys of a command by several commands gets them while their slot migrates.
const NoTryAgain contextKey = 0

// Leaves is the key of a context value, a time.Time: when nobody wants the answer any more, be it the context's deadline or not.
// A batch that ends in WAIT and would be answered later than that, judging by others, is left out while somebody else waits for
// its connection: its call ends with the context, and was not sent.
const Leaves contextKey = 1

// judge decides on any error of an attempt, made over a connection or in want of one.
func judge(err error, connected bool) netfail.Verdict {
	e, transport := err.(*Error)
	switch {
	case errors.Is(err, ErrClosed):
		return netfail.Final
	case connected && transport && e.Sent:
		return netfail.Final
	case connected && transport:
		return netfail.Again
	case connected:
		return netfail.Reply(err)
	case transport:
		return netfail.Dial(err)
	}
	return netfail.Final // the caller's ctx has ended
}

// backoff returns a pause before repetition n, counted from 0.
func (r *Retry) backoff(n int) time.Duration {
	return netfail.Backoff(n, r.MinBackoff, r.MaxBackoff, rand.Float64())
}

// dialPause returns a pause before dial n in a row after one that failed, counted from 0. It grows faster than that of a
// command: 8 dials at most in two seconds, by default, and yet one half a second after the server is back.
func (r *Retry) dialPause(n int) time.Duration {
	return netfail.Backoff(2*n, r.MinBackoff, r.MaxBackoff, rand.Float64()/2)
}

// attempts is the budget of one call, over dials and repetitions.
type attempts struct {
	policy *Retry
	made   int       // that have failed
	start  time.Time // of the first failure; until then the clock is not looked at
	over   bool      // no attempt is left
	stale  *link     // not to be used by this call any more
}

// failed counts a failed attempt, and reports whether the call may begin another one after pause.
func (a *attempts) failed(pause time.Duration) bool {
	now := time.Now()
	if a.made == 0 {
		a.start = now
	}
	a.made++
	if most := a.policy.Attempts; most > 0 && a.made >= most {
		a.over = true
	}
	if most := a.policy.Budget; most > 0 && now.Sub(a.start)+pause >= most {
		a.over = true
	}
	return !a.over
}

// pause is how long to wait before the next attempt.
func (a *attempts) pause() time.Duration { return a.policy.backoff(a.made) }

// sleep waits for d, unless ctx or the Pool ends before that, the cause of which it then returns.
func (p *Pool) sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-p.closing:
		return p.cause
	case <-ctx.Done():
		return ended(ctx)
	}
}

// ended returns the reason why ctx is over.
func ended(ctx context.Context) error { return netfail.Ended(ctx) }
