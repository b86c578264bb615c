package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockwire/lockwire/cluster"
	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/resp"
	"github.com/lockwire/lockwire/script"
)

// B33: a redirection to a node that cannot be reached. When the budget or the context ends the
// call, the error contains the reason why the redirection failed, and nothing has run.
func TestRedirectedToADeadEnd(t *testing.T) {
	dead := map[string]func(f *fakes){
		"refused": func(f *fakes) { f.nodes[nodeB].Refuse(true) },
		"mute":    func(f *fakes) { f.nodes[nodeB].Mute(true) },
	}
	calls := map[string]func(ctx context.Context, c *cluster.Cluster) error{
		"Do": ways["Do"],
		"Tx": ways["Tx"],
		"SendBatch": func(ctx context.Context, c *cluster.Cluster) error {
			values, err := c.SendBatch(ctx, []resp.Command{resp.Cmd("INCR", keyA), resp.Cmd("INCR", keyA)})
			if len(values) > 0 {
				t.Errorf("replies %q", texts(values))
			}
			return err
		},
	}
	limits := []time.Duration{time.Minute, 3 * time.Second, 700 * time.Millisecond, 100 * time.Millisecond}
	for _, kind := range []string{"ASK", "MOVED"} {
		for reason, kill := range dead {
			for name, call := range calls {
				for _, limit := range limits {
					t.Run(fmt.Sprint(kind, "/", reason, "/", name, "/", limit), func(t *testing.T) {
						bubble(t, cluster.Config{}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
							refusal := fmt.Sprintf("-%s %d %s", kind, slotA, nodeB)
							if f.answer(nodeA, "INCR", refusal, 0); name == "Tx" {
								f.refuseTx(nodeA, refusal)
							}
							kill(f)
							ctx, cancel := context.WithTimeout(t.Context(), limit)
							defer cancel()
							took(t, 0, 8*time.Second, func() { wantDeadEnd(t, call(ctx, c), reason, limit) })
						})
					})
				}
			}
		}
	}
}

func wantDeadEnd(t *testing.T, err error, reason string, limit time.Duration) {
	t.Helper()
	switch {
	case limit < time.Minute && errors.Is(err, conn.ErrUncertain) && errors.Is(err, context.DeadlineExceeded):
		// The context ended while the node that redirects was asked once more.
	case !conn.SafeToRetry(err):
		t.Errorf("%v: not safe to retry", err)
	case reason == "refused" && !errors.Is(err, syscall.ECONNREFUSED), reason == "mute" && !errors.Is(err, context.DeadlineExceeded):
		t.Errorf("%v: without the reason", err)
	case limit < time.Minute && !errors.Is(err, context.DeadlineExceeded):
		t.Errorf("%v: without the end of the context", err)
	}
}

// After a redirection to a node that is not ready, the error also contains the node's reason.
func TestRedirectedToANodeThatLoads(t *testing.T) {
	bubble(t, cluster.Config{}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
		f.answer(nodeA, "INCR", fmt.Sprintf("-ASK %d %s", slotA, nodeB), 0)
		f.answer(nodeB, "INCR", "-LOADING busy", 0)
		for range 20 {
			if _, err := c.Do(t.Context(), "INCR", keyA); !errors.Is(err, resp.ErrLoading) {
				t.Errorf("%v, want LOADING", err)
			}
		}
	})
}

// A redirection is never a value of a batch without an error, whatever other nodes answer: the
// redirection is followed until an error ends the call.
func TestRedirectIsNoReplyOfABatch(t *testing.T) {
	for _, kind := range []string{"ASK", "MOVED"} {
		for _, limit := range []time.Duration{time.Minute, 50 * time.Millisecond} {
			bubble(t, cluster.Config{}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
				ask := fakeredis.Reply(fmt.Sprintf("-%s %d %s\r\n", kind, slotA, nodeB))
				f.hook(nodeA, func(cmd fakeredis.Cmd) *fakeredis.Action {
					if cmd.Name == "INCRBY" && strings.ContainsAny(cmd.Args[2], "25") {
						return &ask
					}
					return nil
				})
				f.nodes[nodeB].Refuse(true)
				var cmds []resp.Command
				for i := range 8 {
					cmds = append(cmds, resp.Cmd("INCRBY", fmt.Sprintf("{%s}%d", keyA, i), i))
				}
				cmds = append(cmds, resp.Cmd("INCRBY", keyC, 9))
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				defer cancel()
				values, err := c.SendBatch(ctx, cmds)
				all, ok := errors.AsType[*cluster.BatchError](err)
				if !ok || texts(values) != "0 1" {
					t.Fatalf("%q, %v, want a BatchError", texts(values), err)
				}
				for i := range cmds {
					v, err := all.At(i)
					switch i {
					case 2, 5:
						if !conn.SafeToRetry(err) || !errors.Is(err, syscall.ECONNREFUSED) {
							t.Errorf("command %d: %v, %v", i, v, err)
						}
					default:
						if err != nil || v.Err() != nil {
							t.Errorf("command %d: %v, %v", i, v, err)
						}
					}
				}
			})
		}
	}
}

