package cluster_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
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

// moveAll moves all slots of nodeA to nodeB, and makes the nodes answer accordingly.
func (f *fakes) moveAll() {
	f.serve(fakeRange{0, 10922, nodeB}, fakeRange{10923, 16383, nodeC})
	f.nodes[nodeB].Do("SET", keyA, "moved")
	f.answer(nodeA, "GET", fmt.Sprintf("-MOVED %d %s", slotA, nodeB), 0)
}

// C18: an answer without slots does not replace a topology.
func TestEmptyTopologyIsNotBelieved(t *testing.T) {
	bubble(t, cluster.Config{RefreshInterval: time.Second}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
		for _, addr := range []string{nodeA, nodeB, nodeC} {
			f.says(addr, "*0|")
		}
		time.Sleep(time.Minute)
		wantText(t, c, "OK", "SET", keyC, "x")
		f.wantCounts("SET", 0, 0, 1)
		if got := c.Stats(); got.Slots != cluster.Slots || got.RefreshErrors < 40 || got.Refreshes != 1 {
			t.Errorf("C18: Stats = %+v", got)
		}
	})
}

// A node that was cut off knows only part of the slots. The Cluster prefers a node that knows more.
func TestPoorTopologyIsNotPreferred(t *testing.T) {
	bubble(t, cluster.Config{RefreshInterval: time.Second}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
		f.says(nodeA, "*1|*3|:0|:5460|*2|"+str("10.0.0.1")+":7001|")
		time.Sleep(time.Minute)
		if got := c.Stats(); got.Slots != cluster.Slots || got.RefreshErrors > 0 {
			t.Errorf("Stats = %+v", got)
		}
		f.serve(fakeRange{0, 5460, nodeA}, fakeRange{5461, 10922, nodeB}) // now no node knows more
		time.Sleep(3 * time.Second)
		if got := c.Stats(); got.Slots != 10923 || got.Masters != 2 {
			t.Errorf("Stats = %+v, want what the best informed node says", got)
		}
	})
}

// C19: the Cluster asks the next seed, and finally reports the reason.
func TestEmptyTopologyAtStart(t *testing.T) {
	bareBubble(t, func(t *testing.T, f *fakes, proto int) {
		f.says(nodeA, "*0|")
		cfg := f.config(cluster.Config{Addrs: []string{"10.9.9.9:1", nodeA, nodeB}, Node: conn.Config{Protocol: proto}})
		c, err := cluster.Open(t.Context(), cfg)
		if err != nil {
			t.Fatalf("C19: %v", err)
		}
		c.Close()
		cfg.Addrs = cfg.Addrs[:2]
		took(t, 2*time.Second, 6*time.Second, func() {
			if _, err = cluster.Open(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "no slots served") {
				t.Errorf("C19: %v", err)
			}
		})
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		took(t, 500*time.Millisecond, 500*time.Millisecond, func() {
			if _, err = cluster.Open(ctx, cfg); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("C19: %v, want the end of ctx", err)
			}
		})
		cfg.Addrs = []string{"10.9.9.9:1"}
		if _, err = cluster.Open(ctx, cfg); err == nil {
			t.Error("opened without a node")
		}
	})
}

// A server that is no node of a cluster, or a sentinel, says so at once, unless another seed is a node.
func TestNoNodeOfACluster(t *testing.T) {
	for _, says := range []string{"-ERR This instance has cluster support disabled|", "-ERR unknown command 'CLUSTER', with args beginning with: 'SLOTS'|"} {
		bareBubble(t, func(t *testing.T, f *fakes, proto int) {
			f.says(nodeA, says)
			cfg := f.config(cluster.Config{Addrs: []string{nodeA}, Node: conn.Config{Protocol: proto}})
			took(t, 0, 0, func() {
				_, err := cluster.Open(t.Context(), cfg)
				if !errors.Is(err, resp.ErrGeneral) || !strings.HasSuffix(err.Error(), "no node of a cluster: open it with redis:// in place of redis-cluster://") {
					t.Errorf("Open: %v, want the advice", err)
				}
			})
			f.open(cluster.Config{Addrs: []string{nodeA, nodeB}, Node: conn.Config{Protocol: proto}})
		})
	}
}

