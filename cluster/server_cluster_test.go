package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockwire/lockwire/cluster"
	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/redistest"
	"github.com/lockwire/lockwire/pubsub"
	"github.com/lockwire/lockwire/resp"
)

// checkKeys reads the keys that TestServer has set, and those that there are not, of all slots.
func checkKeys(ctx context.Context, t *testing.T, c *cluster.Cluster) {
	t.Helper()
	var keys []string
	for i := range 1001 {
		keys = append(keys, fmt.Sprint("key:", i))
	}
	values, err := resp.Each[*int](c.MGet(ctx, keys))
	for i, v := range values {
		if (v == nil) != (i == 1000) || v != nil && *v != i {
			t.Fatalf("value %d is %v", i, v)
		}
	}
	if n, err2 := c.Exists(ctx, keys); n != 1000 || err != nil || err2 != nil {
		t.Errorf("Exists = %d, %v, %v", n, err, err2)
	}
	seen := map[string]bool{}
	for key, err := range conn.Scan(ctx, c, "MATCH", "key:*", "COUNT", 100) {
		if err != nil {
			t.Fatal(err)
		}
		seen[key] = true
	}
	if len(seen) != 1000 {
		t.Errorf("Scan has found %d keys, want 1000", len(seen))
	}
	if err := c.MSet(ctx, []string{"other:1", "a", "other:2", "b"}); err != nil {
		t.Error(err)
	}
	if n, err := c.Del(ctx, []string{"other:1", "other:2", "other:3"}); n != 2 || err != nil {
		t.Errorf("Del = %d, %v, want 2", n, err)
	}
}

func TestServer(t *testing.T) {
	redistest.RunClusters(t, redistest.Options{}, func(t *testing.T, rc *redistest.Cluster, proto int) {
		c := open(t, cluster.Config{Addrs: rc.Addrs()[:1], Node: rc.Config()})
		ctx := within(t)
		var sets, gets []resp.Command
		for i := range 1000 {
			sets = append(sets, resp.Cmd("SET", fmt.Sprint("key:", i), i))
			gets = append(gets, resp.Cmd("GET", fmt.Sprint("key:", i)))
		}
		if _, err := c.SendBatch(ctx, sets); err != nil {
			t.Fatal(err)
		}
		values, err := c.SendBatch(ctx, gets)
		if err != nil {
			t.Fatal(err)
		}
		for i, v := range values {
			if n, err := v.Int(); err != nil || int(n) != i {
				t.Fatalf("reply %d is %v, %v", i, n, err)
			}
		}
		checkKeys(ctx, t, c)
		total, masters := int64(0), 0
		for n, err := range c.Masters(ctx) {
			if err != nil {
				t.Fatal(err)
			}
			v, err := n.Do(ctx, "DBSIZE")
			if err != nil {
				t.Fatal(err)
			}
			size, _ := v.Int()
			total += size
			masters++
		}
		if total < 1000 || masters != 3 {
			t.Errorf("%d keys on %d masters", total, masters)
		}
		if _, err := c.Do(ctx, "MSET", "a", 1, "b", 2); !errors.Is(err, resp.ErrCrossSlot) {
			t.Errorf("MSET over two slots: %v, want CROSSSLOT", err)
		}
		if v, err := incr.Run(ctx, c, []string{"counter"}); err != nil {
			t.Error(v, err)
		}
		if values, err := c.Tx(ctx, []resp.Command{resp.Cmd("SET", "{t}a", 1), resp.Cmd("INCR", "{t}a")}); err != nil || texts(values) != "OK 2" {
			t.Errorf("a transaction: %q, %v", texts(values), err)
		}
		for _, v := range slotVectors {
			if got, err := c.Do(ctx, "CLUSTER", "KEYSLOT", v.key); err != nil || texts([]resp.Value{got}) != fmt.Sprint(v.slot) {
				t.Errorf("%q: the server says %v, %v", v.key, got, err)
			}
		}
		if got := c.Stats(); got.Moved+got.Asked+got.Retries > 0 {
			t.Errorf("Stats = %+v in a cluster that stands still", got)
		}
	})
}

