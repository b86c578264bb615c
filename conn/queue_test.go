package conn_test

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"strings"
	"testing"

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
