package cluster_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/lockwire/lockwire/cluster"
	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/resp"
)

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
