package script_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/resp"
	"github.com/lockwire/lockwire/script"
)

const source = "return redis.call('INCRBY', KEYS[1], ARGV[1])"

// setUp returns a server where the script source increments a key, and a pool without retries: a
// command that counts as a retry fails.
func setUp(t *testing.T) (*fakeredis.Server, *conn.Pool) {
	t.Helper()
	srv := fakeredis.New()
	t.Cleanup(srv.Close)
	srv.Script(source, func(call *fakeredis.Call) any { return call.Do("INCRBY", call.Keys[0], call.Args[0]) })
	pool, err := conn.Open(t.Context(), conn.Config{Dial: srv.Dial, Retry: conn.Retry{Attempts: -1}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { pool.Close() })
	srv.ClearLog()
	return srv, pool
}

// sent returns the commands received since ClearLog, without keys and arguments, and clears the
// log.
func sent(srv *fakeredis.Server) []string {
	var names []string
	for _, cmd := range srv.Log() {
		name := cmd.Name
		if name == "SCRIPT" {
			name += " " + cmd.Args[1]
		}
		names = append(names, name)
	}
	srv.ClearLog()
	return names
}

func wantSent(t *testing.T, srv *fakeredis.Server, want ...string) {
	t.Helper()
	if got := sent(srv); !slices.Equal(got, want) {
		t.Fatalf("the server got %v, want %v", got, want)
	}
}

func wantInt(t *testing.T, v resp.Value, err error, want int64) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	if n, err := v.Int(); err != nil || n != want {
		t.Fatalf("reply = %v, %v, want %d", n, err, want)
	}
}

// Goroutines may ask for the digest concurrently, also for the first time.
func TestDigestConcurrently(t *testing.T) {
	s := script.New("return 1")
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if got, want := s.Digest(), "e0e1f9fabfc9d4800c877a703b823ac0578ff8db"; got != want {
				t.Errorf("Digest() = %q, want %q", got, want)
			}
		})
	}
	wg.Wait()
	if n := testing.AllocsPerRun(10, func() { s.Digest() }); n != 0 {
		t.Errorf("second Digest(): %v allocations, want none", n)
	}
}

func TestRunFallsBackToSource(t *testing.T) {
	srv, pool := setUp(t)
	s := script.New(source)

	v, err := s.Run(t.Context(), pool, []string{"n"}, 2)
	wantInt(t, v, err, 2)
	wantSent(t, srv, "EVALSHA", "EVAL")

	v, err = s.Run(t.Context(), pool, []string{"n"}, 3)
	wantInt(t, v, err, 5)
	wantSent(t, srv, "EVALSHA")
}

func TestRunSendsTheSameArguments(t *testing.T) {
	srv, pool := setUp(t)
	s := script.New("return {KEYS, ARGV}")
	keys := []string{"k", "l", "m", "n", "o", "p", "", "r", "s", "t", "u", "v", "w", "x", "y", "z"}
	srv.Script(s.Source(), func(call *fakeredis.Call) any {
		return append(slices.Clone(call.Keys), call.Args...)
	})
	for n := range len(keys) + 1 {
		srv.Do("SCRIPT", "FLUSH")
		srv.ClearLog()
		v, err := s.Run(t.Context(), pool, keys[:n], "a", []byte("b\r\n"), 7, true, 0.5)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for e := range v.All() {
			text, _ := e.Text()
			got = append(got, text)
		}
		if want := append(slices.Clone(keys[:n]), "a", "b\r\n", "7", "1", "0.5"); !slices.Equal(got, want) {
			t.Fatalf("%d keys: the script got %q, want %q", n, got, want)
		}
		log := srv.Log()
		if first, last := log[0], log[len(log)-1]; !slices.Equal(first.Args[2:], last.Args[2:]) {
			t.Fatalf("%d keys: EVALSHA with %q, then %s with %q", n, first.Args[2:], last.Name, last.Args[2:])
		}
	}
}