// The topology of a server is that of its cluster.
func TestServerTopology(t *testing.T) {
	redistest.RunClusters(t, redistest.Options{}, func(t *testing.T, rc *redistest.Cluster, proto int) {
		cfg := rc.Config()
		cfg.Addr = rc.Addrs()[0]
		k, err := conn.Dial(within(t), cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer k.Close()
		top := readTopology(t, k, cfg.Addr)
		for limit := time.After(redistest.Patience); len(replicasOf(top)) < 3; top = readTopology(t, k, cfg.Addr) {
			select { // a replica is listed once the node has heard how far it is
			case <-limit:
				t.Fatalf("replicas %q", replicasOf(top))
			case <-time.After(10 * time.Millisecond):
			}
		}
		for slot := range cluster.Slots {
			if slot%100 == 0 && top.Owner(slot) != rc.Owner(slot).Addr() {
				t.Fatalf("slot %d is served by %q, want %q", slot, top.Owner(slot), rc.Owner(slot).Addr())
			}
		}
		masters, replicas := slices.Sorted(slices.Values(top.Masters())), replicasOf(top)
		if len(masters) != 3 || len(replicas) != 3 || top.Served() != cluster.Slots {
			t.Errorf("masters %q, replicas %q, %d slots", masters, replicas, top.Served())
		}
	})
}

// readTopology requests the topology.
func readTopology(t *testing.T, k *conn.Conn, addr string) cluster.Topology {
	t.Helper()
	v, err := k.Do(t.Context(), "CLUSTER", "SLOTS")
	if err != nil {
		t.Fatal(err)
	}
	top, err := cluster.Parse(v, addr)
	if err != nil {
		t.Fatal(err)
	}
	return top
}

func replicasOf(top cluster.Topology) []string {
	return slices.Compact(slices.Sorted(slices.Values(top.Replicas())))
}

// Slots migrate back and forth under load: nothing is lost, nothing runs twice and nothing fails.
func TestServerMigration(t *testing.T) {
	redistest.RunClusters(t, redistest.Options{}, func(t *testing.T, rc *redistest.Cluster, proto int) {
		c := open(t, cluster.Config{Addrs: rc.Addrs()[:1], Node: rc.Config()})
		masters := rc.Masters()
		tags := tagsOf(rc, masters[0], 5)
		l := startLoad(t, c, tags, 30, nil)
		defer l.stop()
		rounds := 0
		for deadline := time.Now().Add(loadTime(t, time.Second)); time.Now().Before(deadline) || rounds < 3; rounds++ {
			from, to := masters[rounds%3], masters[(rounds+1)%3]
			for _, tag := range tags {
				moveSlowly(t, rc, l, cluster.Slot(tag), from, to)
			}
		}
		l.end(false)
		for _, tag := range tags {
			if slot := cluster.Slot(tag); rc.Owner(slot) != masters[0] {
				rc.Move(slot, masters[0])
			}
		}
		rc.Await()
		if got := c.Stats(); got.Moved == 0 || got.Asked == 0 {
			t.Errorf("%d rounds, but Stats = %+v", rounds, got)
		}
		for _, s := range masters {
			s.Do("FLUSHALL")
		}
	})
}

// moveSlowly migrates a slot in small steps, so that its keys are temporarily on two nodes.
func moveSlowly(t *testing.T, rc *redistest.Cluster, l *load, slot int, from, to *redistest.Server) {
	t.Helper()
	if err := rc.BeginMove(slot, from, to); err != nil {
		t.Fatal(err)
	}
	l.await(10 * time.Millisecond)
	for more := true; more; {
		var err error
		if more, err = rc.MoveKeys(slot, from, to, 7); err != nil {
			t.Fatal(err)
		}
		l.await(3 * time.Millisecond)
	}
	if err := rc.EndMove(slot, to); err != nil {
		t.Fatal(err)
	}
}

// A master is killed under load. Only calls on its keys may fail, no call counts twice, and callers
// of other masters are not disturbed.
func TestServerKillMaster(t *testing.T) {
	redistest.RunClusters(t, redistest.Options{}, func(t *testing.T, rc *redistest.Cluster, proto int) {
		c := open(t, cluster.Config{Addrs: rc.Addrs(), Node: rc.Config()})
		var tags []string
		for _, s := range rc.Masters() {
			tags = append(tags, tagsOf(rc, s, 3)...)
		}
		var victims atomic.Pointer[[]int] // the slots of the killed master
		victims.Store(new([]int))
		mayErr := func(key string) bool { return slices.Contains(*victims.Load(), cluster.Slot(key)) }
		l := startLoad(t, c, tags, 5, mayErr)
		defer l.stop()
		rounds := int(loadTime(t, 0)/(10*time.Second)) + 1
		for range rounds {
			l.await(200 * time.Millisecond)
			old := rc.Masters()[0]
			var slots []int
			for _, tag := range tags {
				if slot := cluster.Slot(tag); rc.Owner(slot) == old {
					slots = append(slots, slot)
				}
			}
			victims.Store(&slots)
			old.Kill()
			rc.AwaitTakeover(old)
			took := awaitServed(t, c, tags)
			if took > redistest.Patience {
				t.Errorf("all slots are served %v after the takeover", took)
			}
			old.Restart()
			rc.Await()
		}
		l.end(true)
		awaitStats(t, c, "3 masters", func(s cluster.Stats) bool { return s.Slots == cluster.Slots && s.Masters == 3 })
		for _, s := range rc.Masters() {
			s.Do("FLUSHALL")
		}
	})
}

// A node joins, takes slots over, gives them back and leaves. Then every node is restarted. Nothing
// fails.
func TestServerNodesComeAndGo(t *testing.T) {
	redistest.RunClusters(t, redistest.Options{}, func(t *testing.T, rc *redistest.Cluster, proto int) {
		c := open(t, cluster.Config{Addrs: rc.Addrs()[:1], Node: rc.Config(), RefreshInterval: time.Second})
		old := rc.Masters()[0]
		tags := tagsOf(rc, old, 4)
		l := startLoad(t, c, tags, 5, nil)
		defer l.stop()
		added := rc.Add()
		for _, tag := range tags {
			rc.Move(cluster.Slot(tag), added)
		}
		rc.Await()
		l.await(200 * time.Millisecond)
		awaitStats(t, c, "4 masters", func(s cluster.Stats) bool { return s.Masters == 4 })
		if n, ok := c.Owner("{" + tags[0] + "}0"); !ok || n.Addr() != added.Addr() {
			t.Errorf("the owner is %s, want the new node", n.Addr())
		}
		for _, tag := range tags {
			rc.Move(cluster.Slot(tag), old)
		}
		l.await(200 * time.Millisecond)
		rc.Remove(added)
		rc.Await()
		awaitStats(t, c, "3 masters", func(s cluster.Stats) bool { return s.Masters == 3 })
		l.end(false)
		for _, s := range rc.Masters() {
			s.Do("FLUSHALL")
		}
	})
}

// All nodes are restarted one after another, as by an administrator: a master after its replica has
// taken over.
func TestServerRollingRestart(t *testing.T) {
	redistest.RunClusters(t, redistest.Options{}, func(t *testing.T, rc *redistest.Cluster, proto int) {
		c := open(t, cluster.Config{Addrs: rc.Addrs(), Node: rc.Config()})
		var tags []string
		for _, s := range rc.Masters() {
			tags = append(tags, tagsOf(rc, s, 2)...)
		}
		// A command under way when a server stops may have run. No call certainly failed.
		l := startLoad(t, c, tags, 5, func(string) bool { return true })
		defer l.stop()
		nodes := rc.Nodes()
		if loadTime(t, 0) == 0 {
			nodes = []*redistest.Server{rc.Masters()[0]}
		}
		for _, s := range nodes {
			if slices.Contains(rc.Masters(), s) {
				rc.Promote(rc.Replica(s))
			}
			s.Stop()
			l.await(100 * time.Millisecond)
			s.Restart()
			rc.Await()
		}
		awaitServed(t, c, tags)
		l.end(true)
		if n := l.failed.Load(); n > 0 {
			t.Errorf("%d calls failed that were not uncertain", n)
		}
		for _, s := range rc.Masters() {
			s.Do("FLUSHALL")
		}
	})
}

// TLS, passwords and users work as with one server, also after redirections.
func TestServerTLSAndUsers(t *testing.T) {
	opts := redistest.Options{TLS: true, Password: "cluster secret", Users: []redistest.User{
		{Name: "app", Password: "app secret", Rules: "~* +@all -flushall"}}}
	redistest.RunClusters(t, opts, func(t *testing.T, rc *redistest.Cluster, proto int) {
		node := rc.Config()
		node.Username, node.Password = "app", "app secret"
		c := open(t, cluster.Config{Addrs: rc.Addrs()[:1], Node: node})
		masters := rc.Masters()
		tags := tagsOf(rc, masters[0], 2)
		l := startLoad(t, c, tags, 5, nil)
		l.await(100 * time.Millisecond)
		rc.Move(cluster.Slot(tags[0]), masters[1])
		l.await(100 * time.Millisecond)
		rc.Move(cluster.Slot(tags[0]), masters[0])
		l.end(false)
		for n := range c.Masters(t.Context()) {
			if _, err := n.Do(t.Context(), "FLUSHALL"); !errors.Is(err, resp.ErrNoPerm) {
				t.Errorf("FLUSHALL: %v, want NOPERM", err)
			}
		}
		node.Password = "wrong"
		if _, err := cluster.Open(within(t), cluster.Config{Addrs: rc.Addrs(), Node: node}); !errors.Is(err, resp.ErrWrongPass) {
			t.Errorf("%v, want WRONGPASS", err)
		}
		for _, s := range masters {
			s.Do("FLUSHALL")
		}
	})
}

// awaitStats waits for the wanted Stats.
func awaitStats(t *testing.T, c *cluster.Cluster, what string, ok func(cluster.Stats) bool) {
	t.Helper()
	limit, again := time.After(redistest.Patience), time.NewTicker(10*time.Millisecond)
	defer again.Stop()
	for !ok(c.Stats()) {
		select {
		case <-again.C:
		case <-limit:
			t.Fatalf("no %s: %+v", what, c.Stats())
		}
	}
}

// awaitServed waits until a command on each tag succeeds, and returns the time taken.
func awaitServed(t *testing.T, c *cluster.Cluster, tags []string) time.Duration {
	t.Helper()
	start := time.Now()
	for _, tag := range tags {
		for {
			_, err := c.Do(within(t), "GET", "{"+tag+"}0")
			if err == nil {
				break
			}
			if time.Since(start) > redistest.Patience {
				t.Fatalf("%s: %v", tag, err)
			}
		}
	}
	return time.Since(start)
}

// A master hangs, and a replica takes over. A call with a much longer limit ends soon afterwards
// and reports the reason.
func TestServerHungMaster(t *testing.T) {
	redistest.RunClusters(t, redistest.Options{}, func(t *testing.T, rc *redistest.Cluster, proto int) {
		c := open(t, cluster.Config{Addrs: rc.Addrs(), Node: rc.Config()})
		old := rc.Masters()[0]
		key := tagsOf(rc, old, 1)[0]
		if _, err := c.Do(t.Context(), "INCR", key); err != nil {
			t.Fatal(err)
		}
		old.Pause()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		ended := make(chan error, 1)
		go func() {
			_, err := c.Do(ctx, "INCR", key)
			ended <- err
		}()
		rc.AwaitTakeover(old)
		begin := time.Now()
		err := <-ended
		t.Logf("ended %v after the takeover", time.Since(begin))
		if ctx.Err() != nil || !errors.Is(err, conn.ErrUncertain) || errors.Is(err, conn.ErrClosed) {
			t.Errorf("%v, want that it is uncertain, before the context ends", err)
		}
		awaitServed(t, c, []string{key})
		old.Continue()
		rc.Await()
	})
}

// files returns the number of open files of the process, or false on a system without the number.
func files(t *testing.T) (int, bool) {
	t.Helper()
	if runtime.GOOS != "linux" {
		return 0, false
	}
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list), true
}

