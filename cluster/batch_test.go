package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockwire/lockwire/cluster"
	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/resp"
)

// texts returns the replies of a batch as texts, including errors.
func texts(values []resp.Value) string {
	var list []string
	for _, v := range values {
		text, err := v.Text()
		if err != nil {
			text = resp.Error(err.Error()).Prefix()
		}
		list = append(list, text)
	}
	return strings.Join(list, " ")
}

func echo(text, key string) resp.Command { return resp.Cmd("ECHO", text).On(key) }

func TestBatchIsDividedAndKeepsItsOrder(t *testing.T) {
	bubble(t, cluster.Config{}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
		cmds := []resp.Command{echo("1", keyC), echo("2", keyA), echo("3", keyB), resp.Cmd("ECHO", "4"), echo("5", keyA),
			resp.Cmd("LPUSH", keyB, "x"), resp.Cmd("GET", keyB), echo("8", keyC)}
		for _, srv := range f.nodes {
			srv.Latency(10 * time.Millisecond)
		}
		if values, err := c.SendBatch(t.Context(), cmds); err != nil || texts(values) != "1 2 3 4 5 1 WRONGTYPE 8" {
			t.Fatalf("replies %q, %v", texts(values), err)
		}
		f.wantCounts("ECHO", 2, 2, 2) // 4 goes with 3
		took(t, 20*time.Millisecond, 20*time.Millisecond, func() {
			if _, err := c.SendBatch(t.Context(), cmds); err != nil { // all nodes at the same time
				t.Fatal(err)
			}
		})
		if values, err := c.SendBatch(t.Context(), nil); values != nil || err != nil {
			t.Errorf("an empty batch: %v, %v", values, err)
		}
		keyless := []resp.Command{resp.Cmd("ECHO", "1"), resp.Cmd("ECHO", "2"), resp.Cmd("ECHO", "3")}
		for _, srv := range f.nodes {
			srv.ClearLog()
		}
		for range 20 {
			if _, err := c.SendBatch(t.Context(), keyless); err != nil {
				t.Fatal(err)
			}
		}
		for addr, srv := range f.nodes {
			if n := srv.Count("ECHO"); n%3 != 0 || n == 60 {
				t.Errorf("%s got %d ECHO, want that a batch without keys stays together, and goes anywhere", addr, n)
			}
		}
		for _, srv := range f.nodes {
			srv.ClearLog()
		}
		if _, err := c.SendBatch(t.Context(), []resp.Command{resp.Cmd("ECHO", "1"), resp.Cmd("ECHO", "2"), echo("3", keyB)}); err != nil {
			t.Fatal(err)
		}
		f.wantCounts("ECHO", 0, 3, 0) // sent with the following key
	})
}

// If this program refuses a command, nothing of the batch is sent.
func TestBatchRefused(t *testing.T) {
	bubble(t, cluster.Config{}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
		for _, bad := range []resp.Command{resp.Cmd("BLPOP", keyB, 0), resp.Cmd("SCAN", 0), resp.Cmd(time.Second), resp.Cmd("ASKING"),
			resp.Cmd("SUBSCRIBE", "c"), resp.Cmd("MULTI"), {}} {
			values, err := c.SendBatch(t.Context(), []resp.Command{resp.Cmd("INCR", keyA), bad, resp.Cmd("INCR", keyC)})
			if len(values) > 0 || !errors.Is(err, conn.ErrRefused) || !conn.SafeToRetry(err) {
				t.Errorf("%v: %v, %v, want a refusal", bad, values, err)
			}
		}
		f.wantCounts("INCR", 0, 0, 0)
	})
}

