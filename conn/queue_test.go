package conn_test

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/resp"
)

func TestQueue(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		p := openPool(t, conn.Config{Dial: srv.Dial})
		defer p.Close()
		var q conn.Queue
		set := conn.Add[string](&q, "SET", "k", "7")
		n := conn.Add[int](&q, "INCR", "k")
		wrong := conn.Add[[]string](&q, "LRANGE", "k", 0, -1)
		form := conn.Add[bool](&q, "GET", "k")
		none := conn.AddCommand[string](&q, resp.Cmd("GET", "none"))
		if _, err := n.Get(); err == nil || q.Len() != 5 {
			t.Errorf("a result before Run: %v, %d commands", err, q.Len())
		}
		err := q.Run(t.Context(), p)
		if !errors.Is(err, resp.ErrWrongType) || !strings.Contains(err.Error(), "command 3 of 5, LRANGE: ") {
			t.Errorf("Run = %v", err)
		}
		if s, err := set.Get(); s != "OK" || err != nil {
			t.Errorf("SET = %q, %v", s, err)
		}
		if i, err := n.Get(); i != 8 || err != nil {
			t.Errorf("INCR = %d, %v", i, err)
		}
		if _, err := wrong.Get(); !errors.Is(err, resp.ErrWrongType) {
			t.Errorf("LRANGE = %v", err)
		}
		if _, err := wrong.Value(); !errors.Is(err, resp.ErrWrongType) {
			t.Errorf("Value of LRANGE = %v", err)
		}
		if _, err := form.Get(); err == nil {
			t.Error("8 as a bool")
		}
		if s, ok, err := none.Maybe(); s != "" || ok || err != nil {
			t.Errorf("Maybe = %q, %v, %v", s, ok, err)
		}
		if err := q.Run(t.Context(), p); err != nil || q.Len() != 0 {
			t.Errorf("Run of an empty queue = %v", err)
		}
		again := conn.Add[int](&q, "INCR", "k")
		if err := q.Run(t.Context(), p); err != nil {
			t.Errorf("the second Run = %v", err)
		}
		if i, _ := again.Get(); i != 9 {
			t.Errorf("INCR = %d, want 9", i)
		}
	})
}

func TestQueueTx(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		p := openPool(t, conn.Config{Dial: srv.Dial})
		defer p.Close()
		var q conn.Queue
		n := conn.Add[int](&q, "INCR", "k")
		if err := q.RunTx(t.Context(), p); err != nil {
			t.Errorf("RunTx = %v", err)
		}
		if i, err := n.Get(); i != 1 || err != nil || srv.Count("EXEC") != 1 {
			t.Errorf("INCR = %d, %v, after %d EXEC", i, err, srv.Count("EXEC"))
		}
		err := p.With(t.Context(), func(c *conn.Conn) error {
			if _, err := c.Do(t.Context(), "WATCH", "k"); err != nil {
				return err
			}
			srv.Do("SET", "k", "9")
			n = conn.Add[int](&q, "INCR", "k")
			return q.RunTx(t.Context(), c)
		})
		if _, lost := n.Get(); !errors.Is(err, conn.ErrTxAborted) || lost != err {
			t.Errorf("RunTx after a change = %v, its command %v", err, lost)
		}
	})
}

// Each result tells whether its command ran.
func TestQueueWithoutAnswers(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		p := openPool(t, conn.Config{Dial: srv.Dial})
		defer p.Close()
		srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
			if cmd.Name == "GET" {
				return fakeredis.RunThenClose()
			}
			return fakeredis.Run()
		})
		var q conn.Queue
		n, s := conn.Add[int](&q, "INCR", "k"), conn.Add[string](&q, "GET", "k")
		err := q.Run(t.Context(), p)
		if !errors.Is(err, conn.ErrUncertain) {
			t.Errorf("Run = %v", err)
		}
		if i, err := n.Get(); i != 1 || err != nil {
			t.Errorf("INCR = %d, %v", i, err)
		}
		if _, lost := s.Get(); lost != err {
			t.Errorf("GET = %v, want %v", lost, err)
		}
		n = conn.Add[int](&q, "INCR", "k")
		conn.Add[string](&q, "GET", struct{}{})
		err = q.Run(t.Context(), p)
		if _, lost := n.Get(); lost != err || !conn.SafeToRetry(err) {
			t.Errorf("INCR beside a command that cannot be encoded = %v", lost)
		}
	})
}

