package script_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/resp"
	"github.com/lockwire/lockwire/script"
)

// journals returns scripts that append a letter and their argument to the list "log" and return the
// length of the list.
func journals(srv *fakeredis.Server) []*script.Script {
	var all []*script.Script
	for _, letter := range []string{"a", "b", "c"} {
		s := script.New(fmt.Sprintf("return redis.call('RPUSH', KEYS[1], '%s' .. ARGV[1])", letter))
		srv.Script(s.Source(), func(call *fakeredis.Call) any {
			return call.Do("RPUSH", call.Keys[0], letter+call.Args[0])
		})
		all = append(all, s)
	}
	return all
}

// known returns journals whose scripts the server has loaded.
func known(srv *fakeredis.Server) []*script.Script {
	all := journals(srv)
	for _, s := range all {
		srv.Do("SCRIPT", "LOAD", s.Source())
	}
	return all
}

// wantLog compares the list "log".
func wantLog(t *testing.T, srv *fakeredis.Server, want ...string) {
	t.Helper()
	var got []string
	for _, e := range srv.Do("LRANGE", "log", "0", "-1").([]any) {
		got = append(got, e.(string))
	}
	if !slices.Equal(got, want) {
		t.Fatalf("the scripts ran as %v, want %v", got, want)
	}
}

func wantInts(t *testing.T, replies []resp.Value, want ...int64) {
	t.Helper()
	var got []int64
	for _, v := range replies {
		n, err := v.Int()
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, n)
	}
	if !slices.Equal(got, want) {
		t.Fatalf("replies = %v, want %v", got, want)
	}
}

func TestRunBatchByDigest(t *testing.T) {
	srv, pool := setUp(t)
	j := journals(srv)
	keys := []string{"log"}
	calls := []script.Call{j[0].Call(keys, 1), j[0].Call(keys, 2), j[1].Call([]string{"other"}, 3), j[0].Call(keys, 4)}

	replies, err := script.RunBatch(t.Context(), pool, calls)
	if err != nil {
		t.Fatal(err)
	}
	wantInts(t, replies, 1, 2, 1, 3)
	wantLog(t, srv, "a1", "a2", "a4")
	wantSent(t, srv, "EVALSHA", "EVALSHA", "EVALSHA", "EVALSHA", "EVAL", "EVAL", "EVAL", "EVAL")

	replies, err = script.RunBatch(t.Context(), pool, calls[1:3])
	if err != nil {
		t.Fatal(err)
	}
	wantInts(t, replies, 4, 2)
	wantSent(t, srv, "EVALSHA", "EVALSHA")
}

// Scripts with a common key run in the order of the batch, whichever scripts the server has.
func TestRunBatchKeepsTheOrderOfAKey(t *testing.T) {
	for _, knows := range []string{"", "a", "b", "c", "ab", "ac", "bc", "abc"} {
		srv, pool := setUp(t)
		j := journals(srv)
		for i, letter := range []string{"a", "b", "c"} {
			if strings.Contains(knows, letter) {
				srv.Do("SCRIPT", "LOAD", j[i].Source())
			}
		}
		keys := []string{"log"}
		calls := []script.Call{j[0].Call(keys, 1), j[1].Call(keys, 2), j[2].Call([]string{"alone"}, 3), j[0].Call(keys, 4), j[0].Call(keys, 5)}
		for range 2 {
			srv.Do("DEL", "log", "alone")
			replies, err := script.RunBatch(t.Context(), pool, calls)
			if err != nil {
				t.Fatal(err)
			}
			wantInts(t, replies, 1, 2, 1, 3, 4)
			wantLog(t, srv, "a1", "b2", "a4", "a5")
		}
	}
}

// A script that one call sends with its source is known to the server from then on. Calls by digest before and after it, with a
// key in common, still run in the order of the batch.
func TestRunBatchLoadsAScriptInTheMiddle(t *testing.T) {
	for _, knows := range []string{"", "a", "b", "ab"} {
		srv, pool := setUp(t)
		j := journals(srv)
		for i, letter := range []string{"a", "b"} {
			if strings.Contains(knows, letter) {
				srv.Do("SCRIPT", "LOAD", j[i].Source())
			}
		}
		same := script.New(j[0].Source())
		keys, others := []string{"log"}, []string{"other"}
		replies, err := script.RunBatch(t.Context(), pool,
			[]script.Call{j[0].Call(keys, 1), same.Call(others, 2), j[1].Call(others, 3), j[0].Call(keys, 4)})
		if err != nil {
			t.Fatal(err)
		}
		wantInts(t, replies, 1, 1, 2, 2)
		wantLog(t, srv, "a1", "a4")
	}
}

