package conn

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"strings"
	"time"

	"github.com/lockwire/lockwire/resp"
)

// verdict is what the failure of one attempt means for the call.
type verdict uint8

const (
	final  verdict = iota // the caller is told
	again                 // it did not run: repeat it
	redial                // it did not run, and the server at the other end is no longer the right one
)

// judge decides on any error of an attempt, made over a connection or in want of one.
func judge(err error, connected bool) verdict {
	e, transport := err.(*Error)
	switch {
	case errors.Is(err, ErrClosed):
		return final
	case connected && transport && e.Sent:
		return final
	case connected && transport:
		return again
	case connected:
		return judgeReply(err)
	case transport:
		return judgeDial(err)
	}
	return final // the caller's ctx has ended
}

// judgeReply decides on an error reply to a command. What the server says that it has not executed may be repeated.
func judgeReply(err error) verdict {
	text, ok := errors.AsType[resp.Error](err)
	if !ok {
		return final
	}
	switch resp.Error(text.Prefix()) {
	case resp.ErrReadOnly:
		return redial
	case resp.ErrLoading, resp.ErrMasterDown, resp.ErrClusterDown, resp.ErrTryAgain, resp.ErrNoReplicas, resp.ErrBusy:
		return again
	}
	switch {
	case text.Class() == string(resp.ErrReadOnly):
		// Hidden in the error of a script, by a server up to 6.2: a replica lets a script write nothing at all.
		return redial
	case strings.HasPrefix(string(text), "ERR max number of clients"):
		return again
	}
	return final
}

// judgeDial decides on a dial that failed. That the server cannot be reached or is not ready may change in a moment;
// what it, or TLS, says about who we are does not.
func judgeDial(err error) verdict {
	if _, ok := errors.AsType[resp.Error](err); ok {
		return min(judgeReply(err), again)
	}
	if _, ok := errors.AsType[*resp.SyntaxError](err); ok {
		return final
	}
	if notTLS(err) || badCertificate(err) {
		return final
	}
	if e, ok := errors.AsType[*net.OpError](err); ok && e.Op == "remote error" { // an alert of the peer's TLS
		return final
	}
	return again
}

// backoff returns the pause before repetition n, counted from 0: r.MinBackoff doubled n times, at most r.MaxBackoff,
// of which up to half is left out by chance, given as a number from 0 to below 1.
func (r *Retry) backoff(n int, chance float64) time.Duration {
	d := r.MaxBackoff
	if n < 32 && r.MinBackoff<<n>>n == r.MinBackoff {
		d = min(d, r.MinBackoff<<n)
	}
	return d - time.Duration(chance*float64(d)/2)
}

// attempts is the budget of one call, over dials and repetitions.
type attempts struct {
	policy *Retry
	made   int       // that have failed
	start  time.Time // of the first failure; until then the clock is not looked at
}

// failed counts a failed attempt, and reports whether the call may begin another one after pause.
func (a *attempts) failed(pause time.Duration) bool {
	now := time.Now()
	if a.made == 0 {
		a.start = now
	}
	a.made++
	return a.left() && (a.policy.Budget <= 0 || now.Sub(a.start)+pause < a.policy.Budget)
}

// left reports whether there is an attempt left.
func (a *attempts) left() bool { return a.made < a.policy.Attempts }

// pause is how long to wait before the next attempt.
func (a *attempts) pause() time.Duration { return a.policy.backoff(a.made, rand.Float64()) }

// sleep waits for d or until ctx ends, whose error it then returns, or closing is closed.
func sleep(ctx context.Context, closing <-chan struct{}, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-closing:
		return ErrClosed
	case <-ctx.Done():
		return ended(ctx)
	}
}