// One seed is no node of a cluster, and another one is not ready yet. Their order does not matter.
func TestNoNodeBesideAnother(t *testing.T) {
	for name, ready := range map[string]func(f *fakes, ready bool){
		"refuses dials": func(f *fakes, ready bool) { f.nodes[nodeB].Refuse(!ready) },
		"has no slots": func(f *fakes, ready bool) {
			if f.says(nodeB, "*0|"); ready {
				f.says(nodeB, f.slotsLocked())
			}
		},
	} {
		for _, addrs := range [][]string{{nodeA, nodeB}, {nodeB, nodeA}} {
			t.Run(name, func(t *testing.T) {
				bareBubble(t, func(t *testing.T, f *fakes, proto int) {
					f.says(nodeA, "-ERR This instance has cluster support disabled|")
					ready(f, false)
					time.AfterFunc(time.Second, func() { ready(f, true) })
					took(t, time.Second, 2*time.Second, func() { f.open(cluster.Config{Addrs: addrs, Node: conn.Config{Protocol: proto}}) })
				})
			})
		}
	}
}

// A node of a cluster does not know a command in Extra: the error is about this command.
func TestExtraUnknownToANode(t *testing.T) {
	bareBubble(t, func(t *testing.T, f *fakes, proto int) {
		f.answer(nodeA, "NOSUCH", "-ERR unknown command 'NOSUCH', with args beginning with:", 0)
		node := conn.Config{Protocol: proto, Extra: []resp.Command{resp.Cmd("NOSUCH")}}
		took(t, 0, 0, func() {
			_, err := cluster.Open(t.Context(), f.config(cluster.Config{Addrs: []string{nodeA}, Node: node}))
			if !errors.Is(err, resp.ErrGeneral) || strings.Contains(fmt.Sprint(err), "no node of a cluster") {
				t.Errorf("Open: %v, want the reply alone", err)
			}
		})
	})
}

// The error of an Open whose ctx ends says so, whatever the nodes have answered before.
func TestOpenEndsWithItsContext(t *testing.T) {
	for name, unready := range map[string]func(f *fakes){
		"no slots": func(f *fakes) { f.says(nodeA, "*0|") },
		"refuses":  func(f *fakes) { f.nodes[nodeA].Refuse(true) },
		"loading":  func(f *fakes) { f.says(nodeA, "-LOADING Redis is loading the dataset in memory|") },
	} {
		t.Run(name, func(t *testing.T) {
			bareBubble(t, func(t *testing.T, f *fakes, proto int) {
				unready(f)
				f.nodes[nodeB].Mute(true)
				ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
				defer cancel()
				cfg := f.config(cluster.Config{Addrs: []string{nodeA, nodeB}, Node: conn.Config{Protocol: proto}})
				took(t, 500*time.Millisecond, 500*time.Millisecond, func() {
					if _, err := cluster.Open(ctx, cfg); !errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("Open: %v, want the end of ctx", err)
					}
				})
			})
		})
	}
}

func TestWrongPasswordShowsAtOnce(t *testing.T) {
	bareBubble(t, func(t *testing.T, f *fakes, proto int) {
		for _, srv := range f.nodes {
			srv.User("default", "right")
		}
		node := conn.Config{Protocol: proto, Password: "s3cr3t"}
		took(t, 0, 0, func() {
			_, err := cluster.Open(t.Context(), f.config(cluster.Config{Addrs: []string{nodeA, nodeB}, Node: node}))
			if !errors.Is(err, resp.ErrWrongPass) || strings.Contains(fmt.Sprint(err), "s3cr3t") {
				t.Errorf("Open: %v, want WRONGPASS", err)
			}
		})
		node.Password = "right"
		c := f.open(cluster.Config{Addrs: []string{nodeA, nodeB}, Node: node})
		f.nodes[nodeC].User("default", "another")
		took(t, 0, 0, func() {
			if _, err := c.Do(t.Context(), "GET", keyC); !errors.Is(err, resp.ErrWrongPass) {
				t.Errorf("%v, want WRONGPASS", err)
			}
		})
		if _, err := c.Do(t.Context(), "GET", keyA); err != nil {
			t.Errorf("the others: %v", err)
		}
	})
}