// ofOne is the error of a batch of one command.
type ofOne struct{ error }

func (ofOne) Len() int                     { return 1 }
func (o ofOne) At(int) (resp.Value, error) { return resp.Value{}, o.error }

// The outcome of a command behind the end of a batch is the error of the batch.
func TestOutcomeBehindTheEnd(t *testing.T) {
	inner := errors.New("of the first")
	err := ofOne{inner}
	if _, got := conn.Outcome(nil, err, 0); got != inner {
		t.Errorf("Outcome of the first = %v", got)
	}
	if _, got := conn.Outcome(nil, err, 1); got != err {
		t.Errorf("Outcome of the second = %v, want the error of the batch", got)
	}
}

// The error for a refused command names its number and its name.
func TestQueueNamesTheRefusedCommand(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		p := openPool(t, conn.Config{Dial: srv.Dial})
		defer p.Close()
		var q conn.Queue
		for _, tt := range []struct {
			cmd  []any
			tx   bool
			want string
		}{
			{[]any{"SET", "k", nil}, false, "command 2 of 3, SET: "}, {[]any{"SET", "k", nil}, true, "command 2 of 3, SET: "},
			{[]any{"BLPOP", "k", 0}, false, "command 2 of 3, BLPOP: "}, {[]any{"WATCH", "k"}, true, "command 2 of 3, WATCH: "},
			{[]any{[]string{"GET", "secret"}}, false, "command 2 of 3, command: "}, {[]any{"SECRET VALUE", nil}, false, "command 2 of 3, command: "},
			{nil, false, "command 2 of 3, command: "},
		} {
			first := conn.Add[string](&q, "GET", "k")
			second := conn.Add[string](&q, tt.cmd...)
			conn.Add[string](&q, "GET", "k")
			run := func() error { return q.Run(t.Context(), p) }
			if tt.tx {
				run = func() error { return q.RunTx(t.Context(), p) }
			}
			failed := run()
			if !errors.Is(failed, conn.ErrRefused) || !conn.SafeToRetry(failed) || strings.Count(failed.Error(), tt.want) != 1 || strings.Contains(strings.ToLower(failed.Error()), "secret") {
				t.Errorf("Run with %T = %v, want %q in it", tt.cmd, failed, tt.want)
			}
			for _, r := range []*conn.Result[string]{first, second} {
				if _, err := r.Get(); err != failed {
					t.Errorf("the result is %v, want %v", err, failed)
				}
			}
		}
		if n := srv.Count("GET"); n != 0 {
			t.Errorf("%d GET were sent", n)
		}
	})
}

// A Result that no Queue has run is an error, also one that no Queue knows.
func TestResultNotRun(t *testing.T) {
	var zero conn.Result[*string]
	var q conn.Queue
	for name, r := range map[string]*conn.Result[*string]{"the zero Result": &zero, "a Result before Run": conn.Add[*string](&q, "GET", "k")} {
		if _, err := r.Get(); err == nil || !strings.Contains(err.Error(), "not been run") {
			t.Errorf("Get of %s: %v", name, err)
		}
		if _, _, err := r.Maybe(); err == nil {
			t.Errorf("Maybe of %s: no error", name)
		}
		if _, err := r.Value(); err == nil {
			t.Errorf("Value of %s: no error", name)
		}
	}
}