func TestRunLoadsAfterTheSecondNoScript(t *testing.T) {
	srv, pool := setUp(t)
	s := script.New(source)
	run := func(want int64) {
		t.Helper()
		v, err := s.Run(t.Context(), pool, []string{"n"}, 1)
		wantInt(t, v, err, want)
	}
	run(1)
	srv.ClearLog()
	srv.Do("SCRIPT", "FLUSH")
	run(2)
	wantSent(t, srv, "EVALSHA", "SCRIPT LOAD", "EVALSHA")

	// Every EVALSHA finds the scripts flushed.
	srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
		if cmd.Name == "EVALSHA" {
			return fakeredis.Reply("-NOSCRIPT No matching script.\r\n")
		}
		return fakeredis.Run()
	})
	run(3)
	wantSent(t, srv, "EVALSHA", "SCRIPT LOAD", "EVALSHA", "EVAL")

	// The user may run scripts, but not load scripts.
	srv.Do("SCRIPT", "FLUSH")
	srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
		if cmd.Name == "SCRIPT" {
			return fakeredis.Reply("-NOPERM this user has no permissions to run the 'script|load' command\r\n")
		}
		return fakeredis.Run()
	})
	run(4)
	wantSent(t, srv, "EVALSHA", "SCRIPT LOAD", "EVALSHA", "EVAL")
}

func TestRunWithoutAnswerRunsOnce(t *testing.T) {
	srv, pool := setUp(t)
	s := script.New(source)
	srv.Do("SCRIPT", "LOAD", source)
	srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
		if cmd.Name == "EVALSHA" {
			return fakeredis.RunThenClose()
		}
		return fakeredis.Run()
	})
	_, err := s.Run(t.Context(), pool, []string{"n"}, 1)
	if !errors.Is(err, conn.ErrUncertain) || conn.SafeToRetry(err) {
		t.Fatalf("Run = %v, want ErrUncertain", err)
	}
	if key, _ := srv.Key("n"); key.Value != "1" {
		t.Errorf("n is %q, want 1", key.Value)
	}
	wantSent(t, srv, "EVALSHA")
}

// A script runs once, even if the lost reply belongs to a fallback after NOSCRIPT or to a batch.
func TestFallbackWithoutAnswerRunsOnce(t *testing.T) {
	for _, test := range []struct {
		way   string
		lost  string // the command whose reply is lost
		n     int    // its number among the commands of the same name
		names []string
	}{
		{"source", "EVAL", 1, []string{"EVALSHA", "EVAL"}},
		{"load", "EVALSHA", 2, []string{"EVALSHA", "SCRIPT LOAD", "EVALSHA"}},
		{"batch", "EVAL", 1, []string{"EVALSHA", "EVAL"}},
	} {
		t.Run(test.way, func(t *testing.T) {
			srv, pool := setUp(t)
			s := script.New(source)
			keys := []string{"n"}
			if test.way == "load" {
				v, err := s.Run(t.Context(), pool, keys, 0)
				wantInt(t, v, err, 0)
				srv.Do("SCRIPT", "FLUSH")
				srv.ClearLog()
			}
			srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
				if cmd.Name == test.lost && cmd.N == test.n {
					return fakeredis.RunThenClose()
				}
				return fakeredis.Run()
			})
			var err error
			if test.way == "batch" {
				_, err = script.RunBatch(t.Context(), pool, []script.Call{s.Call(keys, 1)})
			} else {
				_, err = s.Run(t.Context(), pool, keys, 1)
			}
			if !errors.Is(err, conn.ErrUncertain) || conn.SafeToRetry(err) {
				t.Errorf("error %v, want ErrUncertain", err)
			}
			if key, _ := srv.Key("n"); key.Value != "1" {
				t.Errorf("n is %q, want 1", key.Value)
			}
			wantSent(t, srv, test.names...)
		})
	}
}

func TestRunRefusesInvalidArguments(t *testing.T) {
	srv, pool := setUp(t)
	s := script.New(source)
	_, err := s.Run(t.Context(), pool, []string{"n"}, time.Second)
	if err == nil || !strings.Contains(err.Error(), "time.Duration") {
		t.Errorf("Run with a Duration: %v", err)
	}
	_, err = s.RunRO(t.Context(), pool, []string{"n"}, nil)
	if err == nil || !strings.Contains(err.Error(), "nil") {
		t.Errorf("RunRO with nil: %v", err)
	}
	wantSent(t, srv)
}

func TestRunReturnsTheErrorOfTheScript(t *testing.T) {
	srv, pool := setUp(t)
	s := script.New("return redis.error_reply('WRONGTYPE of a kind')")
	srv.Script(s.Source(), func(*fakeredis.Call) any { return fakeredis.Err("WRONGTYPE of a kind") })
	for range 3 {
		if _, err := s.Run(t.Context(), pool, nil); !errors.Is(err, resp.ErrWrongType) {
			t.Fatalf("Run = %v, want WRONGTYPE", err)
		}
		srv.Do("SCRIPT", "FLUSH")
	}
	wantSent(t, srv, "EVALSHA", "EVAL", "EVALSHA", "SCRIPT LOAD", "EVALSHA", "EVALSHA", "SCRIPT LOAD", "EVALSHA")
}