// A call without a place in the order is sent by digest, as are the calls beside it. It is repeated behind a later call.
func TestRunBatchInAnyOrder(t *testing.T) {
	keys := []string{"log"}
	for knows, want := range map[string][]string{"abc": {"a1", "b2", "a3"}, "ac": {"a1", "a3", "b2"}, "b": {"b2", "a1", "a3"}} {
		srv, pool := setUp(t)
		j := journals(srv)
		for i, letter := range []string{"a", "b", "c"} {
			if strings.Contains(knows, letter) {
				srv.Do("SCRIPT", "LOAD", j[i].Source())
			}
		}
		srv.ClearLog()
		replies, err := script.RunBatch(t.Context(), pool, []script.Call{j[0].Call(keys, 1), j[1].Call(keys, 2).AnyOrder(), j[0].Call(keys, 3)})
		if err != nil || len(replies) != 3 {
			t.Fatalf("RunBatch = %v, %v", replies, err)
		}
		wantLog(t, srv, want...)
		sent := []string{"EVALSHA", "EVALSHA", "EVALSHA", "EVAL", "EVAL"}
		wantSent(t, srv, sent[:3+map[string]int{"ac": 1, "b": 2}[knows]]...)
	}
}

// The second key of a call counts as a common key too.
func TestRunBatchKeepsTheOrderOfASecondKey(t *testing.T) {
	srv, pool := setUp(t)
	j := journals(srv)
	srv.Do("SCRIPT", "LOAD", j[1].Source())
	_, err := script.RunBatch(t.Context(), pool, []script.Call{
		j[0].Call([]string{"log", "second"}, 1), j[1].Call([]string{"other", "second"}, 2)})
	if err != nil {
		t.Fatal(err)
	}
	wantSent(t, srv, "EVAL", "EVALSHA")
}

// Another client loads the script while the batch runs. The first call, answered by NOSCRIPT, is
// not repeated behind the second.
func TestRunBatchReturnsNoScript(t *testing.T) {
	srv, pool := setUp(t)
	j := known(srv)
	srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
		if cmd.Name == "EVALSHA" && cmd.N == 1 {
			return fakeredis.Reply("-NOSCRIPT No matching script.\r\n")
		}
		return fakeredis.Run()
	})
	keys := []string{"log"}
	replies, err := script.RunBatch(t.Context(), pool, []script.Call{j[0].Call(keys, 1), j[0].Call(keys, 2), j[1].Call([]string{"x"}, 3)})
	if err != nil || len(replies) != 3 || !errors.Is(replies[0].Err(), resp.ErrNoScript) {
		t.Fatalf("RunBatch = %v, %v, want NOSCRIPT first", replies, err)
	}
	wantLog(t, srv, "a2")
}

func TestRunBatchAfterFlush(t *testing.T) {
	srv, pool := setUp(t)
	j := journals(srv)
	keys := []string{"log"}
	calls := []script.Call{j[0].Call(keys, 1), j[1].Call([]string{"other"}, 2), j[0].Call(keys, 3)}
	batch := func() {
		t.Helper()
		srv.Do("DEL", "log", "other")
		srv.ClearLog()
		replies, err := script.RunBatch(t.Context(), pool, calls)
		if err != nil {
			t.Fatal(err)
		}
		wantInts(t, replies, 1, 1, 2)
		wantLog(t, srv, "a1", "a3")
	}
	batch()
	wantSent(t, srv, "EVALSHA", "EVALSHA", "EVALSHA", "EVAL", "EVAL", "EVAL")
	batch()
	wantSent(t, srv, "EVALSHA", "EVALSHA", "EVALSHA")
	srv.Do("SCRIPT", "FLUSH")
	batch()
	wantSent(t, srv, "EVALSHA", "EVALSHA", "EVALSHA", "SCRIPT LOAD", "SCRIPT LOAD", "EVAL", "EVAL", "EVAL")
	batch()
	wantSent(t, srv, "EVALSHA", "EVALSHA", "EVALSHA")
}