func TestBlock(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		p := openPool(t, conn.Config{Dial: srv.Dial})
		defer p.Close()
		for _, want := range []bool{false, true} {
			if want {
				srv.Do("RPUSH", "jobs", "one")
			}
			job, ok, err := resp.Maybe[[]string](p.Block(t.Context(), "BLPOP", "jobs", 1))
			if ok != want || err != nil || ok && !slices.Equal(job, []string{"jobs", "one"}) {
				t.Errorf("BLPOP = %q, %v, %v", job, ok, err)
			}
		}
		if n := p.Stats(); n.Open != 1 || n.Idle != 1 {
			t.Errorf("after two calls one by one: %+v", n)
		}
		if _, err := p.Block(t.Context(), "BLPOP", nil); !errors.Is(err, conn.ErrRefused) {
			t.Errorf("Block of an argument that cannot be encoded = %v", err)
		}
		if _, err := p.Block(t.Context(), "LPUSH", "jobs"); !errors.Is(err, resp.ErrGeneral) {
			t.Errorf("Block of a command that fails = %v", err)
		}
		if _, err := p.Do(t.Context(), "BLPOP", "jobs", 1); err == nil || !strings.Contains(err.Error(), "use Block") {
			t.Errorf("Do of BLPOP = %v", err)
		}
	})
}

func TestWatch(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		p := openPool(t, conn.Config{Dial: srv.Dial})
		defer p.Close()
		srv.Do("SET", "n", "1")
		calls, changes := 0, 2
		double := func(c *conn.Conn) ([]resp.Command, error) {
			n, err := resp.As[int](c.Do(t.Context(), "GET", "n"))
			if calls++; calls <= changes {
				srv.Do("INCR", "n")
			}
			return []resp.Command{resp.Cmd("SET", "n", 2*n), resp.Cmd("GET", "n")}, err
		}
		values, err := p.Watch(t.Context(), []string{"n", "m"}, double)
		if got := texts(values); got != "OK 6" || err != nil || calls != 3 {
			t.Errorf("Watch = %s, %v after %d calls, want the double of 3", got, err, calls)
		}
		calls = 0
		err = p.With(t.Context(), func(c *conn.Conn) error {
			_, err := c.Watch(t.Context(), []string{"n"}, double)
			return err
		})
		if !errors.Is(err, conn.ErrTxAborted) || calls != 1 {
			t.Errorf("Watch of a Conn = %v after %d calls", err, calls)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		_, err = p.Watch(ctx, []string{"n"}, func(c *conn.Conn) ([]resp.Command, error) {
			srv.Do("INCR", "n")
			if calls++; calls == 5 {
				defer cancel()
			}
			return []resp.Command{resp.Cmd("SET", "n", 0)}, nil
		})
		if err == nil || calls != 5 {
			t.Errorf("Watch of a key that always changes = %v after %d calls", err, calls)
		}
	})
}

// A call that changes nothing leaves the connection as it was.
func TestWatchOfNothing(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		p := openPool(t, conn.Config{Dial: srv.Dial})
		defer p.Close()
		no := errors.New("no")
		for _, want := range []error{nil, no} {
			values, err := p.Watch(t.Context(), []string{"n"}, func(*conn.Conn) ([]resp.Command, error) { return nil, want })
			if err != want || len(values) != 0 {
				t.Errorf("Watch = %v, %v, want %v", values, err, want)
			}
		}
		if n := p.Stats(); n.Idle != 1 || srv.Count("EXEC") != 0 || srv.Count("UNWATCH") != 2 {
			t.Errorf("%+v after %d EXEC and %d UNWATCH", n, srv.Count("EXEC"), srv.Count("UNWATCH"))
		}
		if _, err := p.Watch(t.Context(), nil, nil); !errors.Is(err, resp.ErrGeneral) {
			t.Errorf("Watch without keys = %v", err)
		}
	})
}

