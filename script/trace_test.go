package script_test

import (
	"context"
	"errors"
	"testing"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/resp"
	"github.com/lockwire/lockwire/script"
)

// traced returns a server as setUp does, and the ends of the calls of its pool.
func traced(t *testing.T) (*fakeredis.Server, *conn.Pool, *[]conn.CommandEnd) {
	t.Helper()
	srv := fakeredis.New()
	t.Cleanup(srv.Close)
	srv.Script(source, func(call *fakeredis.Call) any { return call.Do("INCRBY", call.Keys[0], call.Args[0]) })
	ends := new([]conn.CommandEnd)
	pool, err := conn.Open(t.Context(), conn.Config{Dial: srv.Dial, Trace: &conn.Trace{
		CommandEnd: func(_ context.Context, end conn.CommandEnd) { *ends = append(*ends, end) },
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { pool.Close() })
	return srv, pool, ends
}

// A server that does not have the script makes no error and no further call.
func TestTraceOfRun(t *testing.T) {
	srv, pool, ends := traced(t)
	s := script.Named("add", source)
	for range 3 {
		srv.Do("SCRIPT", "FLUSH")
		*ends = nil
		if _, err := s.Run(t.Context(), pool, []string{"k"}, 1); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Run(t.Context(), pool, []string{"k"}, 1); err != nil {
			t.Fatal(err)
		}
		if len(*ends) != 2 {
			t.Fatalf("%d calls, want 2: %+v", len(*ends), *ends)
		}
		for i, end := range *ends {
			if end.Operation() != "EVALSHA" || end.Script != "add" || end.Count != 1 || end.Err != nil || !end.Sent || end.Protocol != 3 {
				t.Errorf("call %d: %+v", i, end)
			}
		}
		if first, second := (*ends)[0].Attempts, (*ends)[1].Attempts; first < 2 || second != 1 {
			t.Errorf("%d and %d attempts, want several and 1", first, second)
		}
	}
	*ends = nil
	if _, err := s.RunRO(t.Context(), pool, []string{"k"}, "not a number"); err == nil {
		t.Fatal("RunRO of a script that writes succeeded")
	}
	if got := *ends; len(got) != 1 || got[0].Name != "EVALSHA_RO" || got[0].Err == nil || !got[0].Sent {
		t.Errorf("%+v", got)
	}
}

func TestTraceOfRunBatch(t *testing.T) {
	_, pool, ends := traced(t)
	s := script.Named("add", source)
	calls := []script.Call{s.Call([]string{"a"}, 1), s.Call([]string{"b"}, 1)}
	if _, err := script.RunBatch(t.Context(), pool, calls); err != nil {
		t.Fatal(err)
	}
	if got := *ends; len(got) != 1 || got[0].Operation() != "PIPELINE EVALSHA" || got[0].Script != "add" || got[0].Count != 2 ||
		got[0].Err != nil || got[0].Attempts != 2 {
		t.Errorf("%+v", got)
	}
}

// hidden is a Doer whose Trace is not known.
type hidden struct{ conn.Doer }

// The commands of a Doer that hides its Trace are reported one by one.
func TestTraceOfHiddenDoer(t *testing.T) {
	_, pool, ends := traced(t)
	s := script.Named("add", source)
	if _, err := s.Run(t.Context(), hidden{pool}, []string{"k"}, 1); err != nil {
		t.Fatal(err)
	}
	if got := *ends; len(got) != 2 || !errors.Is(got[0].Err, resp.ErrNoScript) || got[1].Name != "EVAL" {
		t.Errorf("%+v", got)
	}
}
