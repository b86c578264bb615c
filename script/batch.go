package script

import (
	"context"
	"errors"
	"fmt"
	"slices"

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
// Scripts that d's server is not known to have are loaded by SCRIPT LOAD ahead of the calls, in the same write. Should
// NOSCRIPT come all the same (the scripts were flushed, or another server has taken over), the calls concerned, and only
// those, are sent once more with their source, in one write: each call runs exactly once, but those run behind the others
// of the batch. If all calls are concerned the order is kept.
//
// The error is that of the first call that cannot be sent, and then nothing was, or it is the Doer's. With the latter come
// the replies to the first calls, as many as there are; of the others nothing is known but what the error says. Only where
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
	replies, err := sendBatch(ctx, d, calls, func(call Call) bool { return !call.script.known.loaded(d) })
	if err != nil {
		return replies, err
	}
	var places []int
	for i, v := range replies {
		if forgotten(v) {
			places = append(places, i)
		}
	}
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

// runForgotten runs with their source the calls at the given places, of which the server did not know the scripts.
func runForgotten(ctx context.Context, d conn.Doer, calls []Call, places []int) ([]resp.Value, error) {
	again := make([]Call, len(places))
	twice := make(map[*Script]bool)
	for i, place := range places {
		s := calls[place].script
		if _, counted := twice[s]; !counted {
			twice[s] = s.known.forgot(d) > 1
		}
		again[i] = Call{script: s, cmd: s.withSource(calls[place].cmd, "EVAL")}
	}
	return sendBatch(ctx, d, again, func(call Call) bool { return twice[call.script] })
}

// sendBatch sends the calls, ahead of them SCRIPT LOAD for each script that wants it, and returns the replies to the
// calls; fewer than calls if there is an error.
func sendBatch(ctx context.Context, d conn.Doer, calls []Call, load func(Call) bool) ([]resp.Value, error) {
	var loads []*Script
	cmds := make([]resp.Command, 0, len(calls)+1)
	for _, call := range calls {
		if !slices.Contains(loads, call.script) && load(call) {
			loads = append(loads, call.script)
			cmds = append(cmds, call.script.load(call.cmd))
		}
	}
	for _, call := range calls {
		cmds = append(cmds, call.cmd)
	}
	replies, err := d.SendBatch(ctx, cmds)
	for i, s := range loads {
		if i < len(replies) && replies[i].Err() == nil {
			s.known.setLoaded(d)
		}
	}
	return replies[min(len(loads), len(replies)):], err
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
