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
	"github.com/lockwire/lockwire/internal/redistest"
	"github.com/lockwire/lockwire/resp"
	"github.com/lockwire/lockwire/script"
)

// replicaB1 and replicaB2 are replicas of nodeB.
const replicaB1, replicaB2 = "10.0.1.1:7011", "10.0.1.2:7012"

// withReplicas is bubble with the two replicas, whose keys differ from their master's.
func withReplicas(t *testing.T, cfg cluster.Config, fn func(t *testing.T, f *fakes, c *cluster.Cluster)) {
	t.Helper()
	bareBubble(t, func(t *testing.T, f *fakes, proto int) {
		wire := strings.ReplaceAll(f.slotsLocked(), "\r\n", "|")
		wire = strings.Replace(wire, "*3|:5461|", "*5|:5461|", 1)
		master := "*2|" + str("10.0.0.2") + ":7002|"
		wire = strings.Replace(wire, master, master+"*2|"+str("10.0.1.1")+":7011|*2|"+str("10.0.1.2")+":7012|", 1)
		for _, addr := range []string{replicaB1, replicaB2} {
			f.add(addr)
			f.asReplica(addr)
		}
		for addr, srv := range f.nodes {
			f.says(addr, wire)
			srv.Do("SET", keyB, addr)
		}
		cfg := cfg
		cfg.Addrs, cfg.Node.Protocol = []string{nodeA}, proto
		fn(t, f, f.open(cfg))
	})
}

// asReplica makes a node behave as a replica of nodeB: it serves GET after READONLY on the connection, and redirects all else.
func (f *fakes) asReplica(addr string) {
	ready := map[int64]bool{}
	f.hook(addr, func(cmd fakeredis.Cmd) *fakeredis.Action {
		act := fakeredis.Reply("+OK\r\n")
		switch {
		case cmd.Name == "READONLY":
			ready[cmd.Conn] = true
		case cmd.Name == "SET", (cmd.Name == "GET" || cmd.Name == "MGET") && !ready[cmd.Conn]:
			act = moved(nodeB)
		default:
			return nil
		}
		return &act
	})
}

// answerReads makes a replica answer each GET with act.
func (f *fakes) answerReads(addr string, act fakeredis.Action) {
	f.hook(addr, func(cmd fakeredis.Cmd) *fakeredis.Action {
		ok := fakeredis.Reply("+OK\r\n")
		switch cmd.Name {
		case "READONLY":
			return &ok
		case "GET":
			return &act
		}
		return nil
	})
}

func moved(to string) fakeredis.Action {
	return fakeredis.Reply(fmt.Sprintf("-MOVED %d %s\r\n", slotB, to))
}

func TestReplicas(t *testing.T) {
	withReplicas(t, cluster.Config{}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
		r := c.Replicas()
		seen := map[string]int{}
		for range 50 {
			s, err := resp.As[string](r.Do(t.Context(), "GET", keyB))
			if err != nil {
				t.Fatal(err)
			}
			seen[s]++
		}
		if len(seen) != 2 || seen[replicaB1] == 0 || seen[replicaB2] == 0 {
			t.Errorf("answers of %v, want both replicas and no master", seen)
		}
		values, err := r.SendBatch(t.Context(), []resp.Command{resp.Cmd("GET", keyB), resp.Cmd("GET", keyB), resp.Cmd("GET", keyA)})
		if got := texts(values[:2]); err != nil || !values[2].IsNull() || got != replicaB1+" "+replicaB1 && got != replicaB2+" "+replicaB2 {
			t.Errorf("batch: %s, %v, want both from one replica", got, err)
		}
		if values, err := resp.Each[string](r.MGet(t.Context(), []string{keyB})); err != nil || values[0] == nodeB {
			t.Errorf("MGet = %v, %v", values, err)
		}
		if n, err := r.Exists(t.Context(), []string{keyB, keyA}); n != 1 || err != nil {
			t.Errorf("Exists = %d, %v", n, err)
		}
		if n := f.nodes[nodeB].Count("GET") + f.nodes[nodeB].Count("MGET"); n != 0 {
			t.Errorf("the master got %d reads", n)
		}
		wantText(t, r, "OK", "SET", keyB, "new") // runs on the master
		wantText(t, c, "new", "GET", keyB)
		if _, err := r.Do(t.Context(), "GET"); err == nil {
			t.Error("GET without a key")
		}
	})
}

