// Package netfail decides what a failed dial or command means for the next attempt. All packages
// use it and therefore decide alike.
package netfail

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/lockwire/lockwire/resp"
)

// ErrExpectsTLS is the cause of a dial without TLS to a server that speaks TLS.
var ErrExpectsTLS = errors.New("the server expects TLS")

// ErrRefused is conn.ErrRefused.
var ErrRefused = errors.New("refused by the client")

// Refusal is the reason why this program refuses to send a command. It matches ErrRefused, and its text is the text of the
// reason.
type Refusal struct {
	Reason error
	Number int // of the command in its batch, from 1; 0 outside of a batch
}

func (e Refusal) Error() string        { return e.Reason.Error() }
func (e Refusal) Is(target error) bool { return target == ErrRefused }
func (e Refusal) Unwrap() error        { return e.Reason }

// Verdict is the meaning of a failure.
type Verdict uint8

const (
	Final  Verdict = iota // the next attempt would fail alike
	Again                 // nothing was executed, and the reason is temporary
	Redial                // nothing was executed, and the connection has the wrong server or the wrong user
)

// Reply returns the meaning of an error reply to a command on an established connection. Any other error is Final.
func Reply(err error) Verdict {
	text, ok := errors.AsType[resp.Error](err)
	if !ok {
		return Final
	}
	if reason, ok := Discarded(text); ok {
		text = reason
	}
	switch resp.Error(text.Prefix()) {
	case resp.ErrReadOnly, resp.ErrNoAuth:
		return Redial
	case resp.ErrLoading, resp.ErrMasterDown, resp.ErrClusterDown, resp.ErrTryAgain, resp.ErrNoReplicas, resp.ErrBusy:
		return Again
	}
	switch {
	case text.Class() == string(resp.ErrReadOnly):
		// Servers up to 6.2 wrap READONLY in the error of a script. A script on a replica has
		// written nothing.
		return Redial
	case strings.HasPrefix(string(text), "ERR max number of clients"):
		return Again
	}
	return Final
}

// Discarded returns the reason for which a server discarded a transaction at EXEC, if text says so: the server was not ready.
// Since Redis 6.2.
func Discarded(text resp.Error) (reason resp.Error, ok bool) {
	rest, ok := strings.CutPrefix(string(text), "EXECABORT Transaction discarded because of: ")
	return resp.Error(rest), ok
}

// Redirects reports whether an error reply sends the caller to another node of a cluster.
func Redirects(err error) bool {
	reply, _ := errors.AsType[resp.Error](err)
	return errors.Is(reply, resp.ErrMoved) || errors.Is(reply, resp.ErrAsk)
}

// Dial returns the meaning of a failed dial, including its handshake: Final or Again. An
// unreachable or unready server is temporary. A refusal by the server or by TLS is final.
func Dial(err error) Verdict {
	if reply, ok := errors.AsType[resp.Error](err); ok {
		if Denied(reply) {
			return Final
		}
		return min(Reply(reply), Again)
	}
	_, notRESP := errors.AsType[*resp.SyntaxError](err)
	if notRESP || errors.Is(err, ErrExpectsTLS) || NotTLS(err) || badCertificate(err) || Alert(err) {
		return Final
	}
	return Again
}

// Denied reports whether an error reply concerns the client's credentials, permissions or address.
func Denied(err error) bool {
	text, ok := errors.AsType[resp.Error](err)
	if !ok {
		return false
	}
	switch resp.Error(text.Class()) {
	case resp.ErrNoAuth, resp.ErrWrongPass, resp.ErrNoPerm, "DENIED":
		return true
	}
	if DeniedInside(text) {
		return true
	}
	lower := strings.ToLower(string(text))
	return slices.ContainsFunc(denials, func(begin string) bool { return strings.HasPrefix(lower, begin) })
}

// denials are the first words of error replies without a prefix of their own, from servers before
// Redis 6 and from proxies. Only the beginning counts, because the rest of a reply may repeat the
// client's arguments.
var denials = []string{"err client sent auth", "err invalid password", "err invalid username", "err auth "}

