package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockwire/lockwire/cluster"
	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/resp"
	"github.com/lockwire/lockwire/script"
)

func TestCommandsGoToTheirNodes(t *testing.T) {
	bubble(t, cluster.Config{}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
		for _, key := range []string{keyA, keyB, keyC, keyC} {
			wantText(t, c, "OK", "SET", key, key)
			wantText(t, c, key, "GET", key)
		}
		f.wantCounts("SET", 1, 1, 2)
		f.wantCounts("GET", 1, 1, 2)
		if _, err := c.Send(t.Context(), resp.Cmd("ECHO", "x").On(keyB)); err != nil {
			t.Error(err)
		}
		f.wantCounts("ECHO", 0, 1, 0)
		for range 50 {
			wantText(t, c, "PONG", "PING")
		}
		for _, addr := range []string{nodeA, nodeB, nodeC} {
			if f.nodes[addr].Count("PING") == 0 {
				t.Errorf("%s got none of 50 PING", addr)
			}
			if n := f.dials(addr); n != 1 && addr != nodeA || n > 2 { // nodeA is the seed too
				t.Errorf("%s was dialled %d times", addr, n)
			}
		}
		if _, err := c.Do(t.Context(), "SCAN", 0); !errors.Is(err, conn.ErrRefused) || !errors.Is(err, conn.ErrNotSent) {
			t.Errorf("SCAN: %v, want a refusal", err)
		}
		if _, err := c.Do(t.Context(), "GET", time.Second); !errors.Is(err, conn.ErrRefused) {
			t.Errorf("a duration: %v, want a refusal", err)
		}
		took(t, 0, 0, func() {
			if _, err := c.Do(t.Context(), "BLPOP", keyA, 0); !errors.Is(err, conn.ErrRefused) {
				t.Errorf("BLPOP: %v, want a refusal", err)
			}
		})
		if got := c.Stats(); got.Masters != 3 || got.Slots != cluster.Slots || got.Retries != 0 || got.Refreshes != 1 {
			t.Errorf("Stats = %+v", got)
		}
	})
}

// C11, C24 without a map: the Cluster follows the reply, patches the slot and refreshes the
// topology.
func TestMoved(t *testing.T) {
	bubble(t, cluster.Config{}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
		f.nodes[nodeB].Do("SET", keyA, "moved")
		f.answer(nodeA, "GET", fmt.Sprintf("-MOVED %d %s", slotA, nodeB), 0)
		took(t, 0, 0, func() { wantText(t, c, "moved", "GET", keyA) })
		wantText(t, c, "moved", "GET", keyA)
		f.wantCounts("GET", 1, 2, 0) // C11: the second one knew
		synctest.Wait()
		time.Sleep(time.Second)
		if n := f.refreshes(); n != 2 {
			t.Errorf("the topology was asked for %d times, want 2", n)
		}
		wantText(t, c, "moved", "GET", keyA) // the topology counts again
		f.wantCounts("GET", 2, 3, 0)
		if got := c.Stats(); got.Moved != 2 || got.Retries != 2 {
			t.Errorf("Stats = %+v, want 2 Moved and Retries", got)
		}
	})
}

// The next command goes to the named node at once, too, if no topology has named the node yet.
func TestMovedToANewNode(t *testing.T) {
	bubble(t, cluster.Config{}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
		const nodeD = "10.0.0.4:7004"
		f.add(nodeD).Do("SET", keyA, "moved")
		f.answer(nodeA, "GET", fmt.Sprintf("-MOVED %d %s", slotA, nodeD), 0)
		took(t, 0, 0, func() {
			wantText(t, c, "moved", "GET", keyA)
			wantText(t, c, "moved", "GET", keyA)
		})
		f.wantCounts("GET", 1, 0, 0)
	})
}

func TestMovedHosts(t *testing.T) {
	tests := []struct{ name, host, alias string }{
		{"C12", "", "10.0.0.1:7002"}, // the host of the node that answered
		{"C15", "node1.example", "node1.example:7002"},
		{"C14", "2001:db8::1", "[2001:db8::1]:7002"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			bubble(t, cluster.Config{}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
				f.alias[test.alias] = nodeB
				f.nodes[nodeB].Do("SET", keyA, "moved")
				f.answer(nodeA, "GET", fmt.Sprintf("-MOVED %d %s:7002", slotA, test.host), 0)
				wantText(t, c, "moved", "GET", keyA)
				if n := f.dials(test.alias); n != 1 {
					t.Errorf("%s was dialled %d times, want once", test.alias, n)
				}
			})
		})
	}
}