// After Close no goroutine and no connection is left.
func TestServerLeaks(t *testing.T) {
	redistest.RunClusters(t, redistest.Options{}, func(t *testing.T, rc *redistest.Cluster, proto int) {
		masters := rc.Masters()
		tags := append(tagsOf(rc, masters[0], 2), tagsOf(rc, masters[1], 2)...)
		before, countable := files(t)
		for range 3 {
			c, err := cluster.Open(within(t), cluster.Config{Addrs: rc.Addrs(), Node: rc.Config()})
			if err != nil {
				t.Fatal(err)
			}
			s := pubsub.New(c, pubsub.Config{})
			for _, tag := range tags {
				if _, err := s.Listen("{" + tag + "}c"); err != nil {
					t.Fatal(err)
				}
			}
			l := startLoad(t, c, tags, 3, nil)
			rc.Move(cluster.Slot(tags[0]), masters[1])
			rc.Move(cluster.Slot(tags[0]), masters[0])
			l.end(false)
			for _, m := range masters {
				m.Do("FLUSHALL")
			}
			s.Close()
			c.Close()
		}
		redistest.NoGoroutines(t)
		if after, _ := files(t); countable && after > before {
			t.Errorf("%d files are open, before it were %d", after, before)
		}
	})
}

// Reads go to the replica of the key's master while there is one, and to the master without one.
func TestServerReplicas(t *testing.T) {
	redistest.RunClusters(t, redistest.Options{}, func(t *testing.T, rc *redistest.Cluster, proto int) {
		c := open(t, cluster.Config{Addrs: rc.Addrs()[:1], Node: rc.Config(), RefreshInterval: 50 * time.Millisecond})
		ctx := within(t)
		r := c.Replicas()
		awaitRole(ctx, t, r, "role:slave")
		values, err := c.SendBatch(ctx, []resp.Command{resp.Cmd("SET", "k", "v"), resp.Cmd("WAIT", 1, redistest.Patience.Milliseconds())})
		if n, _ := resp.As[int](values[1], err); n != 1 {
			t.Fatalf("SET = %v, %v", values, err)
		}
		for range 10 {
			wantText(t, r, "v", "GET", "k")
		}
		wantText(t, r, "OK", "SET", "k", "w")
		wantText(t, c, "w", "GET", "k")
		replica := rc.Replica(rc.Owner(cluster.Slot("k")))
		defer replica.Restart()
		replica.Kill()
		awaitRole(ctx, t, r, "role:master")
		wantText(t, r, "w", "GET", "k")
	})
}

// awaitRole waits until a server of this role answers reads of the key k.
func awaitRole(ctx context.Context, t *testing.T, r cluster.Replicas, role string) {
	t.Helper()
	for {
		info, err := resp.As[string](r.Send(ctx, resp.Cmd("INFO", "replication").On("k")))
		if strings.Contains(info, role) {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("no answer of %s: %q, %v", role, info, err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}
