package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockwire/lockwire/cluster"
	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/resp"
)

// spread are keys of all nodes; keyA2 is in the slot of keyA.
var spread = []string{keyC, keyA, "none", keyB, keyA2, keyC}

const keyA2 = "{mylock}2"

func TestKeysOfSeveralSlots(t *testing.T) {
	bubble(t, cluster.Config{}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
		ctx := t.Context()
		if err := c.MSet(ctx, []string{keyA, "a", keyC, "0", keyB, "", keyA2, "a2", keyC, "c"}); err != nil {
			t.Fatal(err)
		}
		f.wantCounts("MSET", 1, 1, 1)
		values, err := resp.Each[*string](c.MGet(ctx, spread))
		var got []string
		for _, v := range values {
			if v == nil {
				got = append(got, "nil")
			} else {
				got = append(got, *v)
			}
		}
		if want := []string{"c", "a", "nil", "", "a2", "c"}; !slices.Equal(got, want) || err != nil {
			t.Errorf("MGet = %q, %v, want %q", got, err, want)
		}
		if n, err := c.Exists(ctx, spread); n != 5 || err != nil {
			t.Errorf("Exists = %d, %v, want 5", n, err)
		}
		if n, err := c.Del(ctx, []string{keyA, keyC, "none"}); n != 2 || err != nil {
			t.Errorf("Del = %d, %v, want 2", n, err)
		}
		if n, err := c.Unlink(ctx, spread); n != 2 || err != nil {
			t.Errorf("Unlink = %d, %v, want 2", n, err)
		}
		if values, err := c.MGet(ctx, nil); values != nil || err != nil {
			t.Errorf("MGet of nothing = %v, %v", values, err)
		}
		if n, err := c.Exists(ctx, spread); n != 0 || err != nil {
			t.Errorf("Exists = %d, %v, want 0", n, err)
		}
		if err := c.MSet(ctx, []string{keyA}); !errors.Is(err, conn.ErrRefused) || strings.Contains(err.Error(), keyA) {
			t.Errorf("MSet of a key without a value = %v", err)
		}
	})
}

// The failure of some keys leaves the others, and is told for each key.
func TestKeysThatFail(t *testing.T) {
	bubble(t, cluster.Config{}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
		for _, key := range []string{keyA, keyB, keyC} {
			if _, err := c.Do(t.Context(), "SET", key, key); err != nil {
				t.Fatal(err)
			}
		}
		oom := func(cmd fakeredis.Cmd) *fakeredis.Action {
			act := fakeredis.Reply("-OOM command not allowed\r\n")
			if !strings.HasPrefix(cmd.Name, "M") && cmd.Name != "DEL" {
				return nil
			}
			return &act
		}
		f.hook(nodeC, oom)
		values, err := c.MGet(t.Context(), []string{keyA, keyC, keyB})
		partial, ok := errors.AsType[*cluster.BatchError](err)
		if !ok || !errors.Is(err, resp.ErrOOM) || partial.Len() != 3 || !strings.Contains(err.Error(), "1 of 3 keys have failed") {
			t.Fatalf("MGet = %v", err)
		}
		if len(values) != 3 || !values[1].IsNull() || texts([]resp.Value{values[0], values[2]}) != keyA+" "+keyB {
			t.Errorf("values %v", values)
		}
		for i, want := range []error{nil, resp.ErrOOM, nil} {
			if _, err := partial.At(i); !errors.Is(err, want) {
				t.Errorf("outcome %d = %v, want %v", i, err, want)
			}
		}
		if n, err := c.Del(t.Context(), []string{keyA, keyC}); n != 1 || !errors.Is(err, resp.ErrOOM) {
			t.Errorf("Del = %d, %v, want 1 and an error", n, err)
		}
		if err := c.MSet(t.Context(), []string{keyC, "x", "{foo}2", "y"}); err != resp.Error("OOM command not allowed") {
			t.Errorf("MSet that fails as a whole = %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := c.MGet(ctx, spread); !errors.Is(err, context.Canceled) || !conn.SafeToRetry(err) {
			t.Errorf("MGet after the end of its ctx = %v", err)
		}
	})
}