// C13: MOVED without an address to dial. The topology names the owner.
func TestMovedToNobody(t *testing.T) {
	bubble(t, cluster.Config{}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
		f.nodes[nodeB].Do("SET", keyA, "moved")
		f.answer(nodeA, "GET", fmt.Sprintf("-MOVED %d ?:7002", slotA), 0)
		f.serve(fakeRange{0, 10922, nodeB}, fakeRange{10923, 16383, nodeC})
		took(t, 0, 100*time.Millisecond, func() { wantText(t, c, "moved", "GET", keyA) })
		f.wantCounts("GET", 1, 1, 0)
	})
}

// C16: a node that redirects to itself is redialled once.
func TestMovedToItself(t *testing.T) {
	bubble(t, cluster.Config{}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
		wantText(t, c, "OK", "SET", keyA, "here")
		before := f.dials(nodeA)
		f.answer(nodeA, "GET", fmt.Sprintf("-MOVED %d %s", slotA, nodeA), 1)
		wantText(t, c, "here", "GET", keyA)
		if n := f.dials(nodeA) - before; n != 1 {
			t.Errorf("C16: dialled %d times, want once", n)
		}
		wantText(t, c, "here", "GET", keyA)
		if got := c.Stats(); got.Retries != 1 {
			t.Errorf("C16: %d retries, want that the next call knows", got.Retries)
		}
		time.Sleep(time.Second)
		if n := len(f.nodes[nodeA].Conns()); n != 1 {
			t.Errorf("%d connections, want that the old one is closed", n)
		}
		before = f.dials(nodeA)
		f.answer(nodeA, "GET", fmt.Sprintf("-MOVED %d %s", slotA, nodeA), 0)
		_, err := c.Do(t.Context(), "GET", keyA)
		if !errors.Is(err, resp.ErrMoved) {
			t.Errorf("C16: for ever: %v, want MOVED", err)
		}
		if n := f.dials(nodeA) - before; n > 2 {
			t.Errorf("C16: for ever: dialled %d times", n)
		}
	})
}

func TestMovedWithoutSense(t *testing.T) {
	for _, text := range []string{"MOVED", "MOVED x", "MOVED 99999 a:1", "MOVED 1 a", "MOVED 1 a:99999"} {
		t.Run("C17 "+text, func(t *testing.T) {
			bubble(t, cluster.Config{}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
				f.answer(nodeA, "GET", "-"+text, 0)
				if _, err := c.Do(t.Context(), "GET", keyA); err != resp.Error(text) {
					t.Errorf("%v, want the server's error", err)
				}
				f.wantCounts("GET", 1, 0, 0)
			})
		})
	}
}

// C23: two nodes redirect to each other.
func TestRedirectLoop(t *testing.T) {
	for _, kind := range []string{"MOVED", "ASK"} {
		bubble(t, cluster.Config{MaxRedirects: 5}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
			f.answer(nodeA, "INCR", fmt.Sprintf("-%s %d %s", kind, slotA, nodeB), 0)
			f.answer(nodeB, "INCR", fmt.Sprintf("-%s %d %s", kind, slotA, nodeA), 0)
			took(t, 90*time.Millisecond, time.Second, func() {
				_, err := c.Do(t.Context(), "INCR", keyA)
				if !errors.Is(err, resp.Error(kind)) || !strings.Contains(err.Error(), "redirections") || conn.SafeToRetry(err) {
					t.Errorf("C23: %v", err)
				}
			})
			if n := f.nodes[nodeA].Count("INCR") + f.nodes[nodeB].Count("INCR"); n != 6 {
				t.Errorf("C23: sent %d times, want 6", n)
			}
		})
	}
}