// A batch of scripts reports the outcome of each call even if one call is sent to a dead end.
func TestOutcomeOfScripts(t *testing.T) {
	bubble(t, cluster.Config{Node: conn.Config{Retry: conn.Retry{Budget: time.Second}}}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
		s := script.New("return redis.call('INCR', KEYS[1])")
		for _, srv := range f.nodes {
			srv.Script(s.Source(), func(call *fakeredis.Call) any { return call.Do("INCR", call.Keys[0]) })
			srv.Do("SCRIPT", "LOAD", s.Source())
		}
		moving := "{" + keyA + "}2"
		ask := fakeredis.Reply(fmt.Sprintf("-ASK %d %s\r\n", slotA, nodeB))
		f.hook(nodeA, func(cmd fakeredis.Cmd) *fakeredis.Action {
			if cmd.Name == "EVALSHA" && cmd.Args[3] == moving {
				return &ask
			}
			return nil
		})
		f.nodes[nodeB].Refuse(true)
		calls := []script.Call{s.Call([]string{moving}), s.Call([]string{keyA}), s.Call([]string{keyC})}
		replies, err := script.RunBatch(t.Context(), c, calls)
		for i := range calls {
			v, err := script.Outcome(replies, err, i)
			if i == 0 {
				if !conn.SafeToRetry(err) || !errors.Is(err, syscall.ECONNREFUSED) {
					t.Errorf("the call that is redirected: %v, %v", v, err)
				}
				continue
			}
			if n, _ := v.Int(); err != nil || n != 1 {
				t.Errorf("call %d: %v, %v, want 1", i, v, err)
			}
		}
	})
}

// moody is a set of nodes that treat each command at random: they run or refuse it, with any known
// reason, and close the connection before, after or instead of the answer. moody counts the
// commands that ran.
type moody struct {
	f       *fakes
	rand    *rand.Rand
	calm    bool
	open    map[string]*openTx // by node and connection
	scripts map[string]bool    // loaded, by node
	ran     map[string]int     // by id
}

type openTx struct {
	queued []string
	broken bool
}

// refusals are replies of a node that has not run a command and never will.
var refusals = []string{"MOVED 1711 " + nodeB, "MOVED 1711 " + nodeA, "MOVED 1711 :7003", "MOVED 1711 ?:7001",
	"ASK 1711 " + nodeB, "ASK 1711 " + nodeC, "ASK 1711 " + nodeA, "TRYAGAIN x", "CLUSTERDOWN x", "LOADING x", "MASTERDOWN x",
	"READONLY x", "BUSY x", "NOREPLICAS x", "ERR max number of clients reached", "OOM x", "ERR x"}

// outlasts are the refusals of EXEC that did not end a transaction before Redis 6.2.
var outlasts = []string{"LOADING", "MASTERDOWN", "READONLY", "BUSY", "NOREPLICAS", "ERR", "OOM"}

func newMoody(f *fakes, seed uint64) *moody {
	m := &moody{f: f, rand: rand.New(rand.NewPCG(seed, 1)), open: map[string]*openTx{}, scripts: map[string]bool{}, ran: map[string]int{}}
	for addr := range f.nodes {
		f.hook(addr, func(cmd fakeredis.Cmd) *fakeredis.Action { return m.decide(addr, cmd) })
	}
	return m
}

// decide is the hook of a node.
func (m *moody) decide(addr string, cmd fakeredis.Cmd) *fakeredis.Action {
	switch cmd.Name {
	case "HELLO", "CLIENT", "CLUSTER", "PING", "GET":
		return nil
	}
	act := m.answer(addr, fmt.Sprint(addr, "#", cmd.Conn), cmd)
	if m.calm {
		return &act
	}
	switch m.rand.IntN(60) {
	case 0:
		act = act.ThenClose()
	case 1:
		act = act.ThenReset()
	case 2:
		act = fakeredis.Swallow().ThenClose() // the command has run already
	case 3:
		act = act.Late(time.Duration(m.rand.IntN(1200)) * time.Millisecond)
	}
	return &act
}