func TestRunRO(t *testing.T) {
	srv, pool := setUp(t)
	s := script.New("return redis.call('GET', KEYS[1])")
	srv.Script(s.Source(), func(call *fakeredis.Call) any { return call.Do("GET", call.Keys[0]) })
	srv.Do("SET", "n", "8")
	for range 2 {
		v, err := s.RunRO(t.Context(), pool, []string{"n"})
		wantInt(t, v, err, 8)
	}
	wantSent(t, srv, "EVALSHA_RO", "EVAL_RO", "EVALSHA_RO")
}

func TestRunROOnAnOldServer(t *testing.T) {
	srv, pool := setUp(t)
	srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
		if strings.HasSuffix(cmd.Name, "_RO") {
			return fakeredis.Reply("-ERR unknown command `" + cmd.Name + "`, with args beginning with: `x`, \r\n")
		}
		return fakeredis.Run()
	})
	s := script.New(source)
	for i := range int64(3) {
		v, err := s.RunRO(t.Context(), pool, []string{"n"}, 1)
		wantInt(t, v, err, i+1)
	}
	wantSent(t, srv, "EVALSHA_RO", "EVALSHA", "EVAL", "EVALSHA_RO", "EVALSHA", "EVALSHA_RO", "EVALSHA")
}

// A server that loses the scripts gets them again, and a new server in its place runs them as EVALSHA_RO.
func TestRunROAfterAnUpgrade(t *testing.T) {
	srv, pool := setUp(t)
	srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
		if strings.HasSuffix(cmd.Name, "_RO") {
			return fakeredis.Reply("-ERR unknown command `" + cmd.Name + "`, with args beginning with: `x`, \r\n")
		}
		return fakeredis.Run()
	})
	s := script.New(source)
	run := func(want int64) {
		t.Helper()
		v, err := s.RunRO(t.Context(), pool, []string{"n"}, 1)
		wantInt(t, v, err, want)
	}
	run(1)
	run(2)
	srv.ClearLog()
	srv.Do("SCRIPT", "FLUSH")
	run(3)
	wantSent(t, srv, "EVALSHA_RO", "EVALSHA", "SCRIPT LOAD", "EVALSHA")
	run(4)
	wantSent(t, srv, "EVALSHA_RO", "EVALSHA")

	srv.Do("SCRIPT", "FLUSH")
	srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
		switch cmd.Name {
		case "EVALSHA_RO", "EVAL_RO":
			return fakeredis.Reply(":0\r\n")
		}
		return fakeredis.Run()
	})
	run(0)
	wantSent(t, srv, "EVALSHA_RO")
}

// lost is a Doer whose connection fails on an unexpected error reply after a command was sent.
type lost struct {
	reply resp.Error
	sends int
}

func (d *lost) Send(context.Context, resp.Command) (resp.Value, error) {
	d.sends++
	return resp.Value{}, &conn.Error{Op: "EVALSHA", Sent: true, Err: d.reply}
}

func (d *lost) SendBatch(ctx context.Context, cmds []resp.Command) ([]resp.Value, error) {
	_, err := d.Send(ctx, cmds[0])
	return nil, err
}

// An error reply that broke the connection is not the reply to the waiting command.
func TestErrorReplyOfAFailedConnection(t *testing.T) {
	s := script.New(source)
	for _, reply := range []resp.Error{noScript, "ERR unknown command 'EVALSHA_RO'"} {
		d := &lost{reply: reply}
		for sends, run := range []func(context.Context, conn.Doer, []string, ...any) (resp.Value, error){s.Run, s.RunRO} {
			if _, err := run(t.Context(), d, nil); !errors.Is(err, conn.ErrUncertain) || d.sends != sends+1 {
				t.Errorf("%v: error %v after %d commands, want ErrUncertain after %d", reply, err, d.sends, sends+1)
			}
		}
	}
}

// The cost of a fallback is linear in the number of arguments.
func TestRunWithManyArguments(t *testing.T) {
	args := make([]any, 150_000)
	for i := range args {
		args[i] = i
	}
	d := new(recorder)
	done := make(chan error, 1)
	go func() {
		_, err := script.New(source).Run(t.Context(), d, []string{"n"}, args...)
		done <- err
	}()
	select {
	case err := <-done:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("Run takes forever")
	}
	last := d.cmds[len(d.cmds)-1]
	if last.Name() != "EVAL" || last.Len() != len(args)+4 || last.Arg(last.Len()-1) != "149999" {
		t.Errorf("unexpected last command: %v", last)
	}
}