func TestAsk(t *testing.T) {
	bubble(t, cluster.Config{}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
		f.nodes[nodeB].Do("SET", keyA, "new")
		f.answer(nodeA, "GET", fmt.Sprintf("-ASK %d %s", slotA, nodeB), 0)
		took(t, 0, 0, func() {
			wantText(t, c, "new", "GET", keyA)
			wantText(t, c, "new", "GET", keyA)
		})
		f.wantCounts("GET", 2, 2, 0) // the slot has not moved
		f.wantCounts("ASKING", 0, 2, 0)
		wantAskingAdjacent(t, f.nodes[nodeB])
		if got := c.Stats(); got.Asked != 2 || got.Moved != 0 {
			t.Errorf("Stats = %+v, want 2 Asked", got)
		}
	})
}

// wantAskingAdjacent checks that each ASKING immediately precedes a command on the same connection.
func wantAskingAdjacent(t *testing.T, s *fakeredis.Server) {
	t.Helper()
	log := s.Log()
	for i, cmd := range log {
		if cmd.Name == "ASKING" && (i+1 == len(log) || log[i+1].Conn != cmd.Conn || log[i+1].Name == "ASKING") {
			t.Errorf("ASKING is not adjacent to its command: %v", log[i:])
		}
	}
}

// B26: a push between ASKING and the reply, and between two replies.
func TestPushBetweenReplies(t *testing.T) {
	var pushed []string
	cfg := cluster.Config{Node: conn.Config{OnPush: func(v resp.Value) {
		text, _ := v.At(0).Text()
		pushed = append(pushed, text)
	}}}
	synctestRESP3(t, cfg, func(t *testing.T, f *fakes, c *cluster.Cluster) {
		f.nodes[nodeB].Do("SET", keyA, "new")
		f.answer(nodeA, "GET", fmt.Sprintf("-ASK %d %s", slotA, nodeB), 0)
		f.hook(nodeB, func(cmd fakeredis.Cmd) *fakeredis.Action {
			if cmd.Name != "ASKING" {
				return nil
			}
			act := fakeredis.Reply(">1\r\n$5\r\nfirst\r\n+OK\r\n>1\r\n$6\r\nsecond\r\n")
			return &act
		})
		wantText(t, c, "new", "GET", keyA)
		values, err := c.SendBatch(t.Context(), []resp.Command{resp.Cmd("GET", keyA), resp.Cmd("STRLEN", keyB)})
		if err != nil || len(values) != 2 {
			t.Fatalf("B26: %d replies, %v", len(values), err)
		}
		if text, _ := values[0].Text(); text != "new" {
			t.Errorf("B26: %q, want the reply to the command", text)
		}
		synctest.Wait()
		if want := []string{"first", "second", "first", "second"}; !slices.Equal(pushed, want) {
			t.Errorf("B26: pushes %q, want %q", pushed, want)
		}
	})
}

// The pushes of two nodes come one after the other.
func TestPushesOfTwoNodes(t *testing.T) {
	calls, inside := 0, false
	cfg := cluster.Config{Node: conn.Config{OnPush: func(resp.Value) {
		if inside {
			t.Error("two calls of OnPush at once")
		}
		calls, inside = calls+1, true
		time.Sleep(time.Second)
		inside = false
	}}}
	synctestRESP3(t, cfg, func(t *testing.T, f *fakes, c *cluster.Cluster) {
		for _, addr := range []string{nodeA, nodeB} {
			f.answer(addr, "GET", ">1\r\n+push\r\n+value", 0)
		}
		wantText(t, c, "value", "GET", keyA)
		wantText(t, c, "value", "GET", keyB)
		time.Sleep(time.Minute)
		synctest.Wait()
		if calls != 2 {
			t.Errorf("%d calls of OnPush, want 2", calls)
		}
	})
}

// synctestRESP3 is bubble in RESP3 only.
func synctestRESP3(t *testing.T, cfg cluster.Config, fn func(t *testing.T, f *fakes, c *cluster.Cluster)) {
	t.Helper()
	bareBubble(t, func(t *testing.T, f *fakes, proto int) {
		if proto == 3 {
			cfg.Addrs = []string{nodeA}
			fn(t, f, f.open(cfg))
		}
	})
}