// Keys that all fail, but not for the same reason, have all reasons in the error.
func TestKeysThatFailDifferently(t *testing.T) {
	bubble(t, cluster.Config{}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
		for node, text := range map[string]string{nodeA: "-NOPERM no", nodeC: "-OOM full"} {
			f.hook(node, func(cmd fakeredis.Cmd) *fakeredis.Action {
				act := fakeredis.Reply(text + "\r\n")
				if cmd.Name != "DEL" {
					return nil
				}
				return &act
			})
		}
		_, err := c.Del(t.Context(), []string{keyA, keyC})
		if partial, ok := errors.AsType[*cluster.BatchError](err); !ok || partial.Len() != 2 || !errors.Is(err, resp.ErrOOM) || !errors.Is(err, resp.ErrNoPerm) {
			t.Errorf("Del = %v, want both reasons", err)
		}
	})
}

// The call ends while a node refuses its keys for the moment: the error says both, and the other keys are done.
func TestKeysUntilTheEnd(t *testing.T) {
	type call = func(context.Context, *cluster.Cluster, []string) error
	calls := map[string]call{
		"MGet": func(ctx context.Context, c *cluster.Cluster, keys []string) (err error) {
			_, err = c.MGet(ctx, keys)
			return
		},
		"Exists": func(ctx context.Context, c *cluster.Cluster, keys []string) (err error) {
			_, err = c.Replicas().Exists(ctx, keys)
			return
		},
		"Del": func(ctx context.Context, c *cluster.Cluster, keys []string) (err error) {
			_, err = c.Del(ctx, keys)
			return
		},
		"MSet": func(ctx context.Context, c *cluster.Cluster, keys []string) error {
			var pairs []string
			for _, key := range keys {
				pairs = append(pairs, key, "x")
			}
			return c.MSet(ctx, pairs)
		},
	}
	ends := map[error]func(context.Context, *cluster.Cluster) (context.Context, context.CancelFunc){
		context.DeadlineExceeded: func(ctx context.Context, _ *cluster.Cluster) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, 300*time.Millisecond)
		},
		context.Canceled: func(ctx context.Context, _ *cluster.Cluster) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(300*time.Millisecond, cancel)
			return ctx, cancel
		},
		conn.ErrClosed: func(ctx context.Context, c *cluster.Cluster) (context.Context, context.CancelFunc) {
			time.AfterFunc(300*time.Millisecond, func() { c.Close() })
			return ctx, func() {}
		},
	}
	for _, refusal := range []resp.Error{resp.ErrLoading, resp.ErrBusy, resp.ErrClusterDown, resp.ErrReadOnly, resp.ErrMasterDown, resp.ErrTryAgain} {
		for name, call := range calls {
			for cause, end := range ends {
				bubble(t, cluster.Config{}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
					f.hook(nodeA, func(cmd fakeredis.Cmd) *fakeredis.Action {
						act := fakeredis.Reply("-" + string(refusal) + " not now\r\n")
						if cmd.Name == "CLUSTER" || cmd.Name == "HELLO" {
							return nil
						}
						return &act
					})
					ctx, cancel := end(t.Context(), c)
					defer cancel()
					took(t, 300*time.Millisecond, 310*time.Millisecond, func() {
						err := call(ctx, c, []string{keyA, keyB, keyA2, keyC})
						partial, ok := errors.AsType[*cluster.BatchError](err)
						if !ok || partial.Len() != 4 || !errors.Is(err, cause) || !errors.Is(err, refusal) {
							t.Fatalf("%s while a node says %s = %v, want also %v", name, refusal, err, cause)
						}
						for i, want := range []error{cause, nil, cause, nil} {
							if _, err := partial.At(i); !errors.Is(err, want) || want != nil && !conn.SafeToRetry(err) {
								t.Errorf("%s, %s: outcome %d = %v, want %v", name, refusal, i, err, want)
							}
						}
					})
				})
			}
		}
	}
}

// Keys of several slots that all fail at the end of the call, for one reason, have one error.
func TestKeysUntilTheEndTogether(t *testing.T) {
	bubble(t, cluster.Config{}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
		f.answer(nodeA, "MGET", "-LOADING not now", 0)
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		const near = "beside" // a further key of nodeA
		if slot := cluster.Slot(near); slot == slotA || slot > 5460 {
			t.Fatalf("slot %d", slot)
		}
		_, err := c.MGet(ctx, []string{keyA, near})
		if _, several := errors.AsType[*cluster.BatchError](err); several || !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, resp.ErrLoading) {
			t.Errorf("MGet = %v, want the end of ctx and LOADING as one error", err)
		}
	})
}