// DeniedInside reports whether an error reply says that the user lacks the right to a command, key or channel inside a script. The
// commands of the script before that one have run.
func DeniedInside(err error) bool {
	text, ok := errors.AsType[resp.Error](err)
	if !ok {
		return false
	}
	_, reason, _ := strings.Cut(string(text), " ")
	if wrapped, old := strings.CutPrefix(reason, "Error running script "); old { // servers up to 6.2
		return strings.Contains(wrapped, ": "+deniedInside)
	}
	return strings.HasPrefix(reason, deniedInside) || strings.HasPrefix(reason, "ACL failure in script: ")
}

const deniedInside = "The user executing the script can't "

// Backoff returns the pause before repetition n, counted from 0: Doubled, less a random part of up to half.
func Backoff(n int, shortest, longest time.Duration) time.Duration {
	return Shortened(Doubled(n, shortest, longest), 2)
}

// Doubled returns shortest doubled n times, but at most longest. A negative n is 0.
func Doubled(n int, shortest, longest time.Duration) time.Duration {
	if n = max(n, 0); n < 32 && shortest<<n>>n == shortest {
		return min(longest, shortest<<n)
	}
	return longest
}

// Shortened returns d less a random part of up to a 1/part of d.
func Shortened(d time.Duration, part float64) time.Duration {
	return d - time.Duration(rand.Float64()*float64(d)/part)
}

// Jitter returns d ±10 %, and at most a time that no program lives to see: with it, times and sums of durations do not overflow.
func Jitter(d time.Duration) time.Duration {
	d = max(math.MinInt64/2, min(d, math.MaxInt64/2))
	return d + time.Duration((rand.Float64()-0.5)*float64(d)/5)
}

// Ended returns the reason why ctx has ended. errors.Is finds both its cause and ctx.Err().
func Ended(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if errors.Is(cause, err) {
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// Alert reports whether err is a TLS alert from the peer.
func Alert(err error) bool {
	e, ok := errors.AsType[*net.OpError](err)
	return ok && e.Op == "remote error"
}

// Op returns name if it looks like the name of a command, and "command" otherwise: an argument in the name's
// place must not appear in an error.
func Op(name string) string {
	const longest = 40
	if name == "" || len(name) > longest {
		return "command"
	}
	for i := range len(name) {
		switch c := name[i] | 0x20; {
		case 'a' <= c && c <= 'z', '0' <= name[i] && name[i] <= '9', name[i] == '.', name[i] == '_', name[i] == '-':
		default:
			return "command"
		}
	}
	return name
}

// Sleep waits for d. It returns early with the result of Ended if ctx ends.
func Sleep(ctx context.Context, d time.Duration) error { return SleepUnless(ctx, d, nil, nil) }

// SleepUnless is Sleep, and returns early with stopped if stop closes.
func SleepUnless(ctx context.Context, d time.Duration, stop <-chan struct{}, stopped error) error {
	select {
	case <-stop:
		return stopped
	case <-ctx.Done():
		return Ended(ctx)
	default:
	}
	if d <= 0 {
		return nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-stop:
		return stopped
	case <-ctx.Done():
		return Ended(ctx)
	}
}

// Signal sends to a channel of capacity 1. A second signal before a receive has no effect.
func Signal(to chan<- struct{}) {
	select {
	case to <- struct{}{}:
	default:
	}
}

// OnEnd calls fn if ctx ends before stop is called. stop, which is called
// once, waits for fn to return and reports whether fn was called.
func OnEnd(ctx context.Context, fn func()) (stop func() (ended bool)) {
	done := make(chan struct{})
	release := context.AfterFunc(ctx, func() {
		defer close(done)
		fn()
	})
	return func() bool {
		if release() {
			return false
		}
		<-done
		return true
	}
}

// Within returns a ctx that also ends when outer ends, with the cause of outer. release ends it.
func Within(ctx, outer context.Context) (_ context.Context, release func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := OnEnd(outer, func() { cancel(context.Cause(outer)) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}