// B34: TRYAGAIN starts again at the owner, with growing pauses.
func TestTryAgain(t *testing.T) {
	bubble(t, cluster.Config{}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
		f.answer(nodeA, "MGET", "-TRYAGAIN Multiple keys request during rehashing of slot", 5)
		took(t, 124*time.Millisecond, 248*time.Millisecond, func() { // 8 + 16 + 32 + 64 + 128 ms, or half of it
			if _, err := c.Do(t.Context(), "MGET", keyA); err != nil {
				t.Errorf("B34: %v", err)
			}
		})
		f.wantCounts("MGET", 6, 0, 0)

		f.answer(nodeA, "MGET", "-TRYAGAIN Multiple keys request during rehashing of slot", 0)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		took(t, 100*time.Millisecond, 100*time.Millisecond, func() {
			_, err := c.Do(ctx, "MGET", keyA)
			if !errors.Is(err, context.DeadlineExceeded) || !conn.SafeToRetry(err) || !strings.Contains(err.Error(), "TRYAGAIN") {
				t.Errorf("B34: %v, want the end of ctx and that nothing has run", err)
			}
		})
		took(t, 4*time.Second, 6*time.Second, func() {
			if _, err := c.Do(t.Context(), "MGET", keyA); !errors.Is(err, resp.ErrTryAgain) {
				t.Errorf("B34: %v, want the last answer", err)
			}
		})
		if n := f.nodes[nodeA].Count("MGET"); n > 40 {
			t.Errorf("B34: %d attempts", n)
		}
	})
}

// During a migration of both keys: ASK, then TRYAGAIN at the target, then ASK again.
func TestTryAgainBehindAsk(t *testing.T) {
	bubble(t, cluster.Config{}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
		f.answer(nodeA, "MGET", fmt.Sprintf("-ASK %d %s", slotA, nodeB), 0)
		f.answer(nodeB, "MGET", "-TRYAGAIN Multiple keys request during rehashing of slot", 2)
		if _, err := c.Do(t.Context(), "MGET", keyA); err != nil {
			t.Error(err)
		}
		f.wantCounts("MGET", 3, 3, 0) // each time from the owner on
		f.wantCounts("ASKING", 0, 3, 0)
	})
}

func TestWhatTheServerDidNotRunIsRepeated(t *testing.T) {
	for _, text := range []string{"CLUSTERDOWN Hash slot not served", "LOADING Redis is loading", "MASTERDOWN Link is down",
		"READONLY You can't write against a read only replica.", "NOREPLICAS Not enough", "BUSY Redis is busy",
		"ERR max number of clients reached"} {
		bubble(t, cluster.Config{}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
			f.answer(nodeA, "INCR", "-"+text, 3)
			took(t, 28*time.Millisecond, 56*time.Millisecond, func() { wantText(t, c, "1", "INCR", keyA) })
			f.wantCounts("INCR", 4, 0, 0)
			f.nodes[nodeA].ClearLog()
			f.answer(nodeA, "INCR", "-"+text, 3)
			values, err := c.SendBatch(t.Context(), []resp.Command{resp.Cmd("INCR", keyA), resp.Cmd("INCR", keyB)})
			if err != nil || values[0].Err() != nil || values[1].Err() != nil {
				t.Errorf("%s in a batch: %v, %v", text, values, err)
			}
			f.wantCounts("INCR", 4, 1, 0)
		})
	}
}

// The Cluster asks a node after CLUSTERDOWN again at short intervals, for as long as the budget
// lasts.
func TestClusterIsUpAgain(t *testing.T) {
	for _, down := range []time.Duration{time.Second, 4500 * time.Millisecond} {
		bubble(t, cluster.Config{}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
			f.answer(nodeA, "INCR", "-CLUSTERDOWN The cluster is down", 0)
			time.AfterFunc(down, func() { f.hook(nodeA, nil) })
			took(t, down, down+64*time.Millisecond, func() {
				if _, err := c.Do(t.Context(), "INCR", keyA); err != nil {
					t.Error(err)
				}
			})
			f.answer(nodeA, "INCR", "-CLUSTERDOWN The cluster is down", 0)
			time.AfterFunc(down, func() { f.hook(nodeA, nil) })
			took(t, down, down+64*time.Millisecond, func() {
				values, err := c.SendBatch(t.Context(), []resp.Command{resp.Cmd("INCR", keyB), resp.Cmd("INCR", keyA)})
				if err != nil || values[1].Err() != nil {
					t.Error(values, err)
				}
			})
		})
	}
}