// A read that goes to a replica and then to the master is one call for a Trace.
func TestReplicasTraced(t *testing.T) {
	var ends []conn.CommandEnd
	cfg := cluster.Config{}
	cfg.Node.Trace = &conn.Trace{CommandEnd: func(_ context.Context, end conn.CommandEnd) { ends = append(ends, end) }}
	withReplicas(t, cfg, func(t *testing.T, f *fakes, c *cluster.Cluster) {
		for _, addr := range []string{replicaB1, replicaB2} {
			f.answerReads(addr, fakeredis.Reply("-LOADING busy\r\n"))
		}
		ends = nil
		wantText(t, c.Replicas(), nodeB, "GET", keyB)
		if len(ends) != 1 || ends[0].Attempts != 2 || ends[0].Name != "GET" || ends[0].Server != nodeB || ends[0].Err != nil {
			t.Errorf("the Trace was told %+v, want one call with two attempts", ends)
		}
	})
}

// Reads go to the master where no replica answers.
func TestReplicasThatDoNotServe(t *testing.T) {
	for name, spoil := range map[string]func(f *fakes, addr string){
		"down":       func(f *fakes, addr string) { f.nodes[addr].Refuse(true) },
		"loading":    func(f *fakes, addr string) { f.answerReads(addr, fakeredis.Reply("-LOADING busy\r\n")) },
		"masterless": func(f *fakes, addr string) { f.answerReads(addr, fakeredis.Reply("-MASTERDOWN Link down\r\n")) },
		"moved":      func(f *fakes, addr string) { f.answerReads(addr, moved(nodeB)) },
		"confused":   func(f *fakes, addr string) { f.answerReads(addr, moved(addr)) },
	} {
		t.Run(name, func(t *testing.T) {
			withReplicas(t, cluster.Config{}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
				spoil(f, replicaB1)
				spoil(f, replicaB2)
				r := c.Replicas()
				took(t, 0, 0, func() {
					for range 3 {
						wantText(t, r, nodeB, "GET", keyB)
					}
					values, err := r.SendBatch(t.Context(), []resp.Command{resp.Cmd("GET", keyB), resp.Cmd("ECHO", "x").On(keyA)})
					if got := texts(values); got != nodeB+" x" || err != nil {
						t.Errorf("batch: %s, %v", got, err)
					}
				})
			})
		})
	}
}

// A replica that does not answer is left out for a while. Its caller is told, since the command was sent.
func TestReplicasThatHang(t *testing.T) {
	withReplicas(t, cluster.Config{Node: conn.Config{Timeout: time.Second}}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
		r := c.Replicas()
		f.answerReads(replicaB1, fakeredis.Swallow())
		failed := 0
		for range 40 {
			s, err := resp.As[string](r.Do(t.Context(), "GET", keyB))
			if err != nil && !errors.Is(err, conn.ErrUncertain) || err == nil && s != replicaB2 {
				t.Errorf("GET = %q, %v", s, err)
			}
			if err != nil {
				failed++
			}
		}
		if failed != 1 {
			t.Errorf("%d reads have failed, want 1", failed)
		}
	})
}

// The connections to replicas end with the Cluster, or when the replica leaves it, and count in Stats.
func TestReplicasAreClosed(t *testing.T) {
	withReplicas(t, cluster.Config{}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
		r := c.Replicas()
		for range 50 {
			if _, err := r.Do(t.Context(), "GET", keyB); err != nil {
				t.Fatal(err)
			}
		}
		if n := c.Stats().Nodes.Shared; n != 2 {
			t.Errorf("%d connections, want one to each replica", n)
		}
		for addr := range f.nodes {
			f.says(addr, f.slotsLocked())
		}
		f.answer(nodeA, "GET", fmt.Sprintf("-MOVED %d %s", slotA, nodeC), 1) // has the topology read
		if _, err := c.Do(t.Context(), "GET", keyA); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		for _, addr := range []string{replicaB1, replicaB2} {
			if n := len(f.nodes[addr].Conns()); n != 0 {
				t.Errorf("%d connections to %s, which has left", n, addr)
			}
		}
		wantText(t, r, nodeB, "GET", keyB)
		c.Close()
		if _, err := r.Do(context.Background(), "GET", keyB); !errors.Is(err, conn.ErrClosed) {
			t.Errorf("GET after Close = %v", err)
		}
	})
}

// A master that has become a replica serves reads, over connections of its own.
func TestReplicasAfterFailover(t *testing.T) {
	withReplicas(t, cluster.Config{RefreshInterval: time.Second}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
		wantText(t, c, nodeB, "GET", keyB)
		f.asReplica(nodeB)
		f.hook(replicaB1, func(fakeredis.Cmd) *fakeredis.Action { return nil })
		f.mu.Lock()
		wire := strings.ReplaceAll(f.raw[nodeA], "\r\n", "|")
		f.mu.Unlock()
		wire = strings.Replace(wire, "*5|:5461|", "*4|:5461|", 1)
		old, heir, other := "*2|"+str("10.0.0.2")+":7002|", "*2|"+str("10.0.1.1")+":7011|", "*2|"+str("10.0.1.2")+":7012|"
		wire = strings.Replace(wire, old+heir+other, heir+old, 1)
		for addr := range f.nodes {
			f.says(addr, wire)
		}
		time.Sleep(1500 * time.Millisecond) // one refresh
		synctest.Wait()
		dials := f.dials(replicaB1)
		for range 5 {
			wantText(t, c.Replicas(), nodeB, "GET", keyB)
		}
		if f.dials(replicaB1) != dials {
			t.Error("reads went to the new master")
		}
	})
}