// The error of a Queue names the refused command and its number, as with a Pool.
func TestQueueNamesTheRefusedCommand(t *testing.T) {
	bubble(t, cluster.Config{}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
		for _, tt := range []struct {
			cmd  []any
			tx   bool
			want string
		}{
			{[]any{"KEYS", "*"}, false, "KEYS"}, {[]any{"SET", keyA, nil}, false, "SET"}, {[]any{"BLPOP", keyA, 0}, false, "BLPOP"},
			{[]any{"ASKING"}, false, "ASKING"}, {[]any{"GET", keyB}, true, "GET"}, {[]any{"WATCH", keyA}, true, "WATCH"},
			{[]any{"SET", keyA, nil}, true, "SET"},
		} {
			var q conn.Queue
			conn.Add[string](&q, "GET", keyA)
			conn.Add[string](&q, tt.cmd...)
			conn.Add[string](&q, "GET", keyA)
			run := func() error { return q.Run(t.Context(), c) }
			if tt.tx {
				run = func() error { return q.RunTx(t.Context(), c) }
			}
			err, want := run(), "command 2 of 3, "+tt.want+": "
			if !errors.Is(err, conn.ErrRefused) || !conn.SafeToRetry(err) || strings.Count(err.Error(), want) != 1 {
				t.Errorf("%q: %v, want %q in it", tt.cmd, err, want)
			}
		}
		f.wantCounts("GET", 0, 0, 0)
	})
}

// B32: ASK for 3 of 10.
func TestAskInBatch(t *testing.T) {
	bubble(t, cluster.Config{}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
		ask := fakeredis.Reply(fmt.Sprintf("-ASK %d %s\r\n", slotA, nodeB))
		f.hook(nodeA, func(cmd fakeredis.Cmd) *fakeredis.Action {
			if cmd.Name == "INCRBY" && strings.ContainsAny(cmd.Args[2], "258") {
				return &ask
			}
			return nil
		})
		var cmds []resp.Command
		for i := range 10 {
			cmds = append(cmds, resp.Cmd("INCRBY", fmt.Sprintf("{%s}%d", keyA, i), i))
		}
		values, err := c.SendBatch(t.Context(), cmds)
		if err != nil || texts(values) != "0 1 2 3 4 5 6 7 8 9" {
			t.Errorf("B32: %q, %v", texts(values), err)
		}
		f.wantCounts("INCRBY", 10, 3, 0)
		f.wantCounts("ASKING", 0, 3, 0)
		wantAskingAdjacent(t, f.nodes[nodeB])
		for i, srv := range []*fakeredis.Server{f.nodes[nodeA], f.nodes[nodeB]} {
			if len(srv.Conns()) > 2 { // the seed's was closed
				t.Errorf("node %d has %d connections", i, len(srv.Conns()))
			}
		}
	})
}

// Redirections of several kinds in one batch count as one attempt of the batch.
func TestMixedRedirectsInBatch(t *testing.T) {
	bubble(t, cluster.Config{MaxRedirects: 2}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
		f.answer(nodeA, "APPEND", fmt.Sprintf("-MOVED %d %s", slotA, nodeC), 0)
		f.answer(nodeB, "APPEND", "-TRYAGAIN", 2)
		var cmds []resp.Command
		for i := range 9 {
			cmds = append(cmds, resp.Cmd("APPEND", fmt.Sprintf("{%s}%d", []string{keyA, keyB, keyC}[i%3], i), "x"))
		}
		values, err := c.SendBatch(t.Context(), cmds)
		if err != nil || texts(values) != "1 1 1 1 1 1 1 1 1" {
			t.Errorf("%q, %v", texts(values), err)
		}
		f.wantCounts("APPEND", 3, 3+2, 3+3)
	})
}