// A command sent without an answer is never sent again, on any node.
func TestUncertainIsNotRepeated(t *testing.T) {
	bubble(t, cluster.Config{}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
		f.hook(nodeA, func(cmd fakeredis.Cmd) *fakeredis.Action {
			if cmd.Name != "INCR" {
				return nil
			}
			act := fakeredis.RunThenClose()
			return &act
		})
		_, err := c.Do(t.Context(), "INCR", keyA)
		if !errors.Is(err, conn.ErrUncertain) || conn.SafeToRetry(err) {
			t.Errorf("%v, want ErrUncertain", err)
		}
		time.Sleep(time.Minute)
		f.wantCounts("INCR", 1, 0, 0)
		if got := f.nodes[nodeA].Do("GET", keyA); got != "1" {
			t.Errorf("the counter is %v", got)
		}
	})
}

// B13: NOSCRIPT behind MOVED is handled at the new node.
func TestScriptBehindMoved(t *testing.T) {
	bubble(t, cluster.Config{}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
		s := script.New("return 'ran'")
		for _, srv := range f.nodes {
			srv.Script(s.Source(), func(*fakeredis.Call) any { return "ran" })
		}
		moved := fakeredis.Reply(fmt.Sprintf("-MOVED %d %s\r\n", slotA, nodeB))
		f.hook(nodeA, func(cmd fakeredis.Cmd) *fakeredis.Action {
			if strings.HasPrefix(cmd.Name, "EVAL") {
				return &moved
			}
			return nil
		})
		for range 2 {
			v, err := s.Run(t.Context(), c, []string{keyA})
			if text, _ := v.Text(); err != nil || text != "ran" {
				t.Errorf("B13: %q, %v", text, err)
			}
		}
		f.wantCounts("EVALSHA", 1, 2, 0)
		f.wantCounts("EVAL", 0, 1, 0)
	})
}

// A call on two keys of a migrating slot is redirected back and forth until both keys have arrived.
// The redirections are not a loop.
func TestKeysMoveOneByOne(t *testing.T) {
	bubble(t, cluster.Config{}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
		f.answer(nodeA, "DEL", fmt.Sprintf("-ASK %d %s", slotA, nodeB), 0)
		f.answer(nodeB, "DEL", "-TRYAGAIN Multiple keys request during rehashing of slot", 12)
		if _, err := c.Do(t.Context(), "DEL", keyA, "{"+keyA+"}2"); err != nil {
			t.Error(err)
		}
		f.wantCounts("DEL", 13, 13, 0)
		f.answer(nodeB, "EXISTS", "-TRYAGAIN Multiple keys request during rehashing of slot", 12)
		f.answer(nodeA, "EXISTS", fmt.Sprintf("-ASK %d %s", slotA, nodeB), 0)
		values, err := c.SendBatch(t.Context(), []resp.Command{resp.Cmd("EXISTS", keyA, keyA), resp.Cmd("ECHO", "x")})
		if texts(values) != "0 x" || err != nil {
			t.Errorf("in a batch: %q, %v", texts(values), err)
		}
		wantAskingAdjacent(t, f.nodes[nodeB])
	})
}

// After a pause, a call goes to the owner according to the latest table, not to the node in the
// earlier reply.
func TestMovedAfterPause(t *testing.T) {
	bubble(t, cluster.Config{}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
		f.nodes[nodeC].Do("SET", keyA, "here")
		f.serve(fakeRange{0, 10922, nodeC}, fakeRange{10923, 16383, nodeC})
		f.answer(nodeA, "GET", fmt.Sprintf("-MOVED %d %s", slotA, nodeB), 0)
		f.answer(nodeB, "GET", fmt.Sprintf("-MOVED %d %s", slotA, nodeA), 0)
		wantText(t, c, "here", "GET", keyA)
	})
	// But the call does not go to a node that has just denied being the owner, whatever the
	// topology says.
	bubble(t, cluster.Config{}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
		f.nodes[nodeB].Do("SET", keyA, "moved")
		f.answer(nodeA, "GET", fmt.Sprintf("-MOVED %d %s", slotA, nodeB), 0)
		f.answer(nodeB, "GET", fmt.Sprintf("-MOVED %d %s", slotA, nodeA), 3)
		wantText(t, c, "moved", "GET", keyA)
		f.wantCounts("GET", 4, 4, 0)
	})
}