func TestRunBatchRepeatsOnlyNoScript(t *testing.T) {
	srv, pool := setUp(t)
	j := known(srv)
	srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
		if cmd.Name == "EVALSHA" && cmd.Args[1] == j[1].Digest() {
			return fakeredis.Reply("-NOSCRIPT No matching script.\r\n")
		}
		return fakeredis.Run()
	})
	keys, others := []string{"other"}, []string{"log"}
	replies, err := script.RunBatch(t.Context(), pool,
		[]script.Call{j[0].Call(keys, 1), j[1].Call(others, 2), j[0].Call(keys, 3), j[1].Call(others, 4)})
	if err != nil {
		t.Fatal(err)
	}
	wantInts(t, replies, 1, 1, 2, 2)
	wantLog(t, srv, "b2", "b4")
	if n := srv.Count("EVAL"); n != 2 {
		t.Errorf("%d EVAL, want two", n)
	}
}

func TestRunBatchKeepsErrorsInPlace(t *testing.T) {
	srv, pool := setUp(t)
	j := journals(srv)
	srv.Do("SET", "text", "x")
	replies, err := script.RunBatch(t.Context(), pool,
		[]script.Call{j[0].Call([]string{"log"}, 1), j[0].Call([]string{"text"}, 2), j[0].Call([]string{"log"}, 3)})
	if err != nil || len(replies) != 3 {
		t.Fatalf("RunBatch = %d replies, %v", len(replies), err)
	}
	if !errors.Is(replies[1].Err(), resp.ErrWrongType) {
		t.Errorf("reply 1 = %v, want WRONGTYPE", replies[1].Err())
	}
	wantLog(t, srv, "a1", "a3")
}

func TestRunBatchSendsNothingOfABadBatch(t *testing.T) {
	srv, pool := setUp(t)
	j := journals(srv)
	_, err := script.RunBatch(t.Context(), pool, []script.Call{j[0].Call(nil, 1), j[1].Call(nil, time.Second)})
	if err == nil || !strings.Contains(err.Error(), "time.Duration") {
		t.Errorf("RunBatch = %v", err)
	}
	if _, err = script.RunBatch(t.Context(), pool, []script.Call{{}}); err == nil {
		t.Error("RunBatch of a zero Call: no error")
	}
	if replies, err := script.RunBatch(t.Context(), pool, nil); len(replies) != 0 || err != nil {
		t.Errorf("RunBatch of nothing = %v, %v", replies, err)
	}
	wantSent(t, srv)
}

// After a part of the batch has run, the error is not safe to retry, whatever happened to the rest.
func TestRunBatchLosesTheConnectionHalfWay(t *testing.T) {
	srv, pool := setUp(t)
	j := known(srv)
	down := func() error {
		keys := []string{"log"}
		replies, err := script.RunBatch(t.Context(), pool,
			[]script.Call{j[0].Call(keys, 1), j[1].Call([]string{"other"}, 2), j[0].Call(keys, 3)})
		if len(replies) != 1 {
			t.Errorf("%d replies, want only the reply to the first call", len(replies))
		}
		if _, err := script.Outcome(replies, err, 1); !errors.Is(err, conn.ErrUncertain) {
			t.Errorf("the outcome of the second call is %v, want ErrUncertain", err)
		}
		if v, err := script.Outcome(replies, err, 2); err != nil {
			t.Errorf("the outcome of the third call is %v, want its reply", err)
		} else {
			wantInts(t, []resp.Value{v}, 2)
		}
		return err
	}
	srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
		switch {
		case cmd.Name == "EVALSHA" && cmd.Args[1] == j[1].Digest():
			return fakeredis.Reply("-NOSCRIPT No matching script.\r\n")
		case cmd.Name == "EVAL":
			return fakeredis.Close()
		}
		return fakeredis.Run()
	})
	err := down()
	if !errors.Is(err, conn.ErrUncertain) || errors.Is(err, conn.ErrNotSent) || conn.SafeToRetry(err) {
		t.Errorf("RunBatch = %v, want ErrUncertain", err)
	}
	wantLog(t, srv, "a1", "a3")
}