// While a slot moves its keys are asked for one by one, each where it is.
func TestKeysOfAMovingSlot(t *testing.T) {
	bubble(t, cluster.Config{}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
		f.nodes[nodeA].Do("SET", keyA, "stayed")
		f.nodes[nodeC].Do("SET", keyA2, "moved")
		f.nodes[nodeB].Do("SET", keyB, "b")
		f.hook(nodeA, func(cmd fakeredis.Cmd) *fakeredis.Action {
			act := fakeredis.Reply("-TRYAGAIN Multiple keys request during rehashing of slot\r\n")
			switch cmd.String() {
			case "MGET " + keyA:
				return nil
			case "MGET " + keyA2:
				act = fakeredis.Reply(fmt.Sprintf("-ASK %d %s\r\n", slotA, nodeC))
			default:
				if cmd.Name != "MGET" {
					return nil
				}
			}
			return &act
		})
		values, err := c.MGet(t.Context(), []string{keyA2, keyB, keyA})
		if got := texts(values); got != "moved b stayed" || err != nil {
			t.Errorf("MGet = %s, %v", got, err)
		}
		f.wantCounts("MGET", 3, 1, 1)
	})
}

// A slot that moves with a single one of the keys does not end the call either.
func TestOneKeyOfAMovingSlot(t *testing.T) {
	for name, call := range map[string]func(c *cluster.Cluster, ctx context.Context) error{
		"MGET": func(c *cluster.Cluster, ctx context.Context) error {
			values, err := c.MGet(ctx, []string{keyA, keyB})
			if got := texts(values); err == nil && got != "a b" {
				return fmt.Errorf("values %s", got)
			}
			return err
		},
		"MSET": func(c *cluster.Cluster, ctx context.Context) error {
			return c.MSet(ctx, []string{keyA, "a", keyB, "b"})
		},
		"DEL": func(c *cluster.Cluster, ctx context.Context) error {
			n, err := c.Del(ctx, []string{keyA, keyB})
			if err == nil && n != 2 {
				return fmt.Errorf("%d keys deleted", n)
			}
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, cluster.Config{}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
				f.nodes[nodeA].Do("SET", keyA, "a")
				f.nodes[nodeB].Do("SET", keyB, "b")
				f.answer(nodeA, name, "-TRYAGAIN Multiple keys request during rehashing of slot", 3)
				if err := call(c, t.Context()); err != nil {
					t.Errorf("%s = %v, want success once the keys are there", name, err)
				}
				f.wantCounts(name, 4, 1, 0)
			})
		})
	}
}

// A reply of the wrong shape is an error of its keys, not their absence.
func TestKeysAndMalformedReplies(t *testing.T) {
	bubble(t, cluster.Config{}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
		f.nodes[nodeA].Do("SET", keyA, "a")
		keys := []string{keyB, keyA, keyB}
		for _, reply := range []string{"*0\r\n", "+OKAY\r\n", "*1\r\n$1\r\nx\r\n", "*-1\r\n", "*3\r\n+a\r\n+b\r\n+c\r\n", ":3\r\n", ":-1\r\n"} {
			f.hook(nodeB, func(cmd fakeredis.Cmd) *fakeredis.Action {
				if cmd.Name == "CLUSTER" || cmd.Name == "HELLO" {
					return nil
				}
				act := fakeredis.Reply(reply)
				return &act
			})
			values, err := c.MGet(t.Context(), keys)
			if partial, ok := errors.AsType[*cluster.BatchError](err); !ok || texts(values[1:2]) != "a" {
				t.Errorf("MGET answered %q = %v, %v", reply, values, err)
			} else if _, bad := partial.At(2); bad == nil || conn.SafeToRetry(bad) {
				t.Errorf("MGET answered %q: %v", reply, bad)
			}
			for name, count := range map[string]func(context.Context, []string) (int64, error){"DEL": c.Del, "UNLINK": c.Unlink, "EXISTS": c.Exists} {
				if n, err := count(t.Context(), []string{keyB, keyB}); n != 0 || err == nil || conn.SafeToRetry(err) {
					t.Errorf("%s answered %q = %d, %v", name, reply, n, err)
				}
			}
			if err := c.MSet(t.Context(), []string{keyB, "b"}); err == nil || conn.SafeToRetry(err) {
				t.Errorf("MSET answered %q = %v", reply, err)
			}
		}
	})
}