// No connection is dialled after Close.
func TestReplicasAfterClose(t *testing.T) {
	withReplicas(t, cluster.Config{}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
		r := c.Replicas()
		c.Close()
		if _, err := r.Do(t.Context(), "GET", keyB); !errors.Is(err, conn.ErrClosed) || f.dials(replicaB1)+f.dials(replicaB2) > 0 {
			t.Errorf("GET after Close = %v", err)
		}
	})
}

func ExampleCluster_Replicas() {
	withCluster(func(ctx context.Context, c *cluster.Cluster) {
		if _, err := c.Do(ctx, "SET", "motto", "festina lente"); err != nil {
			fmt.Println(err)
		}
		// A replica may not know the motto yet. Without a replica the master answers.
		fmt.Println(resp.Maybe[string](c.Replicas().Do(ctx, "GET", "motto")))
	})
	// Output: festina lente true <nil>
}

// The table of reads has no write of the server.
func TestServerReads(t *testing.T) {
	redistest.Run(t, func(t *testing.T, s *redistest.Server) {
		reads := 0
		for cmd := range s.Do("COMMAND").All() {
			name, _ := cmd.At(0).Text()
			flags, err := resp.As[[]string](cmd.At(2), nil)
			if err != nil {
				t.Fatalf("COMMAND about %s: %v", name, err)
			}
			known := cluster.IsRead(resp.Cmd(name))
			if known && slices.Contains(flags, "write") {
				t.Errorf("%s is a write", name)
			}
			if known {
				reads++
			}
		}
		if reads < 50 {
			t.Errorf("the server knows %d reads", reads)
		}
	})
}

func TestIsRead(t *testing.T) {
	for _, name := range []string{"get", "GET", "Mget", "EVAL_RO", "georadiusbymember_ro"} {
		if !cluster.IsRead(resp.Cmd(name)) {
			t.Errorf("%s is no read", name)
		}
	}
	if !cluster.IsRead(resp.Cmd("script", "load", "return 1")) || cluster.IsRead(resp.Cmd("SCRIPT", "FLUSH")) {
		t.Error("of SCRIPT, LOAD alone is a read")
	}
	for _, name := range []string{"SET", "EVAL", "EVALSHA", "FCALL", "GETEX", "SORT", "HSCAN", "JSON.GET", "georadiusbymember_roo", "@GET"} {
		if cluster.IsRead(resp.Cmd(name)) {
			t.Errorf("%s is a read", name)
		}
	}
}

// The only master, which is the last in the table as well, has a replica.
func TestReplicasOfTheOnlyMaster(t *testing.T) {
	bareBubble(t, func(t *testing.T, f *fakes, proto int) {
		f.add(replicaB1)
		f.asReplica(replicaB1)
		for addr, srv := range f.nodes {
			f.says(addr, "*1|*4|:0|:16383|*2|"+str("10.0.0.2")+":7002|*2|"+str("10.0.1.1")+":7011|")
			srv.Do("SET", keyB, addr)
		}
		c := f.open(cluster.Config{Addrs: []string{nodeB}, Node: conn.Config{Protocol: proto}})
		wantText(t, c.Replicas(), replicaB1, "GET", keyB)
	})
}

// What needs no replica is as for the Cluster: an empty batch, a batch that ends in WAIT, and a command for a single node, which is refused.
func TestReplicasOfNoUse(t *testing.T) {
	withReplicas(t, cluster.Config{}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
		r := c.Replicas()
		if values, err := r.SendBatch(t.Context(), nil); values != nil || err != nil {
			t.Errorf("an empty batch: %v, %v", values, err)
		}
		if values, err := r.SendBatch(t.Context(), waiting(resp.Cmd("GET", keyB))); err != nil || texts(values) != nodeB+" 0" {
			t.Errorf("ending in WAIT: %q, %v, want the reply of the master", texts(values), err)
		}
		if _, err := r.Do(t.Context(), "DBSIZE"); !errors.Is(err, conn.ErrRefused) {
			t.Errorf("DBSIZE: %v, want ErrRefused", err)
		}
		f.wantCounts("DBSIZE", 0, 0, 0)
	})
}

