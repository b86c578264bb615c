package conn_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/resp"
)

// A batch that ends in WAIT is one call, with the names of its commands.
func TestTraceOfAckedBatch(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		var ends []conn.CommandEnd
		p := openPool(t, conn.Config{Dial: srv.Dial, DB: 1, Trace: &conn.Trace{
			CommandEnd: func(_ context.Context, end conn.CommandEnd) { ends = append(ends, end) },
		}})
		defer p.Close()
		if err := increment(t.Context(), p, "k"); err != nil {
			t.Fatal(err)
		}
		if len(ends) != 1 || ends[0].Operation() != "PIPELINE" || !slices.Equal(ends[0].Names, []string{"INCR", "WAIT"}) ||
			ends[0].Attempts != 1 || ends[0].DB != 1 || !ends[0].Sent {
			t.Errorf("calls %+v", ends)
		}
	})
}

// Sent tells a call without any effect from a call whose answer is missing.
func TestTraceTellsWhetherSent(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		var end conn.CommandEnd
		p := openPool(t, conn.Config{Dial: srv.Dial, Trace: &conn.Trace{
			CommandEnd: func(_ context.Context, e conn.CommandEnd) { end = e },
		}})
		defer p.Close()
		done, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := p.Do(done, "GET", "k"); err == nil || end.Sent || end.Attempts != 1 || end.Server == "" || end.Err != err {
			t.Errorf("under a cancelled context: %+v, %v", end, err)
		}
		srv.Latency(time.Hour)
		late, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := p.Do(late, "GET", "k"); !errors.Is(err, conn.ErrUncertain) || !end.Sent || end.Elapsed != time.Second {
			t.Errorf("without an answer: %+v, %v", end, err)
		}
		srv.Latency(0)
		if _, err := p.Do(t.Context(), "NOSUCH"); err == nil || !end.Sent || end.Err != err {
			t.Errorf("refused by the server: %+v, %v", end, err)
		}
	})
}

// StartCall makes one call of several, of which those under another context are no part.
func TestStartCall(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		var begun, ended []string
		trace := &conn.Trace{
			CommandStart: func(ctx context.Context, s conn.CommandStart) context.Context {
				begun = append(begun, s.Name)
				return ctx
			},
			CommandEnd: func(_ context.Context, e conn.CommandEnd) { ended = append(ended, e.Name) },
		}
		p := openPool(t, conn.Config{Dial: srv.Dial, Trace: trace})
		defer p.Close()
		ctx, call := conn.StartCall(t.Context(), p, conn.CommandStart{Name: "BOTH", Count: 1})
		if _, inner := conn.StartCall(ctx, p, conn.CommandStart{Name: "INNER", Count: 1}); inner != nil {
			t.Error("a call within a call")
		}
		p.Do(ctx, "GET", "k")
		p.SendBatch(ctx, []resp.Command{resp.Cmd("GET", "k"), resp.Cmd("GET", "k")})
		p.Do(t.Context(), "PING")
		p.With(ctx, func(c *conn.Conn) error { _, err := c.Do(ctx, "GET", "k"); return err })
		call.End(ctx, nil)
		want := []string{"PING", "BOTH"}
		if !slices.Equal(begun, []string{"BOTH", "PING"}) || !slices.Equal(ended, want) {
			t.Errorf("begun %v, ended %v, want %v", begun, ended, want)
		}
	})
}

// The contexts of joined traces are nested, and nil traces cost nothing.
func TestJoinTraces(t *testing.T) {
	if conn.JoinTraces() != nil || conn.JoinTraces(nil, nil) != nil {
		t.Error("JoinTraces of nothing is a Trace")
	}
	only := &conn.Trace{Switch: func(conn.SwitchInfo) {}}
	if conn.JoinTraces(nil, only) != only {
		t.Error("JoinTraces of one Trace is another one")
	}
	var events []string
	type key struct{}
	named := func(name string) *conn.Trace {
		return &conn.Trace{
			CommandStart: func(ctx context.Context, _ conn.CommandStart) context.Context {
				path, _ := ctx.Value(key{}).(string)
				return context.WithValue(ctx, key{}, path+name)
			},
			CommandEnd: func(ctx context.Context, _ conn.CommandEnd) {
				events = append(events, name+" ends "+ctx.Value(key{}).(string))
			},
			Dial: func(conn.DialInfo) { events = append(events, name+" dial") },
		}
	}
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		p := openPool(t, conn.Config{Dial: srv.Dial, Trace: conn.JoinTraces(named("a"), only, nil, named("b"))})
		defer p.Close()
		want(t, p, "PONG", "PING")
	})
	if expected := []string{"a dial", "b dial", "b ends ab", "a ends ab"}; !slices.Equal(events, expected) {
		t.Errorf("events %q, want %q", events, expected)
	}
}