// Block goes to the node of the key, and follows redirections.
func TestBlock(t *testing.T) {
	bubble(t, cluster.Config{}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
		pop := func() string {
			job, err := resp.As[*[]string](c.Block(t.Context(), "BLPOP", keyB, 1))
			if err != nil || job == nil {
				return fmt.Sprint(job, err)
			}
			return (*job)[1]
		}
		f.nodes[nodeB].Do("RPUSH", keyB, "one")
		if got := pop(); got != "one" {
			t.Errorf("BLPOP = %s", got)
		}
		if got := pop(); got != "<nil> <nil>" {
			t.Errorf("BLPOP of nothing = %s", got)
		}
		f.nodes[nodeC].Do("RPUSH", keyB, "asked", "moved")
		f.answer(nodeB, "BLPOP", fmt.Sprintf("-ASK %d %s", slotB, nodeC), 1)
		if got := pop(); got != "asked" || f.nodes[nodeC].Count("ASKING") != 1 {
			t.Errorf("BLPOP after ASK = %s, with %d ASKING", got, f.nodes[nodeC].Count("ASKING"))
		}
		f.answer(nodeB, "BLPOP", fmt.Sprintf("-MOVED %d %s", slotB, nodeC), 1)
		if got := pop(); got != "moved" {
			t.Errorf("BLPOP after MOVED = %s", got)
		}
		if _, err := c.Block(t.Context(), "BLPOP", nil); !errors.Is(err, conn.ErrRefused) {
			t.Errorf("Block of an argument that cannot be encoded = %v", err)
		}
		if _, err := c.Block(t.Context(), "LPUSH", keyA); !errors.Is(err, resp.ErrGeneral) {
			t.Errorf("Block of a command that fails = %v", err)
		}
	})
}

// Block goes on at the new master if its node becomes a replica, and ends if somebody has unblocked it.
func TestBlockOverAFailover(t *testing.T) {
	bubble(t, cluster.Config{}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
		f.nodes[nodeB].Do("RPUSH", keyB, "one")
		f.answer(nodeB, "BLPOP", "-UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)", 1)
		if job, err := resp.As[[]string](c.Block(t.Context(), "BLPOP", keyB, 1)); err != nil || job[1] != "one" {
			t.Errorf("BLPOP = %v, %v", job, err)
		}
		f.answer(nodeB, "BLPOP", "-UNBLOCKED client unblocked via CLIENT UNBLOCK", 1)
		if _, err := c.Block(t.Context(), "BLPOP", keyB, 1); !errors.Is(err, resp.ErrUnblocked) {
			t.Errorf("BLPOP that was unblocked = %v", err)
		}
	})
}

// A call of Block that waits for minutes outlives more failovers, and more moves of its slot, than the limits allow in a row.
func TestBlockOverManyChanges(t *testing.T) {
	const failover = "-UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)"
	for name, changes := range map[string][2]string{
		"failovers": {failover, failover},
		"moves":     {fmt.Sprintf("-MOVED %d %s", slotB, nodeC), fmt.Sprintf("-MOVED %d %s", slotB, nodeB)},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, cluster.Config{MaxRedirects: 3}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
				blocked := 0
				for i, addr := range []string{nodeB, nodeC} {
					f.nodes[addr].Do("RPUSH", keyB, "one")
					f.hook(addr, func(cmd fakeredis.Cmd) *fakeredis.Action {
						if cmd.Name != "BLPOP" || blocked == 10 {
							return nil
						}
						blocked++
						act := fakeredis.Delay(time.Minute, fakeredis.Reply(changes[i]+"\r\n"))
						return &act
					})
				}
				if job, err := resp.As[[]string](c.Block(t.Context(), "BLPOP", keyB, 0)); err != nil || job[1] != "one" {
					t.Errorf("BLPOP = %v, %v after %d changes", job, err, blocked)
				}
			})
		})
	}
}