// C20: an unserved slot.
func TestHole(t *testing.T) {
	bareBubble(t, func(t *testing.T, f *fakes, proto int) {
		f.serve(fakeRange{0, 5460, nodeA}, fakeRange{10923, 16383, nodeC})
		c := f.open(cluster.Config{Addrs: []string{nodeA}, Node: conn.Config{Protocol: proto}})
		took(t, 4*time.Second, 6*time.Second, func() {
			_, err := c.Do(t.Context(), "GET", keyB)
			if !conn.SafeToRetry(err) || !strings.Contains(err.Error(), fmt.Sprint("slot ", slotB, " ")) {
				t.Errorf("C20: %v, want the slot named", err)
			}
		})
		if n := f.refreshes(); n < 5 || n > 40 {
			t.Errorf("C20: the topology was asked for %d times", n)
		}
		wantText(t, c, "OK", "SET", keyC, "x")
		took(t, 0, 0, func() {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if _, err := c.Do(ctx, "GET", keyB); !conn.SafeToRetry(err) {
				t.Errorf("with a ctx that is over: %v", err)
			}
		})
		time.AfterFunc(time.Second, func() { f.serve(fakeRange{0, 16383, nodeA}) })
		took(t, time.Second, 2*time.Second, func() { wantText(t, c, "OK", "SET", keyB, "x") })
	})
}

// C22: the Cluster refuses an invalid answer and asks the next node.
func TestWrongTopologyIsRefused(t *testing.T) {
	bubble(t, cluster.Config{RefreshInterval: time.Second}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
		f.says(nodeA, "*1|*3|:0|:16384|*2|"+str("10.0.0.1")+":7001|")
		f.nodes[nodeA].ClearLog()
		time.Sleep(time.Minute)
		synctest.Wait()
		got := c.Stats()
		if got.Slots != cluster.Slots || got.RefreshErrors > 0 {
			t.Errorf("C22: Stats = %+v", got)
		}
		if a, all := f.nodes[nodeA].Count("CLUSTER"), f.refreshes(); a == 0 || all != a+int(got.Refreshes) {
			t.Errorf("C22: it was asked %d of %d times in %d refreshes, want once more in each refresh that asked it", a, all, got.Refreshes)
		}
	})
}

// C24: the map is applied exactly once to each announced address.
func TestNodeMap(t *testing.T) {
	bareBubble(t, func(t *testing.T, f *fakes, proto int) {
		f.serve(fakeRange{0, 5460, "172.16.0.1:1"}, fakeRange{5461, 16383, "172.16.0.2:2"})
		toDial := map[string]string{"172.16.0.1:1": nodeA, "172.16.0.2:2": nodeB, "172.16.0.3:3": nodeC, "172.16.0.1:3": nodeC,
			nodeA: "10.66.6.6:6", nodeB: "10.66.6.6:6", nodeC: "10.66.6.6:6"}
		c := f.open(cluster.Config{Addrs: []string{nodeA}, Node: conn.Config{Protocol: proto},
			NodeMap: func(addr string) string { return toDial[addr] }})
		wantText(t, c, "OK", "SET", keyA, "x")
		wantText(t, c, "OK", "SET", keyC, "x")
		f.wantCounts("SET", 1, 1, 0)
		f.nodes[nodeC].Do("SET", keyA, "new")
		for _, answer := range []string{"-ASK %d 172.16.0.3:3", "-MOVED %d 172.16.0.3:3", "-MOVED %d :3"} {
			f.answer(nodeA, "GET", fmt.Sprintf(answer, slotA), 1)
			wantText(t, c, "new", "GET", keyA)
			time.Sleep(time.Second) // the topology counts again
		}
		if n := f.dials("10.66.6.6:6"); n > 0 {
			t.Errorf("C24: mapped %d times too often", n)
		}
	})
}