func (m *moody) answer(addr, at string, cmd fakeredis.Cmd) fakeredis.Action {
	refusal := ""
	if !m.calm && m.rand.IntN(3) == 0 {
		refusal = refusals[m.rand.IntN(len(refusals))]
	}
	tx := m.open[at]
	switch {
	case cmd.Name == "ASKING":
		return answering("+OK")
	case cmd.Name == "MULTI" && tx != nil:
		return answering("-ERR MULTI calls can not be nested")
	case cmd.Name == "MULTI" && refusal != "" && m.rand.IntN(10) == 0:
		return answering("-" + refusal)
	case cmd.Name == "MULTI":
		m.open[at] = &openTx{}
		return answering("+OK")
	case cmd.Name == "EXEC" && tx == nil:
		return answering("-ERR EXEC without MULTI")
	case cmd.Name == "EXEC":
		return m.exec(at, tx, refusal)
	case refusal != "":
		if tx != nil {
			tx.broken = true
		}
		return answering("-" + refusal)
	case cmd.Name == "EVALSHA" && !m.scripts[addr]:
		return answering("-NOSCRIPT x")
	case cmd.Name == "EVAL", cmd.Name == "SCRIPT":
		m.scripts[addr] = true
	}
	id := cmd.Args[len(cmd.Args)-1]
	if tx != nil {
		tx.queued = append(tx.queued, id)
		return answering("+QUEUED")
	}
	m.ran[id]++
	return answering("+" + id)
}

func (m *moody) exec(at string, tx *openTx, refusal string) fakeredis.Action {
	if refusal != "" {
		prefix, _, _ := strings.Cut(refusal, " ")
		stays := false
		for _, p := range outlasts {
			stays = stays || p == prefix
		}
		if !stays || m.rand.IntN(2) == 0 {
			delete(m.open, at)
		}
		return answering("-" + refusal)
	}
	delete(m.open, at)
	if tx.broken {
		return answering("-EXECABORT x")
	}
	wire := fmt.Sprintf("*%d", len(tx.queued))
	for _, id := range tx.queued {
		m.ran[id]++
		wire += "\r\n+" + id
	}
	return answering(wire)
}

func answering(line string) fakeredis.Action { return fakeredis.Reply(line + "\r\n") }

// outcomes compares the reported outcomes of commands with the commands that ran.
type outcomes struct {
	mu   sync.Mutex
	told map[string]error
}