// A call of Block is reported once, with its attempts.
func TestBlockTraced(t *testing.T) {
	bubble(t, cluster.Config{}, func(t *testing.T, f *fakes, _ *cluster.Cluster) {
		var ends []conn.CommandEnd
		end := func(_ context.Context, i conn.CommandEnd) {
			if i.Name == "BLPOP" {
				ends = append(ends, i)
			}
		}
		c := f.open(cluster.Config{Addrs: []string{nodeA}, Node: conn.Config{Trace: &conn.Trace{CommandEnd: end}}})
		f.answer(nodeB, "BLPOP", fmt.Sprintf("-MOVED %d %s", slotB, nodeC), 1)
		if _, err := c.Block(t.Context(), "BLPOP", keyB, 1); err != nil {
			t.Error(err)
		}
		if len(ends) != 1 || ends[0].Attempts != 2 {
			t.Errorf("reported: %+v", ends)
		}
	})
}

// A call of MGet is reported once, also if a moving slot divides it.
func TestKeysTraced(t *testing.T) {
	bubble(t, cluster.Config{}, func(t *testing.T, f *fakes, _ *cluster.Cluster) {
		var ends []conn.CommandEnd
		end := func(_ context.Context, i conn.CommandEnd) {
			if strings.HasSuffix(i.Name, "GET") {
				ends = append(ends, i)
			}
		}
		c := f.open(cluster.Config{Addrs: []string{nodeA}, Node: conn.Config{Trace: &conn.Trace{CommandEnd: end}}})
		f.answer(nodeA, "MGET", "-TRYAGAIN Multiple keys request during rehashing of slot", 1)
		if _, err := c.MGet(t.Context(), []string{keyA, keyA2, keyB}); err != nil {
			t.Error(err)
		}
		f.answer(nodeA, "MGET", "-OOM x", 1)
		_, err := c.MGet(t.Context(), []string{keyA})
		if len(ends) != 2 || ends[0].Operation() != "PIPELINE MGET" || ends[0].Count != 2 || ends[0].Attempts != 3 || ends[0].Err != nil ||
			ends[1].Operation() != "MGET" || ends[1].Count != 1 || err == nil || ends[1].Err != err {
			t.Errorf("reported: %+v", ends)
		}
	})
}

// Watch begins anew after a change of the key, and on another node after MOVED.
func TestWatch(t *testing.T) {
	bubble(t, cluster.Config{}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
		f.nodes[nodeC].Do("SET", keyB, "5")
		f.answer(nodeB, "WATCH", fmt.Sprintf("-MOVED %d %s", slotB, nodeC), 1)
		calls := 0
		double := func(c *conn.Conn) ([]resp.Command, error) {
			n, err := resp.As[int](c.Do(t.Context(), "GET", keyB))
			if calls++; calls == 1 {
				f.nodes[nodeC].Do("INCR", keyB)
			}
			return []resp.Command{resp.Cmd("INCRBY", keyB, n)}, err
		}
		values, err := c.Watch(t.Context(), []string{keyB}, double)
		if n, _ := resp.As[int](values[0], err); n != 12 || calls != 2 {
			t.Errorf("Watch = %v, %v after %d calls, want 12", values, err, calls)
		}
		if _, err := c.Watch(t.Context(), nil, double); !errors.Is(err, conn.ErrRefused) {
			t.Errorf("Watch without keys = %v", err)
		}
	})
}

// Nodes that redirect Watch to and fro do not hold it for ever.
func TestWatchRedirectedForEver(t *testing.T) {
	bubble(t, cluster.Config{MaxRedirects: 3}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
		for _, n := range []struct{ from, to string }{{nodeB, nodeC}, {nodeC, nodeB}} {
			f.hook(n.from, func(cmd fakeredis.Cmd) *fakeredis.Action {
				act := fakeredis.Reply(fmt.Sprintf("-MOVED %d %s\r\n", slotB, n.to))
				if cmd.Name != "WATCH" {
					return nil
				}
				return &act
			})
		}
		_, err := c.Watch(t.Context(), []string{keyB}, nil)
		if n := f.nodes[nodeB].Count("WATCH") + f.nodes[nodeC].Count("WATCH"); !errors.Is(err, resp.ErrMoved) || n != 4 {
			t.Errorf("Watch = %v after %d attempts, want 4", err, n)
		}
	})
}

