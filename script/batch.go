package script

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/resp"
)

// Call is one run of a script with its keys and arguments, encoded and ready for RunBatch. It may be used again, and by
// many goroutines.
type Call struct {
	script *Script
	cmd    resp.Command
}

// Call encodes a run of the script for RunBatch. keys and args are as in Run, and may be changed once Call has returned.
// An argument that cannot be sent is reported by RunBatch.
func (s *Script) Call(keys []string, args ...any) Call {
	return Call{script: s, cmd: command("EVALSHA", s.Digest(), keys, args)}
}

// RunBatch runs calls in their order in one write and returns one reply for each, in the same order. An error reply is a
// value in its place.
//
// Calls with a key in common run in the order of the batch, each once at most. Calls go by digest; a call that has one of another
// script behind it, with a key in common, goes with its source. What the server answers with NOSCRIPT, and only that, is
// sent once more with its source, in one write, behind the others of the batch: unless a call with a key in common has
// been executed behind it, which takes that other clients load and flush scripts at the same time. NOSCRIPT is its reply then.
// Calls without keys count as having one in common. If all calls are concerned the whole order is kept.
//
// The error is that of the first call that cannot be sent, and then nothing was, or it is the Doer's. With the latter come
// the replies to the first calls, as many as there are; of the others nothing is known but what Outcome returns. Only where
// conn.SafeToRetry says so has none of the calls run.
func RunBatch(ctx context.Context, d conn.Doer, calls []Call) ([]resp.Value, error) {
	for _, call := range calls {
		if err := call.cmd.Err(); err != nil {
			return nil, err
		}
	}
	if len(calls) == 0 {
		return nil, nil
	}
	replies, err := sendBatch(ctx, d, inOrder(calls), nil)
	if err != nil {
		return replies, err
	}
	places := toRepeat(calls, replies)
	if len(places) == 0 {
		return replies, nil
	}
	again, err := runForgotten(ctx, d, calls, places)
	for i, v := range again {
		replies[places[i]] = v
	}
	if err != nil && len(places) < len(calls) {
		err = &partialError{cause: err}
	}
	if len(again) < len(places) {
		replies = replies[:places[len(again)]]
	}
	return replies, err
}

// inOrder returns calls as they are to be sent: with the source where a call of another script, with a key in common, is
// behind. The server might know that one and not this one.
func inOrder(calls []Call) []Call {
	if !slices.ContainsFunc(calls, func(c Call) bool { return c.script != calls[0].script }) {
		return calls
	}
	sent := slices.Clone(calls)
	behind := map[string]*Script{} // by key; nil: several scripts
	for i := len(calls) - 1; i >= 0; i-- {
		s := calls[i].script
		for key := range calls[i].keys() {
			if other, ok := behind[key]; ok && other != s {
				s = nil
			}
		}
		for key := range calls[i].keys() {
			behind[key] = s
		}
		if s == nil {
			sent[i].cmd = calls[i].script.withSource(calls[i].cmd, "EVAL")
		}
	}
	return sent
}

// toRepeat returns the places of the calls that the server did not know, and behind which no call with a key in common was
// executed.
func toRepeat(calls []Call, replies []resp.Value) (places []int) {
	if !slices.ContainsFunc(replies, forgotten) {
		return nil
	}
	executed := map[string]bool{}
	for i := len(replies) - 1; i >= 0; i-- {
		repeat := forgotten(replies[i])
		for key := range calls[i].keys() {
			repeat = repeat && !executed[key]
		}
		if repeat {
			places = append(places, i)
		}
		if !forgotten(replies[i]) {
			for key := range calls[i].keys() {
				executed[key] = true
			}
		}
	}
	slices.Reverse(places)
	return places
}

// keys returns the keys of a call, or "" if it has none.
func (c Call) keys() iter.Seq[string] {
	return func(yield func(string) bool) {
		n, _ := strconv.Atoi(c.cmd.Arg(2))
		if n == 0 {
			yield("")
			return
		}
		at := 0
		for word := range c.cmd.Args() {
			if at > 2 && (at > n+2 || !yield(word)) {
				return
			}
			at++
		}
	}
}

// runForgotten runs with their source the calls at the given places, of which the server did not know the scripts.
func runForgotten(ctx context.Context, d conn.Doer, calls []Call, places []int) ([]resp.Value, error) {
	again := make([]Call, len(places))
	asked := make(map[*Script]bool)
	var loads []Call // since Redis 7.4 scripts that came by EVAL are evicted; those of SCRIPT LOAD stay
	for i, place := range places {
		call := calls[place]
		if s := call.script; !asked[s] {
			asked[s] = true
			if s.known.forgot(d) > 1 {
				loads = append(loads, Call{script: s, cmd: s.load(call.cmd)})
			}
		}
		again[i] = Call{script: call.script, cmd: call.script.withSource(call.cmd, "EVAL")}
	}
	return sendBatch(ctx, d, again, loads)
}

// sendBatch sends loads, and behind them calls, and returns the replies to the calls; fewer than calls if there is an error.
func sendBatch(ctx context.Context, d conn.Doer, calls, loads []Call) ([]resp.Value, error) {
	cmds := make([]resp.Command, 0, len(loads)+len(calls))
	for _, part := range [][]Call{loads, calls} {
		for _, call := range part {
			cmds = append(cmds, call.cmd)
		}
	}
	replies, err := d.SendBatch(ctx, cmds)
	if all, ok := errors.AsType[outcomes](err); ok && len(loads) > 0 {
		err = &behindLoads{outcomes: all, loads: len(loads)}
	}
	return replies[min(len(loads), len(replies)):], err
}

// outcomes is an error that knows the outcome of each command of a batch: a *cluster.BatchError.
type outcomes interface {
	error
	Len() int
	At(i int) (resp.Value, error)
}

// behindLoads is the outcomes of the calls of a batch that began with other commands.
type behindLoads struct {
	outcomes
	loads int
}

func (e *behindLoads) Len() int                     { return e.outcomes.Len() - e.loads }
func (e *behindLoads) At(i int) (resp.Value, error) { return e.outcomes.At(i + e.loads) }
func (e *behindLoads) Unwrap() error                { return e.outcomes }

// Outcome returns the outcome of call i of a RunBatch that returned replies and err: the reply to the call, or the error that
// left it without one. The error of a cluster may know the replies to more calls than the first.
func Outcome(replies []resp.Value, err error, i int) (resp.Value, error) {
	if i < len(replies) {
		return replies[i], nil
	}
	if all, ok := errors.AsType[outcomes](err); ok && i < all.Len() {
		return all.At(i)
	}
	return resp.Value{}, err
}

// partialError is the failure of the second part of a batch whose first part has run. Whatever became of the second part,
// the batch must not be repeated: so the cause is found by errors.Is, but never as one that is safe to retry.
type partialError struct{ cause error }

func (e *partialError) Error() string {
	return fmt.Sprintf("script: a part of the batch has run: %v", e.cause)
}

func (e *partialError) Is(target error) bool {
	switch target {
	case conn.ErrUncertain:
		return true
	case conn.ErrNotSent:
		return false
	}
	return errors.Is(e.cause, target)
}