// The outcome of every command is known even if a node is down.
func TestBatchWithADeadNode(t *testing.T) {
	bubble(t, cluster.Config{Node: conn.Config{Retry: conn.Retry{Budget: time.Second}}}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
		f.nodes[nodeB].Refuse(true)
		values, err := c.SendBatch(t.Context(), []resp.Command{resp.Cmd("INCR", keyA), resp.Cmd("INCR", keyB), resp.Cmd("INCR", keyC)})
		if texts(values) != "1" || !errors.Is(err, conn.ErrUncertain) || conn.SafeToRetry(err) {
			t.Errorf("%q, %v, want the first reply, and that the batch is not to be repeated", texts(values), err)
		}
		all, ok := errors.AsType[*cluster.BatchError](err)
		if !ok || all.Len() != 3 {
			t.Fatalf("%v is no BatchError of 3 commands", err)
		}
		if v, err := all.At(2); err != nil || texts([]resp.Value{v}) != "1" {
			t.Errorf("the last command: %v, %v", v, err)
		}
		if _, err := all.At(1); !conn.SafeToRetry(err) || strings.Contains(err.Error(), keyB+" ") {
			t.Errorf("the second: %v, want that it was not sent", err)
		}
		values, err = c.SendBatch(t.Context(), []resp.Command{resp.Cmd("INCR", keyB), resp.Cmd("INCR", keyB)})
		if len(values) > 0 || !conn.SafeToRetry(err) {
			t.Errorf("only the dead node: %q, %v", texts(values), err)
		}
		f.wantCounts("INCR", 1, 0, 1)

		f.nodes[nodeB].Refuse(false)
		f.nodes[nodeC].Refuse(true)
		f.nodes[nodeC].KillConns(nil)
		synctest.Wait()
		f.nodes[nodeA].Refuse(true)
		f.nodes[nodeA].KillConns(nil)
		synctest.Wait()
		values, err = c.SendBatch(t.Context(), []resp.Command{resp.Cmd("INCR", keyA), resp.Cmd("INCR", keyC)})
		if len(values) > 0 || !conn.SafeToRetry(err) || errors.Is(err, conn.ErrUncertain) {
			t.Errorf("two dead nodes: %q, %v, want that nothing was sent", texts(values), err)
		}
	})
}

func TestBatchLosesOneNode(t *testing.T) {
	bubble(t, cluster.Config{}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
		f.hook(nodeB, func(cmd fakeredis.Cmd) *fakeredis.Action {
			if cmd.Name == "INCR" && cmd.N == 2 {
				act := fakeredis.RunThenClose()
				return &act
			}
			return nil
		})
		values, err := c.SendBatch(t.Context(), []resp.Command{resp.Cmd("INCR", keyA), resp.Cmd("INCR", keyB), resp.Cmd("INCR", keyB),
			resp.Cmd("INCR", keyB), resp.Cmd("INCR", keyC)})
		if texts(values) != "1 1" || !errors.Is(err, conn.ErrUncertain) {
			t.Errorf("%q, %v", texts(values), err)
		}
		all, _ := errors.AsType[*cluster.BatchError](err)
		for i, want := range []bool{true, true, false, false, true} {
			if _, err := all.At(i); (err == nil) != want || !want && !errors.Is(err, conn.ErrUncertain) {
				t.Errorf("command %d: %v", i, err)
			}
		}
		f.wantCounts("INCR", 1, 2, 1)
	})
}

func TestTx(t *testing.T) {
	bubble(t, cluster.Config{}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
		k1, k2 := "{"+keyA+"}1", "{"+keyA+"}2"
		cmds := []resp.Command{resp.Cmd("ECHO", "first"), resp.Cmd("INCR", k1), resp.Cmd("INCR", k2)}
		values, err := c.Tx(t.Context(), cmds)
		if err != nil || texts(values) != "first 1 1" {
			t.Errorf("%q, %v", texts(values), err)
		}
		f.wantCounts("EXEC", 1, 0, 0)
		_, err = c.Tx(t.Context(), []resp.Command{resp.Cmd("INCR", k1), resp.Cmd("PING"), resp.Cmd("INCR", keyC)})
		if !errors.Is(err, conn.ErrRefused) || !strings.Contains(err.Error(), fmt.Sprintf("%d and %d", slotA, slotC)) {
			t.Errorf("over two slots: %v, want both named", err)
		}
		f.wantCounts("MULTI", 1, 0, 0)
		if values, err := c.Tx(t.Context(), nil); values != nil || err != nil {
			t.Errorf("an empty one: %v, %v", values, err)
		}
		if _, err = c.Tx(t.Context(), []resp.Command{resp.Cmd("INCR", k1), resp.Cmd("FLUSHDB")}); !errors.Is(err, conn.ErrRefused) {
			t.Errorf("with a command of one node: %v, want ErrRefused", err)
		}
		f.wantCounts("MULTI", 1, 0, 0)

		f.refuseTx(nodeA, fmt.Sprintf("-MOVED %d %s", slotA, nodeB))
		if values, err = c.Tx(t.Context(), cmds); err != nil || texts(values) != "first 1 1" {
			t.Errorf("moved: %q, %v", texts(values), err)
		}
		f.wantCounts("EXEC", 2, 1, 0)
		if _, err := c.Tx(t.Context(), []resp.Command{resp.Cmd("SET", keyC)}); !errors.Is(err, resp.ErrGeneral) {
			t.Errorf("refused: %v, want the server's error", err)
		}
	})
}