// However many calls find a changed topology, the Cluster refreshes only a few times.
func TestNoRefreshStorm(t *testing.T) {
	bubble(t, cluster.Config{}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
		f.answer(nodeA, "GET", fmt.Sprintf("-MOVED %d %s", slotA, nodeB), 0) // for ever, and the topology says otherwise
		start := time.Now()
		var callers sync.WaitGroup
		for i := range 200 {
			callers.Go(func() {
				for time.Since(start) < 10*time.Second {
					if _, err := c.Do(t.Context(), "GET", fmt.Sprintf("{%s}%d", keyA, i)); err != nil {
						t.Error(err)
						return
					}
					time.Sleep(50 * time.Millisecond)
				}
			})
		}
		callers.Wait()
		if n := f.refreshes(); n > 35 {
			t.Errorf("the topology was asked for %d times in 10 s", n)
		}
		for _, srv := range f.nodes {
			srv.Refuse(true)
			srv.KillConns(nil)
		}
		before := f.dials(nodeA) + f.dials(nodeB) + f.dials(nodeC)
		for range 200 {
			callers.Go(func() { _, _ = c.Do(t.Context(), "GET", keyA) })
		}
		callers.Wait()
		if n := f.dials(nodeA) + f.dials(nodeB) + f.dials(nodeC) - before; n > 120 {
			t.Errorf("%d dials while all nodes were down for 5 s", n)
		}
	})
}

// A call that looks for the owner of a slot requests one refresh and waits for that one, even if it ends before the wait begins.
func TestRelocateWaitsForItsRefresh(t *testing.T) {
	bubble(t, cluster.Config{}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
		time.Sleep(time.Second)
		before := f.refreshes()
		took(t, 0, 0, func() {
			if err := c.Relocate(t.Context(), synctest.Wait); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		if n := f.refreshes() - before; n != 1 {
			t.Errorf("%d refreshes, want 1", n)
		}
	})
}

// After a quiet time the pauses between refreshes are short again.
func TestRefreshesAfterQuiet(t *testing.T) {
	bubble(t, cluster.Config{}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
		f.nodes[nodeB].Do("SET", keyA, "inherited")
		f.answer(nodeA, "GET", "-CLUSTERDOWN x", 0)
		for range 2 {
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			defer cancel()
			if _, err := c.Do(ctx, "GET", keyA); err == nil {
				t.Fatal("it was answered")
			}
		}
		time.Sleep(10 * time.Second)
		time.AfterFunc(50*time.Millisecond, func() { f.serve(fakeRange{0, 10922, nodeB}, fakeRange{10923, 16383, nodeC}) })
		took(t, 50*time.Millisecond, 300*time.Millisecond, func() { wantText(t, c, "inherited", "GET", keyA) })
	})
}

// Seeds are never forgotten: all known nodes are gone, and the seed leads to new nodes.
func TestSeedsAreNotForgotten(t *testing.T) {
	bareBubble(t, func(t *testing.T, f *fakes, proto int) {
		const seed = "cluster.example:7000"
		f.alias[seed] = nodeA
		c := f.open(cluster.Config{Addrs: []string{seed}, Node: conn.Config{Protocol: proto}})
		wantText(t, c, "OK", "SET", keyA, "x")
		const other = "10.7.7.7:7"
		f.add(other).Do("SET", keyA, "new")
		f.serve(fakeRange{0, 16383, other})
		f.mu.Lock()
		f.alias[seed] = other
		f.mu.Unlock()
		for _, addr := range []string{nodeA, nodeB, nodeC} {
			f.nodes[addr].Refuse(true)
			f.nodes[addr].KillConns(nil)
		}
		wantText(t, c, "new", "GET", keyA)
		if got := c.Stats(); got.Masters != 1 || got.Slots != cluster.Slots {
			t.Errorf("Stats = %+v", got)
		}
	})
}

// B35: one of three masters is down and the topology changes. Commands to the remaining masters are
// not disturbed.
func TestOneMasterDown(t *testing.T) {
	bubble(t, cluster.Config{}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
		for _, key := range []string{keyA, keyB, keyC} {
			wantText(t, c, "OK", "SET", key, "x")
		}
		start := time.Now()
		var callers sync.WaitGroup
		for _, key := range []string{keyB, keyC} {
			callers.Go(func() {
				for time.Since(start) < 8*time.Second {
					took(t, 0, 0, func() {
						if _, err := c.Do(t.Context(), "INCR", "{"+key+"}n"); err != nil {
							t.Errorf("B35: %v", err)
						}
					})
					time.Sleep(time.Millisecond)
				}
			})
		}
		time.Sleep(time.Second)
		f.nodes[nodeA].Refuse(true)
		f.nodes[nodeA].KillConns(nil)
		const heir = "10.0.0.4:7004"
		f.add(heir).Do("SET", keyA, "inherited")
		time.AfterFunc(2*time.Second, func() {
			f.serve(fakeRange{0, 5460, heir}, fakeRange{5461, 10922, nodeB}, fakeRange{10923, 16383, nodeC})
		})
		took(t, 1500*time.Millisecond, 2600*time.Millisecond, func() { wantText(t, c, "inherited", "GET", keyA) })
		callers.Wait()
	})
}