// An error of fn ends Watch, even if it says that a transaction was aborted.
func TestWatchReturnsTheErrorOfFn(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		p := openPool(t, conn.Config{Dial: srv.Dial})
		defer p.Close()
		calls := 0
		mine := fmt.Errorf("mine: %w", conn.ErrTxAborted)
		_, err := p.Watch(t.Context(), []string{"n"}, func(*conn.Conn) ([]resp.Command, error) {
			if calls++; calls > 1 {
				return nil, nil
			}
			return nil, mine
		})
		if err != mine || calls != 1 {
			t.Errorf("Watch = %v after %d calls", err, calls)
		}
	})
}

// Watch pauses before it begins anew, and the end of ctx ends the pause.
func TestWatchPauses(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		p := openPool(t, conn.Config{Dial: srv.Dial, Retry: conn.Retry{MinBackoff: 40 * time.Millisecond}})
		defer p.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		calls := 0
		_, err := p.Watch(ctx, []string{"n"}, func(*conn.Conn) ([]resp.Command, error) {
			srv.Do("INCR", "n")
			calls++
			return []resp.Command{resp.Cmd("SET", "n", 0)}, nil
		})
		if !errors.Is(err, context.DeadlineExceeded) || !conn.SafeToRetry(err) || calls < 5 || calls > 20 {
			t.Errorf("Watch = %v after %d calls", err, calls)
		}
	})
}

// Commands that are refused before they are sent leave no WATCH open.
func TestWatchOfRefusedCommands(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		c, err := conn.Dial(t.Context(), conn.Config{Addr: "x:1", Dial: srv.Dial})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_, err = c.Watch(t.Context(), []string{"n"}, func(*conn.Conn) ([]resp.Command, error) {
			return []resp.Command{resp.Cmd("SET", "n", nil)}, nil
		})
		if !errors.Is(err, conn.ErrRefused) {
			t.Errorf("Watch = %v", err)
		}
		srv.Do("SET", "n", "other")
		if _, err := c.Tx(t.Context(), []resp.Command{resp.Cmd("SET", "m", "1")}); err != nil {
			t.Errorf("the next Tx = %v", err)
		}
	})
}

// Inside a MULTI of the caller, UNWATCH would become a part of the transaction.
func TestWatchInsideAnOpenMulti(t *testing.T) {
	bubble(t, func(t *testing.T, srv *fakeredis.Server) {
		p := openPool(t, conn.Config{Dial: srv.Dial})
		defer p.Close()
		_ = p.With(t.Context(), func(c *conn.Conn) error {
			_, err := c.Watch(t.Context(), []string{"n"}, func(c *conn.Conn) ([]resp.Command, error) {
				_, err := c.Do(t.Context(), "MULTI")
				return []resp.Command{resp.Cmd("SET", "n", 0)}, err
			})
			if !errors.Is(err, conn.ErrRefused) {
				t.Errorf("Watch = %v, want ErrRefused", err)
			}
			return nil
		})
		if n := srv.Count("UNWATCH"); n != 0 {
			t.Errorf("%d UNWATCH inside the MULTI", n)
		}
	})
}

// tasksLimit is the number of lines that go-redis takes for the tasks of Example_tasks.
const tasksLimit = 90

// The everyday tasks are short. Their functions count from the first line to the last, with the types and the script.
func TestTasksAreShort(t *testing.T) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, "example_tasks_test.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	lines, tasks := 0, 0
	for _, decl := range file.Decls {
		if d, ok := decl.(*ast.GenDecl); ok && d.Tok == token.IMPORT {
			continue
		}
		if d, ok := decl.(*ast.FuncDecl); ok {
			if d.Name.Name == "Example_tasks" {
				continue
			}
			tasks++
		}
		lines += files.Position(decl.End()).Line - files.Position(decl.Pos()).Line + 1
	}
	if lines > tasksLimit || tasks < 13 {
		t.Errorf("%d tasks take %d lines, want at least 13 in at most %d", tasks, lines, tasksLimit)
	}
	t.Logf("%d tasks in %d lines", tasks, lines)
}