// A transaction follows a single ASKING, on an exclusive connection.
func TestTxBehindAsk(t *testing.T) {
	bubble(t, cluster.Config{}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
		f.refuseTx(nodeA, fmt.Sprintf("-ASK %d %s", slotA, nodeB))
		for i := range 2 {
			values, err := c.Tx(t.Context(), []resp.Command{resp.Cmd("INCR", keyA), resp.Cmd("INCR", keyA)})
			if want := fmt.Sprint(2*i+1, " ", 2*i+2); err != nil || texts(values) != want {
				t.Errorf("%q, %v, want %q", texts(values), err, want)
			}
		}
		log := f.nodes[nodeB].Log()
		for i, cmd := range log {
			if cmd.Name == "ASKING" && (log[i+1].Name != "MULTI" || log[i+1].Conn != cmd.Conn) {
				t.Errorf("behind ASKING came %v", log[i+1])
			}
		}
		f.wantCounts("ASKING", 0, 2, 0)
	})
}

// A transaction is repeated if its connection ends at ASKING, but not later.
func TestTxLosesItsConnection(t *testing.T) {
	bubble(t, cluster.Config{}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
		f.refuseTx(nodeA, fmt.Sprintf("-ASK %d %s", slotA, nodeB))
		end := "ASKING"
		f.hook(nodeB, func(cmd fakeredis.Cmd) *fakeredis.Action {
			if cmd.Name != end {
				return nil
			}
			act := fakeredis.RunThenClose()
			if end == "ASKING" {
				act = fakeredis.Close()
			}
			end = ""
			return &act
		})
		values, err := c.Tx(t.Context(), []resp.Command{resp.Cmd("INCR", keyA)})
		if texts(values) != "1" || err != nil {
			t.Errorf("lost at ASKING: %q, %v", texts(values), err)
		}
		end = "EXEC"
		if _, err := c.Tx(t.Context(), []resp.Command{resp.Cmd("INCR", keyA)}); !errors.Is(err, conn.ErrUncertain) {
			t.Errorf("lost at EXEC: %v", err)
		}
		f.wantCounts("EXEC", 3, 2, 0)
	})
}

func TestBatchUnderContext(t *testing.T) {
	bubble(t, cluster.Config{}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
		f.nodes[nodeB].Mute(true)
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		took(t, 300*time.Millisecond, 300*time.Millisecond, func() {
			values, err := c.SendBatch(ctx, []resp.Command{resp.Cmd("INCR", keyA), resp.Cmd("INCR", keyB), resp.Cmd("INCR", keyC)})
			if texts(values) != "1" || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%q, %v", texts(values), err)
			}
			all, _ := errors.AsType[*cluster.BatchError](err)
			if _, err := all.At(2); err != nil {
				t.Errorf("the node that answers: %v", err)
			}
		})
	})
}

