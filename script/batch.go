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

// Call is an encoded run of a script for RunBatch: the script, its keys and its arguments. A Call
// may be used repeatedly and by many goroutines.
type Call struct {
	script   *Script
	cmd      resp.Command
	anyOrder bool // may run before or after any other call of its batch
}

// Call encodes a run of the script for RunBatch. keys and args are as in Run; the caller may change
// both slices afterwards. RunBatch reports an argument that cannot be encoded.
func (s *Script) Call(keys []string, args ...any) Call {
	return Call{script: s, cmd: command("EVALSHA", s.Digest(), keys, args)}
}

// AnyOrder returns c as a call without a place in the order of its batch: c may run before or after
// any other call, even one with a common key. RunBatch then need not send the source of scripts to
// keep c in its place.
func (c Call) AnyOrder() Call {
	c.anyOrder = true
	return c
}

// RunBatch runs calls in one write and returns one reply per call, in the order of calls. An error
// reply is a value in the result.
//
// # Order
//
// Each call runs once at most. Calls with a common key run in the order of the batch, except after
// [Call.AnyOrder]; calls without keys count as sharing a key. Other calls may change their order only if the server lacks some of
// the scripts.
//
// RunBatch sends a call by digest, or with its source where a missing script could change the order: if a
// later call of another script has a key in common, or one of the same script behind a call with its source.
// After a NOSCRIPT reply, and only then, RunBatch repeats the call with its source, in a
// second write. It does not repeat a call if a later call with a common key has run, which takes
// another client that loads and flushes scripts meanwhile; NOSCRIPT is then the reply.
//
// # Errors
//
//   - A call that cannot be encoded: the error of the first such call. Nothing was sent.
//   - Any other error is the Doer's, with the replies to the first calls as far as known. [Outcome]
//     returns the results of the remaining calls. Unless conn.SafeToRetry(err) is true, calls may
//     have run.
func RunBatch(ctx context.Context, d conn.Doer, calls []Call) ([]resp.Value, error) {
	for _, call := range calls {
		if err := call.cmd.Err(); err != nil {
			return nil, err
		}
	}
	if len(calls) == 0 {
		return nil, nil
	}
	ctx, traced := conn.StartCall(ctx, d, describe(calls))
	replies, err := runBatch(ctx, d, calls)
	traced.End(ctx, err)
	return replies, err
}

// describe returns the description of calls for a Trace.
func describe(calls []Call) conn.CommandStart {
	s := conn.CommandStart{Name: "EVALSHA", Script: calls[0].script.name, Count: len(calls)}
	if len(calls) > 1 {
		s.Batch = conn.Pipeline
	}
	for _, call := range calls {
		if call.script.name != s.Script {
			s.Script = ""
		}
	}
	return s
}

// runBatch is RunBatch for calls that can be encoded.
func runBatch(ctx context.Context, d conn.Doer, calls []Call) ([]resp.Value, error) {
	replies, err := d.SendBatch(ctx, commandsOf(calls))
	if err != nil {
		return replies, err
	}
	indexes := toRepeat(calls, replies)
	if len(indexes) == 0 {
		return replies, nil
	}
	again, err := runWithSource(ctx, d, calls, indexes)
	if err != nil && len(indexes) == len(calls) {
		return again, err
	}
	e := &partialError{cause: err, replies: replies, errs: make([]error, len(calls))}
	for i, at := range indexes {
		replies[at], e.errs[at] = conn.Outcome(again, err, i)
	}
	if first := slices.IndexFunc(e.errs, func(err error) bool { return err != nil }); first >= 0 {
		return replies[:first], e
	}
	return replies, nil
}