// A master that hangs delays only its own callers, until another master serves its slots.
func TestHungMaster(t *testing.T) {
	bubble(t, cluster.Config{}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
		wantText(t, c, "OK", "SET", keyA, "x")
		f.nodes[nodeA].Mute(true)
		f.serve(fakeRange{0, 10922, nodeB}, fakeRange{10923, 16383, nodeC})
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		took(t, 200*time.Millisecond, 200*time.Millisecond, func() {
			if _, err := c.Do(ctx, "INCR", "{mylock}n"); !errors.Is(err, conn.ErrUncertain) || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%v, want ErrUncertain", err)
			}
		})
		time.Sleep(1200 * time.Millisecond) // the refresh may ask nodeA first
		took(t, 0, 0, func() { wantText(t, c, "1", "INCR", "{mylock}n") })
	})
}

// Once a hung master has been replaced, no call waits for the old master, whether the topology
// lists it as a replica or, while failed, not at all.
func TestHungMasterIsReplaced(t *testing.T) {
	for _, replica := range []string{"", "*2|" + str("10.0.0.1") + ":7001|"} {
		bubble(t, cluster.Config{}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
			get := func(k *conn.Conn) error {
				_, err := k.Do(t.Context(), "GET", keyA)
				return err
			}
			wantText(t, c, "OK", "SET", keyA, "x")
			if err := c.With(t.Context(), keyA, get); err != nil { // now both kinds of connections exist
				t.Fatal(err)
			}
			f.nodes[nodeA].Mute(true)
			first := fmt.Sprint("*", 3+min(len(replica), 1)) + "|:0|:10922|*2|" + str("10.0.0.2") + ":7002|" + replica
			for _, addr := range []string{nodeB, nodeC} {
				f.says(addr, "*2|"+first+"*3|:10923|:16383|*2|"+str("10.0.0.3")+":7003|")
			}
			var others sync.WaitGroup
			others.Go(func() { _, _ = c.Do(t.Context(), "INCR", keyA) })
			took(t, time.Second, 2600*time.Millisecond, func() {
				if err := c.With(t.Context(), keyA, get); !errors.Is(err, conn.ErrUncertain) {
					t.Errorf("%v, want ErrUncertain", err)
				}
			})
			others.Wait()
			took(t, 0, 0, func() { wantText(t, c, "1", "INCR", "{mylock}n") })
			time.Sleep(2 * time.Second)
			if got := c.Stats(); got.Masters != 2 || got.Slots != cluster.Slots || got.Nodes.InFlight > 0 {
				t.Errorf("Stats = %+v", got)
			}
		})
	}
}

// A node that leaves is dropped with its connections and streams. A node named in a redirection
// stays for a while.
func TestNodeLeaves(t *testing.T) {
	bubble(t, cluster.Config{}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
		var streams []*conn.Stream
		for range 12 {
			s, err := c.Stream(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			streams = append(streams, s)
		}
		hold := make(chan struct{})
		f.hook(nodeA, func(cmd fakeredis.Cmd) *fakeredis.Action {
			act := fakeredis.Wait(hold, fakeredis.Run())
			if cmd.Name != "GET" {
				return nil
			}
			return &act
		})
		answered := make(chan error, 1)
		go func() {
			answered <- c.With(t.Context(), keyA, func(k *conn.Conn) error { // so that the node answers other calls
				_, err := k.Do(t.Context(), "GET", keyA)
				return err
			})
		}()
		synctest.Wait()
		f.serve(fakeRange{0, 10922, nodeB}, fakeRange{10923, 16383, nodeC})
		f.answer(nodeC, "GET", fmt.Sprintf("-MOVED %d %s", slotC, nodeB), 1)
		if _, err := c.Do(t.Context(), "GET", keyC); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second)
		for _, s := range streams {
			if want := s.Addr() == nodeA; (s.Err() != nil) != want {
				t.Errorf("the stream to %s is closed: %v, want %v", s.Addr(), s.Err(), want)
			}
		}
		close(hold)
		if err := <-answered; err != nil {
			t.Errorf("a command that was sent before: %v", err)
		}
		time.Sleep(time.Second)
		if n := len(f.nodes[nodeA].Conns()); n > 0 {
			t.Errorf("%d connections to a node that has left", n)
		}
	})
}