// C23 in a batch: a redirection is not a reply.
func TestRedirectLoopInBatch(t *testing.T) {
	bubble(t, cluster.Config{MaxRedirects: 5}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
		f.answer(nodeA, "INCR", fmt.Sprintf("-MOVED %d %s", slotA, nodeB), 0)
		f.answer(nodeB, "INCR", fmt.Sprintf("-MOVED %d %s", slotA, nodeA), 0)
		took(t, 90*time.Millisecond, time.Second, func() {
			values, err := c.SendBatch(t.Context(), []resp.Command{resp.Cmd("INCR", keyA), resp.Cmd("GET", keyC)})
			all, ok := errors.AsType[*cluster.BatchError](err)
			if !ok || len(values) > 0 || !errors.Is(err, resp.ErrMoved) || !strings.Contains(err.Error(), "redirections") {
				t.Fatalf("%q, %v, want a BatchError", texts(values), err)
			}
			if v, err := all.At(1); err != nil || v.Err() != nil {
				t.Errorf("the command that was not redirected: %v, %v", v, err)
			}
		})
		if n := f.nodes[nodeA].Count("INCR") + f.nodes[nodeB].Count("INCR"); n != 6 {
			t.Errorf("sent %d times, want 6", n)
		}
	})
}

// A batch pauses if any command needs a pause, and commands without a key stay together.
func TestBatchIsRepeatedTogether(t *testing.T) {
	bubble(t, cluster.Config{}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
		f.answer(nodeA, "GET", fmt.Sprintf("-MOVED %d %s", slotA, nodeB), 1)
		f.answer(nodeC, "GET", "-TRYAGAIN x", 1)
		took(t, 4*time.Millisecond, 8*time.Millisecond, func() {
			if _, err := c.SendBatch(t.Context(), []resp.Command{resp.Cmd("GET", keyA), resp.Cmd("GET", keyC)}); err != nil {
				t.Error(err)
			}
		})
		f.wantCounts("GET", 1, 1, 2)
		echoes := make([]resp.Command, 5)
		for i := range echoes {
			echoes[i] = resp.Cmd("ECHO", "x")
		}
		for range 5 {
			for _, addr := range []string{nodeA, nodeB, nodeC} {
				f.answer(addr, "ECHO", "-LOADING x", 5)
			}
			if values, err := c.SendBatch(t.Context(), echoes); err != nil || len(values) != 5 {
				t.Errorf("%q, %v", texts(values), err)
			}
			for addr, s := range f.nodes {
				if n := s.Count("ECHO"); n%5 != 0 {
					t.Errorf("%s got %d of the commands without a key, want all or none each time", addr, n)
				}
			}
		}
	})
}

// A node is lost in a batch that ends in WAIT: the error comes with the replies before, also behind ASK.
func TestBatchLosesItsWait(t *testing.T) {
	for _, ask := range []bool{false, true} {
		bubble(t, cluster.Config{}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
			addr := nodeA
			if ask {
				addr = nodeB
				f.answer(nodeA, "SET", fmt.Sprintf("-ASK %d %s", slotA, nodeB), 2)
			}
			f.hook(addr, func(cmd fakeredis.Cmd) *fakeredis.Action {
				if cmd.Name != "WAIT" {
					return nil
				}
				act := fakeredis.Close()
				return &act
			})
			values, err := c.SendBatch(t.Context(), []resp.Command{resp.Cmd("SET", keyA, 1), resp.Cmd("SET", keyA, 2), resp.Cmd("WAIT", 1, 100)})
			if !errors.Is(err, conn.ErrUncertain) || texts(values) != "OK OK" {
				t.Errorf("SendBatch = %q, %v, want two replies and ErrUncertain", texts(values), err)
			}
		})
	}
}

// ran records the commands that nodes have executed, in order.
type ran struct {
	mu   sync.Mutex
	cmds []string
}

func (r *ran) add(cmd string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cmds = append(r.cmds, cmd)
}