// note records the outcome of the command with an id, and any reply.
func (o *outcomes) note(t *testing.T, id string, v resp.Value, err error) {
	if err == nil {
		err = v.Err()
	}
	if err == nil {
		if text, _ := v.Text(); text != id {
			t.Errorf("%s got the reply %q", id, text)
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.told[id] = err
}

func (o *outcomes) check(t *testing.T, m *moody) (uncertain int) {
	for id, err := range o.told {
		n := m.ran[id]
		switch {
		case n > 1:
			t.Errorf("%s ran %d times: %v", id, n, err)
		case err == nil && n != 1:
			t.Errorf("%s ran %d times, and was said to have", id, n)
		case errors.Is(err, conn.ErrUncertain):
			uncertain++
		case err != nil && n > 0:
			t.Errorf("%s ran: %v", id, err)
		}
	}
	return uncertain
}

// Whatever happens to nodes and connections, nothing runs twice: no command, transaction, script or
// part of a batch. Each reported outcome is right, and each reply belongs to its command.
func TestNothingRunsTwice(t *testing.T) {
	cfg := cluster.Config{Node: conn.Config{Timeout: time.Second}}
	bareBubble(t, func(t *testing.T, f *fakes, proto int) {
		uncertain, all := 0, 0
		for seed := range uint64(60) {
			f.serve(fakeRange{0, 5460, nodeA}, fakeRange{5461, 10922, nodeB}, fakeRange{10923, 16383, nodeC})
			cfg := cfg
			cfg.Addrs, cfg.Node.Protocol = []string{nodeA, nodeB}, proto
			c := f.open(cfg)
			m := newMoody(f, seed)
			o := &outcomes{told: map[string]error{}}
			var wg sync.WaitGroup
			for caller := range 4 {
				wg.Go(func() {
					for n := range 12 {
						callOnce(t, c, o, caller+n, fmt.Sprint(caller, ".", n))
					}
				})
			}
			wg.Wait()
			time.Sleep(2 * time.Second) // late commands arrive
			synctest.Wait()
			c.Close()
			uncertain += o.check(t, m)
			all += len(o.told)
		}
		if uncertain == 0 || uncertain > all/2 {
			t.Errorf("%d of %d are uncertain", uncertain, all)
		}
	})
}

var once = script.New("return redis.call('SET', KEYS[1], ARGV[1])")

// callOnce makes a call whose commands carry id. n decides the kind of call.
func callOnce(t *testing.T, c *cluster.Cluster, o *outcomes, n int, id string) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmds := []resp.Command{resp.Cmd("SET", "{"+keyA+"}1", id+"a"), resp.Cmd("SET", "{"+keyA+"}2", id+"b")}
	switch n % 4 {
	case 0:
		v, err := c.Do(ctx, "SET", keyA, id)
		o.note(t, id, v, err)
	case 1:
		v, err := once.Run(ctx, c, []string{keyA}, id)
		o.note(t, id, v, err)
	case 2:
		values, err := c.Tx(ctx, cmds)
		for i, suffix := range []string{"a", "b"} {
			if err == nil {
				o.note(t, id+suffix, values[i], nil)
			} else {
				o.note(t, id+suffix, resp.Value{}, err)
			}
		}
	case 3:
		cmds = append(cmds, resp.Cmd("SET", keyB, id+"c"), resp.Cmd("SET", keyC, id+"d"))
		values, err := c.SendBatch(ctx, cmds)
		all, divided := errors.AsType[*cluster.BatchError](err)
		for i, suffix := range []string{"a", "b", "c", "d"} {
			switch {
			case divided:
				v, err := all.At(i)
				o.note(t, id+suffix, v, err)
			case i < len(values):
				o.note(t, id+suffix, values[i], nil)
			default:
				o.note(t, id+suffix, resp.Value{}, err)
			}
		}
	}
}

// Two nodes have been replaced under their names, and the second answers TRYAGAIN at first: both are redialled.
func TestBatchOfTwoNodesMovedToThemselves(t *testing.T) {
	bubble(t, cluster.Config{}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
		wantText(t, c, "OK", "SET", keyA, "here")
		wantText(t, c, "OK", "SET", keyC, "there")
		replaced := func(addr, key string, answers ...string) {
			var conn int64
			f.hook(addr, func(cmd fakeredis.Cmd) *fakeredis.Action {
				if cmd.Name != "GET" || conn != 0 && conn != cmd.Conn {
					return nil
				}
				conn = cmd.Conn
				answer := fmt.Sprintf("-MOVED %d %s\r\n", cluster.Slot(key), addr)
				if len(answers) > 0 {
					answer, answers = answers[0], answers[1:]
				}
				act := fakeredis.Reply(answer)
				return &act
			})
		}
		replaced(nodeA, keyA)
		replaced(nodeC, keyC, "-TRYAGAIN Multiple keys\r\n")
		v, err := c.SendBatch(t.Context(), []resp.Command{resp.Cmd("GET", keyA), resp.Cmd("GET", keyC)})
		if err != nil || len(v) != 2 {
			t.Fatalf("SendBatch() = %v, %v", v, err)
		}
		for i, want := range []string{"here", "there"} {
			if got, err := v[i].Text(); got != want {
				t.Errorf("reply %d is %q, %v, want %q", i, got, err, want)
			}
		}
	})
}

// A node that goes on to redirect a batch to itself is redialled once, not for each redirection.
func TestBatchMovedToItself(t *testing.T) {
	for name, batch := range map[string][]resp.Command{
		"alone":    {resp.Cmd("GET", keyA)},
		"in two":   {resp.Cmd("GET", keyA), resp.Cmd("GET", keyC)},
		"together": waiting(resp.Cmd("GET", keyA)),
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, cluster.Config{}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
				wantText(t, c, "OK", "SET", keyA, "here")
				wantText(t, c, "OK", "SET", keyC, "there")
				before := f.dials(nodeA)
				f.answer(nodeA, "GET", fmt.Sprintf("-MOVED %d %s", slotA, nodeA), 0)
				_, err := c.SendBatch(t.Context(), batch)
				if n := f.dials(nodeA) - before; n > 3 {
					t.Errorf("dialled %d times for a batch: %v", n, err)
				}
			})
		})
	}
}