// A command for another slot than the watched keys is refused, and fn is not called again: no node could take the transaction.
func TestWatchWithACommandOfAnotherSlot(t *testing.T) {
	bubble(t, cluster.Config{}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
		f.refuseTx(nodeB, fmt.Sprintf("-MOVED %d %s", slotA, nodeA))
		calls := 0
		_, err := c.Watch(t.Context(), []string{keyB}, func(*conn.Conn) ([]resp.Command, error) {
			calls++
			return []resp.Command{resp.Cmd("SET", keyB, 1), resp.Cmd("INCR", keyA)}, nil
		})
		if !errors.Is(err, resp.ErrCrossSlot) || errors.Is(err, resp.ErrMoved) || !strings.Contains(err.Error(), fmt.Sprint(slotA)) || calls != 1 {
			t.Errorf("Watch = %v after %d calls", err, calls)
		}
	})
}

// An error of fn ends Watch, whatever it matches, and does not change the topology.
func TestWatchReturnsTheErrorOfFn(t *testing.T) {
	bubble(t, cluster.Config{}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
		for _, cause := range []error{conn.ErrTxAborted, resp.Error(fmt.Sprintf("MOVED %d %s", slotA, nodeC))} {
			mine := fmt.Errorf("mine: %w", cause)
			calls := 0
			_, err := c.Watch(t.Context(), []string{keyB}, func(*conn.Conn) ([]resp.Command, error) {
				if calls++; calls > 1 {
					return nil, nil
				}
				return nil, mine
			})
			if n, _ := c.Owner(keyA); err != mine || calls != 1 || n.Addr() != nodeA {
				t.Errorf("Watch = %v after %d calls, and the owner of another slot is %s", err, calls, n.Addr())
			}
		}
	})
}

// Watch waits where the node is not ready, or the slot moves, as long as fn has not been called.
func TestWatchWaits(t *testing.T) {
	for _, text := range []string{"CLUSTERDOWN x", "TRYAGAIN x", "LOADING x", fmt.Sprintf("ASK %d %s", slotB, nodeC)} {
		bubble(t, cluster.Config{Node: conn.Config{Retry: conn.Retry{Attempts: 5}}}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
			f.answer(nodeB, "WATCH", "-"+text, 3)
			calls := 0
			set := func(*conn.Conn) ([]resp.Command, error) {
				calls++
				return []resp.Command{resp.Cmd("SET", keyB, 1)}, nil
			}
			values, err := c.Watch(t.Context(), []string{keyB}, set)
			if texts(values) != "OK" || err != nil || calls != 1 {
				t.Errorf("Watch after %s = %v, %v after %d calls", text, values, err, calls)
			}
			f.answer(nodeB, "WATCH", "-"+text, 0)
			_, err = c.Watch(t.Context(), []string{keyB}, set)
			if prefix := resp.Error(resp.Error(text).Prefix()); !errors.Is(err, prefix) || calls != 1 {
				t.Errorf("Watch while %s = %v after %d calls", text, err, calls)
			}
			f.wantCounts("WATCH", 0, 4+5, 0)
		})
	}
}

// A transaction that is not ready to run is not repeated: fn has been called. The end of ctx ends the pause after an
// aborted one.
func TestWatchEnds(t *testing.T) {
	bubble(t, cluster.Config{}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		calls := 0
		change := func(*conn.Conn) ([]resp.Command, error) {
			calls++
			f.nodes[nodeB].Do("INCR", keyB)
			return []resp.Command{resp.Cmd("SET", keyB, 1)}, nil
		}
		if _, err := c.Watch(ctx, []string{keyB}, change); !errors.Is(err, context.DeadlineExceeded) || calls < 5 || calls > 50 {
			t.Errorf("Watch of a key that always changes = %v after %d calls", err, calls)
		}
		calls = 0
		f.refuseTx(nodeB, "-LOADING x")
		_, err := c.Watch(t.Context(), []string{keyB}, func(*conn.Conn) ([]resp.Command, error) {
			calls++
			return []resp.Command{resp.Cmd("INCR", keyB)}, nil
		})
		if !errors.Is(err, resp.ErrLoading) || calls != 1 {
			t.Errorf("Watch = %v after %d calls", err, calls)
		}
	})
}