// Nodes refuse some commands of a batch and execute later commands with the same key. The refused
// commands are not repeated.
func TestBatchKeepsTheOrderOfAKey(t *testing.T) {
	ask, moved := fmt.Sprintf("-ASK %d %s", slotA, nodeB), fmt.Sprintf("-MOVED %d %s", slotA, nodeB)
	one, two := "{"+keyA+"}1", "{"+keyA+"}2"
	set := func(key string, n int) resp.Command { return resp.Cmd("SET", key, n) }
	for name, test := range map[string]struct {
		cmds    []resp.Command
		answers []string // of node A, the first time; "" executes
		want    string
		ran     []string
	}{
		"in the middle": {[]resp.Command{set(one, 1), set(one, 2), set(one, 3)}, []string{"", "-TRYAGAIN", ""}, "OK TRYAGAIN OK",
			[]string{one + " 1", one + " 3"}},
		"at the end": {[]resp.Command{set(one, 1), set(one, 2), set(one, 3)}, []string{"", "-TRYAGAIN", "-LOADING"}, "OK OK OK",
			[]string{one + " 1", one + " 2", one + " 3"}},
		"of another key": {[]resp.Command{set(one, 1), set(two, 2), set(one, 3)}, []string{"", ask, ""}, "OK OK OK",
			[]string{one + " 1", one + " 3", two + " 2"}},
		"MOVED before": {[]resp.Command{set(one, 1), set(one, 2)}, []string{moved, ""}, "MOVED OK", []string{one + " 2"}},
		"ASK before":   {[]resp.Command{set(one, 1), set(one, 2)}, []string{ask, ""}, "ASK OK", []string{one + " 2"}},
		"one to another node, and the next not": {[]resp.Command{set(one, 1), set(one, 2)}, []string{ask, "-TRYAGAIN"}, "OK OK",
			[]string{one + " 1", one + " 2"}},
		"a second key in common": {
			[]resp.Command{resp.Cmd("MSET", one, 1, two, 1), set(two, 2)}, []string{"-TRYAGAIN", ""}, "TRYAGAIN OK", []string{two + " 2"}},
		"a key in common with what is held back": {
			[]resp.Command{set(one, 1), resp.Cmd("MSET", one, 2, two, 2), set(two, 3)}, []string{ask, "-TRYAGAIN", ask}, "OK OK OK",
			[]string{one + " 1", one + " 2", two + " 3"}},
		"the routing key": {[]resp.Command{resp.Cmd("SET", one, 1).On(two), resp.Cmd("ECHO", "x").On(two)}, []string{"-TRYAGAIN", ""},
			"TRYAGAIN x", []string{"x"}},
		"behind a command, without a key": {[]resp.Command{set(one, 1), resp.Cmd("ECHO", "x"), set(two, 2)}, []string{ask, "", ask},
			"OK x OK", []string{"x", one + " 1", two + " 2"}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, cluster.Config{}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
				var log ran
				left := slices.Clone(test.answers)
				hook := func(at string) func(fakeredis.Cmd) *fakeredis.Action {
					return func(cmd fakeredis.Cmd) *fakeredis.Action {
						if cmd.Name != "SET" && cmd.Name != "MSET" && cmd.Name != "ECHO" {
							return nil
						}
						if at == nodeA && len(left) > 0 {
							answer := left[0]
							if left = left[1:]; answer != "" {
								act := fakeredis.Reply(answer + "\r\n")
								return &act
							}
						}
						if cmd.Name == "ECHO" {
							log.add(cmd.Args[1])
						} else {
							log.add(cmd.Args[1] + " " + cmd.Args[2])
						}
						return nil
					}
				}
				f.hook(nodeA, hook(nodeA))
				f.hook(nodeB, hook(nodeB))
				values, err := c.SendBatch(t.Context(), test.cmds)
				if got := texts(values); err != nil || got != test.want {
					t.Errorf("%q, %v, want %q", got, err, test.want)
				}
				if !slices.Equal(log.cmds, test.ran) {
					t.Errorf("executed: %q, want %q", log.cmds, test.ran)
				}
			})
		})
	}
}