// command encodes words separated by spaces; ” is an empty one.
func command(text string) resp.Command {
	words := strings.Fields(text)
	for i, w := range words {
		if w == "''" {
			words[i] = ""
		}
	}
	return resp.CmdStrings(words)
}

func TestRoute(t *testing.T) {
	const none = "(none)"
	tests := []struct{ command, key string }{
		{"GET KEY", "KEY"}, {"get KEY", "KEY"}, {"SET KEY v", "KEY"}, {"MGET KEY other", "KEY"}, {"DEL KEY other", "KEY"},
		{"HSET KEY f v", "KEY"}, {"SPUBLISH KEY m", "KEY"}, {"SSUBSCRIBE KEY", "KEY"}, {"WATCH KEY", "KEY"},
		{"ZINTERSTORE KEY 2 a b", "KEY"}, {"GEORADIUSBYMEMBER_RO KEY m 1 km", "KEY"}, {"JSON.GET KEY", "KEY"},
		{"SOMECOMMANDWITHAVERYLONGNAME KEY", "KEY"}, {"SORT KEY BY a", "KEY"}, {"COPY KEY b", "KEY"},
		{"EVAL script 1 KEY a", "KEY"}, {"EVALSHA sha 2 KEY b a", "KEY"}, {"EVALSHA_RO sha 1 KEY", "KEY"},
		{"eval_ro script 1 KEY", "KEY"}, {"FCALL f 1 KEY a", "KEY"}, {"FCALL_RO f 1 KEY", "KEY"},
		{"EVAL script 0 a", none}, {"EVAL script", none}, {"EVAL script -1 a", none}, {"EVAL script 1", none},
		{"EVAL script 99999999999999999999 a", none},
		{"ZUNION 2 KEY b", "KEY"}, {"SINTERCARD 1 KEY", "KEY"}, {"LMPOP 1 KEY LEFT", "KEY"}, {"ZMPOP 1 KEY MIN", "KEY"},
		{"ZDIFF 1 KEY", "KEY"}, {"ZINTER 1 KEY", "KEY"}, {"ZINTERCARD 1 KEY", "KEY"}, {"MSETEX 1 KEY v", "KEY"},
		{"BLMPOP 1 1 KEY LEFT", "KEY"}, {"BZMPOP 0 1 KEY MIN", "KEY"},
		{"XREAD STREAMS KEY 0", "KEY"}, {"XREAD COUNT 5 BLOCK 0 streams KEY b 0 0", "KEY"}, {"XREAD COUNT 5", none},
		{"XREADGROUP GROUP STREAMS STREAMS STREAMS KEY >", "KEY"},
		{"XADD KEY * f v", "KEY"}, {"XGROUP CREATE KEY g $", "KEY"}, {"XINFO STREAM KEY", "KEY"}, {"XINFO HELP", none},
		{"OBJECT ENCODING KEY", "KEY"}, {"MEMORY USAGE KEY", "KEY"}, {"MEMORY DOCTOR", none}, {"BITOP AND KEY a b", "KEY"},
		{"DEBUG OBJECT KEY", "KEY"}, {"PFDEBUG ENCODING KEY", "KEY"},
		{"MIGRATE host 1 KEY 0 100", "KEY"}, {"MIGRATE host 1 '' 0 100 COPY KEYS KEY b", "KEY"},
		{"MIGRATE host 1 '' 0 100 AUTH KEYS KEYS KEY b", "KEY"}, {"MIGRATE host 1 '' 0 100 AUTH2 KEYS KEYS KEYS KEY", "KEY"},
		{"MIGRATE host 1 '' 0 100", none},
		{"PING", none}, {"PING text", none}, {"ECHO text", none}, {"PUBLISH channel m", none}, {"SCRIPT LOAD s", none},
		{"INFO all", none}, {"CLUSTER KEYSLOT a", none}, {"CONFIG GET a", none}, {"TIME", none}, {"WAIT 1 0", none},
		{"GET", none}, {"ACL WHOAMI", none}, {"PUBSUB SHARDNUMSUB c", none}, {"FUNCTION LIST", none},
	}
	for _, test := range tests {
		want := -1
		if test.key != none {
			want = cluster.Slot(test.key)
		}
		got, err := cluster.RouteOf(command(test.command))
		if err != nil || got != want {
			t.Errorf("%s goes to slot %d, %v, want %d (%s)", test.command, got, err, want, test.key)
		}
		if got, err := cluster.RouteOf(command(test.command).On("other")); err != nil || got != cluster.Slot("other") {
			t.Errorf("%s on another key goes to slot %d, %v", test.command, got, err)
		}
	}
}