// recorder is a Doer that records commands. It replies NOSCRIPT to each EVALSHA unless knows is
// set.
type recorder struct {
	cmds  []resp.Command
	knows bool
}

const noScript = resp.Error("NOSCRIPT No matching script. Please use EVAL.")

func (r *recorder) Send(_ context.Context, cmd resp.Command) (resp.Value, error) {
	r.cmds = append(r.cmds, cmd)
	if !r.knows && strings.HasPrefix(cmd.Name(), "EVALSHA") {
		return resp.Value{}, noScript
	}
	return resp.Value{}, nil
}

func (r *recorder) SendBatch(_ context.Context, cmds []resp.Command) ([]resp.Value, error) {
	r.cmds = append(r.cmds, cmds...)
	replies := make([]resp.Value, len(cmds))
	for i, cmd := range cmds {
		if !r.knows && strings.HasPrefix(cmd.Name(), "EVALSHA") {
			replies[i], _ = resp.NewReader(strings.NewReader("-"+string(noScript)+"\r\n"), resp.Limits{}).Read()
		}
	}
	return replies, nil
}

func TestRoutingKey(t *testing.T) {
	s := script.New(source)
	d := new(recorder)
	ctx := t.Context()
	for range 2 {
		if _, err := s.Run(ctx, d, []string{"first", "second"}, 1); err != nil {
			t.Fatal(err)
		}
		if _, err := s.RunRO(ctx, d, []string{"first"}, 1); err != nil {
			t.Fatal(err)
		}
		if _, err := script.RunBatch(ctx, d, []script.Call{s.Call([]string{"first", "third"})}); err != nil {
			t.Fatal(err)
		}
	}
	seen := make(map[string]bool)
	for _, cmd := range d.cmds {
		seen[cmd.Name()] = true
		if key, ok := cmd.Key(); !ok || key != "first" {
			t.Errorf("%s has the routing key %q, %v", cmd.Name(), key, ok)
		}
	}
	for _, name := range []string{"EVALSHA", "EVALSHA_RO", "EVAL", "EVAL_RO", "SCRIPT"} {
		if !seen[name] {
			t.Errorf("%s was not sent", name)
		}
	}

	d = new(recorder)
	if _, err := s.Run(ctx, d, nil); err != nil {
		t.Fatal(err)
	}
	for _, cmd := range d.cmds {
		if key, ok := cmd.Key(); ok {
			t.Errorf("%s without keys has the routing key %q", cmd.Name(), key)
		}
	}
}

// quiet is a Doer that replies null and does not allocate.
type quiet struct{}

func (*quiet) Send(context.Context, resp.Command) (resp.Value, error) { return resp.Value{}, nil }

func (*quiet) SendBatch(_ context.Context, cmds []resp.Command) ([]resp.Value, error) {
	return make([]resp.Value, len(cmds)), nil
}

func TestRunAllocates(t *testing.T) {
	s := script.New(source)
	ctx := t.Context()
	var d conn.Doer = new(quiet)
	name, owner, lease := "lock{name}", strings.Repeat("x", 38), int64(30_000)
	run := func() {
		keys := [...]string{name, "channel:" + name}
		if _, err := s.Run(ctx, d, keys[:], lease, owner, []byte("request"), 12345, true); err != nil {
			t.Fatal(err)
		}
	}
	// Expected: the name of the channel and the encoded command.
	if got := testing.AllocsPerRun(100, run); got > 2 {
		t.Errorf("Run allocates %v times, want 2 at most", got)
	}
}

var errNetwork = errors.New("network down")

// failing is a Doer that replies to its first batch, with NOSCRIPT for one script, and then sends
// no command.
type failing struct {
	forgets  string
	answered bool
}

func (*failing) Send(context.Context, resp.Command) (resp.Value, error) {
	return resp.Value{}, &conn.Error{Op: "EVAL", Err: errNetwork}
}

func (d *failing) SendBatch(_ context.Context, cmds []resp.Command) ([]resp.Value, error) {
	if d.answered {
		return nil, &conn.Error{Op: "EVAL", Err: errNetwork}
	}
	d.answered = true
	replies := make([]resp.Value, len(cmds))
	for i, cmd := range cmds {
		if cmd.Arg(1) == d.forgets {
			replies[i], _ = resp.NewReader(strings.NewReader("-"+string(noScript)+"\r\n"), resp.Limits{}).Read()
		}
	}
	return replies, nil
}