// A node refuses two commands with one key, and the repeated first one has no answer: it may still run. The second one is not
// repeated, because it might run before the first.
func TestBatchBehindAnUnansweredCommand(t *testing.T) {
	bubble(t, cluster.Config{}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
		f.hook(nodeA, func(cmd fakeredis.Cmd) *fakeredis.Action {
			act := fakeredis.Reply(fmt.Sprintf("-MOVED %d ?:1\r\n", slotA))
			if cmd.Name == "SET" && cmd.N == 1 {
				act = fakeredis.Reply(fmt.Sprintf("-MOVED %d %s\r\n", slotA, nodeB))
			} else if cmd.Name != "SET" || cmd.N > 2 {
				return nil
			}
			return &act
		})
		f.hook(nodeB, func(cmd fakeredis.Cmd) *fakeredis.Action {
			if cmd.Name != "SET" {
				return nil
			}
			act := fakeredis.Close()
			return &act
		})
		_, err := c.SendBatch(t.Context(), []resp.Command{resp.Cmd("SET", keyA, "1"), resp.Cmd("SET", keyA, "2")})
		if _, first := conn.Outcome(nil, err, 0); !errors.Is(first, conn.ErrUncertain) {
			t.Errorf("the first command: %v, want %v", first, conn.ErrUncertain)
		}
		if second, failed := conn.Outcome(nil, err, 1); failed != nil || !errors.Is(second.Err(), resp.ErrMoved) {
			t.Errorf("the second command: %v, %v; want its refusal", second, failed)
		}
		f.wantCounts("SET", 2, 1, 0)
	})
}

// Nodes refuse at random. Commands with a common key are executed in order, each at most once, and
// every executed command has an answer.
func TestBatchOrderAtRandom(t *testing.T) {
	seed := rand.Uint64()
	for round := range uint64(100) {
		bubble(t, cluster.Config{Node: conn.Config{Retry: conn.Retry{Budget: time.Second}}}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
			rnd := rand.New(rand.NewPCG(seed, round))
			refusals := []string{"-TRYAGAIN", "-LOADING", "-CLUSTERDOWN", fmt.Sprintf("-ASK %d %s", slotA, nodeB),
				fmt.Sprintf("-ASK %d %s", slotA, nodeC), fmt.Sprintf("-MOVED %d %s", slotA, nodeB), fmt.Sprintf("-MOVED %d %s", slotA, nodeA)}
			var mu sync.Mutex
			var order []int
			for _, addr := range []string{nodeA, nodeB, nodeC} {
				f.hook(addr, func(cmd fakeredis.Cmd) *fakeredis.Action {
					if cmd.Name != "MSET" {
						return nil
					}
					mu.Lock()
					defer mu.Unlock()
					if rnd.IntN(2) == 0 {
						act := fakeredis.Reply(refusals[rnd.IntN(len(refusals))] + "\r\n")
						return &act
					}
					n, _ := strconv.Atoi(cmd.Args[2])
					order = append(order, n)
					return nil
				})
			}
			var cmds []resp.Command
			var keys [][]string
			for i := range 12 {
				key, other := fmt.Sprintf("{%s}%d", keyA, rnd.IntN(4)), fmt.Sprintf("{%s}%d", keyA, rnd.IntN(4))
				cmds, keys = append(cmds, resp.Cmd("MSET", key, i, other, i)), append(keys, []string{key, other})
			}
			values, _ := c.SendBatch(t.Context(), cmds) // without commands redirected until the end of the budget
			last := map[string]int{}
			seen := map[int]bool{}
			for _, n := range order {
				for _, key := range keys[n] {
					if at, ok := last[key]; ok && at > n || seen[n] {
						t.Fatalf("seed %d, round %d: executed in the order %v, of keys %v", seed, round, order, keys)
					}
					last[key] = n
				}
				seen[n] = true
			}
			for i, v := range values {
				if (v.Err() == nil) != seen[i] {
					t.Errorf("seed %d, round %d: command %d: %v, executed %v", seed, round, i, v.Err(), seen[i])
				}
			}
		})
	}
}
