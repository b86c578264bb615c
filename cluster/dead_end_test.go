package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
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