// What is not known to be a read does not touch a replica.
func TestReplicasAndWrites(t *testing.T) {
	withReplicas(t, cluster.Config{}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
		r := c.Replicas()
		for _, args := range [][]any{{"SET", keyB, "v"}, {"EVAL", "return redis.call('SET', KEYS[1], 'x')", 1, keyB}, {"FCALL", "f", 1, keyB}, {"JSON.GET", keyB}} {
			_, _ = r.Do(t.Context(), args...) // the fake does not know all of them
		}
		if n := f.dials(replicaB1) + f.dials(replicaB2); n != 0 {
			t.Errorf("%d connections to replicas", n)
		}
	})
}

// A replica that has forgotten a script gets the script again: the master does not answer in its place.
func TestReplicasAndForgottenScripts(t *testing.T) {
	withReplicas(t, cluster.Config{}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
		s := script.New("return redis.call('GET', KEYS[1])")
		for _, srv := range f.nodes {
			srv.Script(s.Source(), func(call *fakeredis.Call) any { return call.Do("GET", call.Keys[0]) })
		}
		for range 20 {
			if got, err := resp.As[string](s.RunRO(t.Context(), c.Replicas(), []string{keyB})); err != nil || got == nodeB {
				t.Errorf("RunRO() = %q, %v, want the value of a replica", got, err)
			}
		}
	})
}

// A batch that also writes in a slot goes to its master in whole, so that reads see the writes before them.
func TestReplicasAndBatchesThatWrite(t *testing.T) {
	withReplicas(t, cluster.Config{}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
		f.nodes[nodeA].Do("SET", keyA, "a")
		values, err := c.Replicas().SendBatch(t.Context(), []resp.Command{
			resp.Cmd("GET", keyB), resp.Cmd("SET", keyB, "new"), resp.Cmd("GET", keyB), resp.Cmd("GET", keyA)})
		if got := texts(values); got != nodeB+" OK new a" || err != nil {
			t.Errorf("batch = %s, %v", got, err)
		}
	})
}

// A replica that has not heard of a failover does not change which node is asked for the locks.
func TestReplicasDoNotChangeTheTopology(t *testing.T) {
	withReplicas(t, cluster.Config{}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
		f.answerReads(replicaB1, moved(nodeC))
		f.answerReads(replicaB2, moved(nodeC))
		r := c.Replicas()
		wantText(t, r, nodeB, "GET", keyB)
		if _, err := r.SendBatch(t.Context(), []resp.Command{resp.Cmd("GET", keyB), resp.Cmd("TTL", keyB)}); err != nil {
			t.Error(err)
		}
		if n, _ := c.Owner(keyB); n.Addr() != nodeB {
			t.Errorf("the owner is %s now", n.Addr())
		}
	})
}

// An attempt at a replica counts neither as an attempt nor as a redirection.
func TestReplicasWithoutRepeats(t *testing.T) {
	for _, cfg := range []cluster.Config{
		{Node: conn.Config{Retry: conn.Retry{Attempts: 1}}}, {Node: conn.Config{Retry: conn.Retry{Attempts: -1}}}, {MaxRedirects: -1},
	} {
		for name, spoil := range map[string]func(f *fakes, addr string){
			"down":    func(f *fakes, addr string) { f.nodes[addr].Refuse(true) },
			"moved":   func(f *fakes, addr string) { f.answerReads(addr, moved(nodeB)) },
			"loading": func(f *fakes, addr string) { f.answerReads(addr, fakeredis.Reply("-LOADING busy\r\n")) },
		} {
			t.Run(fmt.Sprint(name, cfg.Node.Retry.Attempts, cfg.MaxRedirects), func(t *testing.T) {
				withReplicas(t, cfg, func(t *testing.T, f *fakes, c *cluster.Cluster) {
					spoil(f, replicaB1)
					spoil(f, replicaB2)
					r := c.Replicas()
					wantText(t, r, nodeB, "GET", keyB)
					values, err := r.SendBatch(t.Context(), []resp.Command{resp.Cmd("GET", keyB), resp.Cmd("GET", keyA)})
					if err != nil || texts(values[:1]) != nodeB {
						t.Errorf("batch = %v, %v", values, err)
					}
				})
			})
		}
	}
}

// A user who may not send READONLY is told so.
func TestReplicasWithoutPermission(t *testing.T) {
	withReplicas(t, cluster.Config{}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
		for _, addr := range []string{replicaB1, replicaB2} {
			f.answer(addr, "READONLY", "-NOPERM User x has no permissions to run the 'readonly' command", 0)
		}
		if _, err := c.Replicas().Do(t.Context(), "GET", keyB); !errors.Is(err, resp.ErrNoPerm) {
			t.Errorf("GET = %v", err)
		}
	})
}