func TestPeriodicRefresh(t *testing.T) {
	bubble(t, cluster.Config{RefreshInterval: 10 * time.Second}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
		time.Sleep(10 * time.Minute)
		if n := f.refreshes(); n < 55 || n > 67 {
			t.Errorf("the topology was asked for %d times in 10 minutes", n)
		}
	})
	bubble(t, cluster.Config{RefreshInterval: -1}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
		time.Sleep(time.Hour)
		if n := f.refreshes(); n != 1 {
			t.Errorf("the topology was asked for %d times", n)
		}
	})
	for range 10 { // no program lives to see the end of the largest interval, however it varies
		bubble(t, cluster.Config{RefreshInterval: math.MaxInt64}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
			time.Sleep(time.Hour)
			if n := f.refreshes(); n != 1 {
				t.Errorf("the topology was asked for %d times", n)
			}
		})
	}
}

func TestLog(t *testing.T) {
	var log bytes.Buffer
	var mu sync.Mutex
	var changes []conn.TopologyInfo
	node := conn.Config{Logger: slog.New(slog.NewTextHandler(&log, nil)), Password: "", Trace: &conn.Trace{
		Topology: func(i conn.TopologyInfo) {
			mu.Lock()
			defer mu.Unlock()
			changes = append(changes, i)
		},
	}}
	bubble(t, cluster.Config{Node: node, RefreshInterval: time.Second}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
		log.Reset()
		changes = nil
		time.Sleep(10 * time.Second)
		f.moveAll()
		time.Sleep(10 * time.Second)
		for _, srv := range f.nodes {
			srv.Refuse(true)
			srv.KillConns(nil)
		}
		time.Sleep(10 * time.Second)
		for _, srv := range f.nodes {
			srv.Refuse(false)
		}
		time.Sleep(20 * time.Second)
		synctest.Wait()
		for _, text := range []string{"cluster: topology has changed", "cluster: topology cannot be read", "cluster: topology read again"} {
			if n := strings.Count(log.String(), text); n != 1 {
				t.Errorf("%q is logged %d times, want once:\n%s", text, n, &log)
			}
		}
		mu.Lock()
		defer mu.Unlock()
		if len(changes) != 1 || changes[0].Masters == 0 || changes[0].Served != cluster.Slots || changes[0].Moved == 0 {
			t.Errorf("topology changes %+v, want one", changes)
		}
	})
}

// TestCallbackThatBlocks: the connections to a retired node are closed without waiting for callbacks. The Cluster goes on
// reading the topology.
func TestCallbackThatBlocks(t *testing.T) {
	var ended chan struct{}
	cfg := cluster.Config{Node: conn.Config{OnPush: func(resp.Value) { <-ended }}}
	bubble(t, cfg, func(t *testing.T, f *fakes, c *cluster.Cluster) {
		ended = make(chan struct{})
		defer close(ended)
		f.answer(nodeA, "INCR", ">2\r\n+invalidate\r\n+key\r\n:1", 1)
		wantText(t, c, "1", "INCR", keyA)
		f.serve(fakeRange{0, 10922, nodeB}, fakeRange{10923, 16383, nodeC})
		time.Sleep(2 * time.Minute) // the topology is read each minute
		f.serve(fakeRange{0, 16383, nodeC})
		time.Sleep(2 * time.Minute)
		if n := c.Stats().Masters; n != 1 {
			t.Errorf("%d masters are known, want 1", n)
		}
	})
}