// commandsOf returns the commands of calls. A call is sent with its source if a later call of another
// script has a key in common: a server with only the later script would otherwise change the order. The
// same holds for a later call of the same script if a call between them may load the script.
func commandsOf(calls []Call) []resp.Command {
	cmds, several := make([]resp.Command, len(calls)), false
	for i, call := range calls {
		cmds[i] = call.cmd
		several = several || call.script != calls[0].script
	}
	if !several {
		return cmds
	}
	later := map[string]*Script{} // the script of all later calls with a key, by key; nil if they have several
	loads := map[string]bool{}    // digests of the scripts that a later call is sent with
	for i := len(calls) - 1; i >= 0; i-- {
		if calls[i].anyOrder {
			continue
		}
		s, digest := calls[i].script, calls[i].script.Digest()
		for key := range calls[i].keys() {
			if other, ok := later[key]; ok && (other != s || loads[digest]) {
				s = nil
			}
		}
		for key := range calls[i].keys() {
			later[key] = s
		}
		if s == nil {
			loads[digest] = true
			cmds[i] = calls[i].script.withSource(calls[i].cmd, "EVAL")
		}
	}
	return cmds
}

// toRepeat returns the indexes of the calls with a NOSCRIPT reply, except where a later call with a
// common key was executed.
func toRepeat(calls []Call, replies []resp.Value) (indexes []int) {
	if !slices.ContainsFunc(replies, isNoScript) {
		return nil
	}
	executed := map[string]bool{}
	for i := len(replies) - 1; i >= 0; i-- {
		repeat := isNoScript(replies[i])
		for key := range calls[i].keys() {
			repeat = repeat && (calls[i].anyOrder || !executed[key])
		}
		if repeat {
			indexes = append(indexes, i)
		}
		if !isNoScript(replies[i]) && !calls[i].anyOrder {
			for key := range calls[i].keys() {
				executed[key] = true
			}
		}
	}
	slices.Reverse(indexes)
	return indexes
}

// keys returns the keys of a call, or "" for a call without keys.
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

// runWithSource repeats the calls at the given indexes, with their source.
func runWithSource(ctx context.Context, d conn.Doer, calls []Call, indexes []int) ([]resp.Value, error) {
	var loads, again []resp.Command
	asked := make(map[*Script]bool)
	for _, index := range indexes {
		call := calls[index]
		if s := call.script; !asked[s] {
			asked[s] = true
			if s.noteMissing() {
				loads = append(loads, s.load(call.cmd))
			}
		}
		again = append(again, call.script.withSource(call.cmd, "EVAL"))
	}
	replies, err := d.SendBatch(ctx, slices.Concat(loads, again))
	if all, ok := errors.AsType[conn.Outcomes](err); ok && len(loads) > 0 {
		err = &afterLoads{Outcomes: all, loads: len(loads)}
	}
	return replies[min(len(loads), len(replies)):], err
}

// afterLoads is Outcomes without the loads at the beginning of the batch.
type afterLoads struct {
	conn.Outcomes
	loads int
}

func (e *afterLoads) Len() int                     { return e.Outcomes.Len() - e.loads }
func (e *afterLoads) At(i int) (resp.Value, error) { return e.Outcomes.At(i + e.loads) }
func (e *afterLoads) Unwrap() error                { return e.Outcomes }

// Outcome returns the result of call i after RunBatch returned replies and err: the reply, or the
// error of the call. err may contain replies to further calls than replies, with a cluster for example.
func Outcome(replies []resp.Value, err error, i int) (resp.Value, error) {
	return conn.Outcome(replies, err, i)
}

// partialError is a failure after the first part of a batch has run. Repeating the batch is not
// safe, whatever happened to the second part. errors.Is therefore finds the cause, but never an
// error that is safe to retry.
type partialError struct {
	cause   error
	replies []resp.Value
	errs    []error // nil for a call with a reply
}

// Len and At make a partialError conn.Outcomes of the calls.
func (e *partialError) Len() int                     { return len(e.errs) }
func (e *partialError) At(i int) (resp.Value, error) { return e.replies[i], e.errs[i] }

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