// After a part of the batch has run, the error is not safe to retry, even if no byte of the second
// part was sent.
func TestRunBatchCannotSendTheRest(t *testing.T) {
	s, other := script.New("return 1"), script.New("return 2")
	d := &failing{forgets: other.Digest()}
	replies, err := script.RunBatch(t.Context(), d, []script.Call{s.Call([]string{"k"}), other.Call([]string{"l"})})
	if len(replies) != 1 || !errors.Is(err, conn.ErrUncertain) || errors.Is(err, conn.ErrNotSent) || conn.SafeToRetry(err) {
		t.Errorf("RunBatch = %d replies, %v, want one and ErrUncertain", len(replies), err)
	}
	if !errors.Is(err, errNetwork) || !strings.Contains(err.Error(), "a part of the batch has run") {
		t.Errorf("RunBatch = %v, want the network error as the cause, and that a part of the batch has run", err)
	}
	if _, err := script.Outcome(replies, err, 1); !errors.Is(err, errNetwork) || !conn.SafeToRetry(err) {
		t.Errorf("the outcome of the second call is %v, want an error that is safe to retry, because it did not run", err)
	}

	d = &failing{forgets: other.Digest()}
	replies, err = script.RunBatch(t.Context(), d, []script.Call{other.Call(nil), other.Call(nil)})
	if len(replies) != 0 || !conn.SafeToRetry(err) {
		t.Errorf("RunBatch = %d replies, %v; want an error that is safe to retry, because nothing ran", len(replies), err)
	}
}

// dividing is a Doer without scripts. Its error contains the outcome of each command, including the
// SCRIPT LOAD commands of RunBatch.
type dividing struct{ conn.Doer }

type dividedError int

func (e dividedError) Error() string { return "divided" }
func (e dividedError) Len() int      { return int(e) }
func (e dividedError) At(i int) (resp.Value, error) {
	return resp.Value{}, fmt.Errorf("command %d of %d", i, int(e))
}

func (dividing) SendBatch(_ context.Context, cmds []resp.Command) ([]resp.Value, error) {
	if cmds[0].Name() != "EVALSHA" {
		return nil, dividedError(len(cmds))
	}
	values := make([]resp.Value, len(cmds))
	for i := range values {
		var err error
		if values[i], err = resp.NewReader(strings.NewReader("-NOSCRIPT x\r\n"), resp.Limits{}).Read(); err != nil {
			return nil, err
		}
	}
	return values, nil
}

// Outcome finds the result of each call in the Doer's error: first in a batch of calls only, then
// in batches that begin with SCRIPT LOAD.
func TestOutcome(t *testing.T) {
	s := script.New("return 1")
	d := &dividing{}
	for loads := range 3 {
		replies, err := script.RunBatch(t.Context(), d, []script.Call{s.Call(nil), s.Call(nil)})
		loads = min(loads, 1)
		for i := range 2 {
			want := fmt.Sprintf("command %d of %d", i+loads, 2+loads)
			if _, err := script.Outcome(replies, err, i); err == nil || err.Error() != want {
				t.Errorf("Outcome(%d) = %v, want %s", i, err, want)
			}
		}
		if _, err := script.Outcome(replies, err, 2); err == nil || err.Error() != "divided" {
			t.Errorf("Outcome(2) = %v, want the error of the batch", err)
		}
	}
	if v, err := script.Outcome(make([]resp.Value, 1), errors.New("x"), 0); err != nil || v.Err() != nil {
		t.Errorf("Outcome of a call with a reply = %v, %v", v, err)
	}
}

// halfDone is a Doer without scripts whose batches end with an error: SCRIPT LOAD has one outcome, the script another.
type halfDone struct {
	conn.Doer
	load, script error // nil for a reply
}

func (d halfDone) Error() string                { return "half done" }
func (d halfDone) Len() int                     { return 2 }
func (d halfDone) Is(target error) bool         { return target == conn.ErrUncertain }
func (d halfDone) At(i int) (resp.Value, error) { return resp.Value{}, []error{d.load, d.script}[i] }

func (d halfDone) Send(_ context.Context, cmd resp.Command) (resp.Value, error) {
	if cmd.Name() == "EVALSHA" {
		return resp.Value{}, resp.Error("NOSCRIPT x")
	}
	return resp.Value{}, nil
}

func (d halfDone) SendBatch(context.Context, []resp.Command) ([]resp.Value, error) { return nil, d }

// The outcome of SCRIPT LOAD is not that of the script behind it.
func TestRunHasTheOutcomeOfTheScript(t *testing.T) {
	unsent := &conn.Error{Op: "EVALSHA", Err: errNetwork}
	for _, tt := range []struct {
		d    halfDone
		want error
	}{{halfDone{load: errNetwork}, nil}, {halfDone{script: unsent}, unsent}} {
		s := script.New("return 1")
		if _, err := s.Run(t.Context(), tt.d, nil); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Run(t.Context(), tt.d, nil); err != tt.want {
			t.Errorf("Run after SCRIPT LOAD with %v = %v, want %v", tt.d.load, err, tt.want)
		}
	}
}