func TestRouteRefuses(t *testing.T) {
	for _, text := range []string{"SCAN 0", "KEYS *", "DBSIZE", "randomkey", "FLUSHALL", "FLUSHDB ASYNC", "SWAPDB 0 1", "ASKING"} {
		if slot, err := cluster.RouteOf(command(text)); err == nil {
			t.Errorf("%s goes to slot %d, want an error", text, slot)
		}
	}
	if slot, err := cluster.RouteOf(command("SCAN 0").On("foo")); err != nil || slot != 12182 {
		t.Errorf("SCAN on a key goes to slot %d, %v", slot, err)
	}
}

// Whatever the words, a route is a slot, and the slot of a word in the command.
func FuzzRoute(f *testing.F) {
	for _, seed := range []string{"EVAL s 1 k", "XREAD STREAMS a 0", "MIGRATE h 1 '' 0 1 KEYS a", "GET {a}", "BLMPOP 1 1"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		cmd := command(text)
		if cmd.Err() != nil {
			return
		}
		slot, err := cluster.RouteOf(cmd)
		if err != nil || slot == -1 {
			return
		}
		for word := range cmd.Args() {
			if cluster.Slot(word) == slot {
				return
			}
		}
		t.Errorf("%q goes to slot %d, which is that of no word", text, slot)
	})
}

// With conn.NoRepeat a refusal is the outcome, and holds up no other command, even if it leads to a node that hangs.
func TestNoRepeat(t *testing.T) {
	for _, reply := range []string{"MOVED 1711 10.0.0.2:7002", "ASK 1711 10.0.0.2:7002", "CLUSTERDOWN Hash slot not served", "TRYAGAIN later",
		"LOADING busy", "READONLY You can't write against a read only replica."} {
		bubble(t, cluster.Config{}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
			f.nodes[nodeB].Mute(true)
			refusal := fakeredis.Reply("-" + reply + "\r\n")
			f.hook(nodeA, func(cmd fakeredis.Cmd) *fakeredis.Action {
				if len(cmd.Args) > 1 && cmd.Args[1] == keyA {
					return &refusal
				}
				return nil
			})
			ctx := context.WithValue(t.Context(), conn.NoRepeat, true)
			word, _, _ := strings.Cut(reply, " ")
			cmds := []resp.Command{resp.Cmd("INCR", "{mylock}2"), resp.Cmd("INCR", keyA), resp.Cmd("INCR", "{mylock}3")}
			took(t, 0, 0, func() {
				if values, err := c.SendBatch(ctx, cmds); err != nil || texts(values) != "1 "+word+" 1" {
					t.Errorf("%s: %q, %v", reply, texts(values), err)
				}
			})
			owner := map[bool]string{true: nodeB, false: nodeA}[word == "MOVED"]
			if got := c.Route(keyA); got != owner {
				t.Errorf("after %s the owner is %s, want %s", reply, got, owner)
			}
		})
		bubble(t, cluster.Config{}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
			f.answer(nodeA, "INCR", "-"+reply, 0)
			ctx := context.WithValue(t.Context(), conn.NoRepeat, true)
			_, err := c.Send(ctx, resp.Cmd("INCR", keyA))
			values, together := c.SendBatch(ctx, waiting(resp.Cmd("INCR", keyA), resp.Cmd("INCR", keyA)))
			if word, _, _ := strings.Cut(reply, " "); !strings.HasPrefix(fmt.Sprint(err), word) {
				t.Errorf("%s: %v", reply, err)
			} else if word != "MOVED" && (together != nil || texts(values) != word+" "+word+" 0") { // after MOVED the batch goes to the new owner
				t.Errorf("%s before WAIT: %q, %v", reply, texts(values), together)
			}
		})
	}
}
