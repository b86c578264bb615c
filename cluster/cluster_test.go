package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
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

func TestMasters(t *testing.T) {
	bubble(t, cluster.Config{}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
		var addrs []string
		for n, err := range c.Masters(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			addrs = append(addrs, n.Addr())
			if _, err := n.Do(t.Context(), "DBSIZE"); err != nil {
				t.Error(err)
			}
			if values, err := n.SendBatch(t.Context(), []resp.Command{resp.Cmd("SCAN", 0), resp.Cmd("PING")}); err != nil || len(values) != 2 {
				t.Errorf("%v, %v", values, err)
			}
			if err := n.With(t.Context(), func(k *conn.Conn) error { return nil }); err != nil {
				t.Error(err)
			}
		}
		if want := []string{nodeA, nodeB, nodeC}; !slices.Equal(addrs, want) {
			t.Errorf("masters %q, want %q", addrs, want)
		}
		f.wantCounts("DBSIZE", 1, 1, 1)
		f.wantCounts("SCAN", 1, 1, 1)
		for range c.Masters(t.Context()) {
			break
		}
		doers := 0
		for d, err := range c.Doers(t.Context()) {
			if doers++; err != nil || d.(cluster.Node).Addr() != addrs[doers-1] {
				t.Errorf("Doers: %v, %v, want the masters", d, err)
			}
			if doers == 2 {
				break
			}
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		reason := errors.New("enough")
		seen := 0
		for _, err := range c.Masters(ctx) {
			if seen++; err != nil && err != reason {
				t.Errorf("%v, want the cause", err)
			}
			cancel(reason)
		}
		if seen != 2 {
			t.Errorf("%d masters of a ctx that ends at the first", seen)
		}
		c.Close()
		for _, err := range c.Masters(t.Context()) {
			if !errors.Is(err, conn.ErrClosed) {
				t.Errorf("after Close: %v", err)
			}
		}
	})
}

// Commands for a Node are never sent to another node, even when repeated.
func TestNode(t *testing.T) {
	bubble(t, cluster.Config{}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
		n, ok := c.Owner(keyB)
		if !ok || n.Addr() != nodeB {
			t.Fatalf("the owner of %s is %s, %v", keyB, n.Addr(), ok)
		}
		f.answer(nodeB, "GET", "-LOADING busy", 2)
		if v, err := n.Do(t.Context(), "GET", keyA); err != nil || !v.IsNull() {
			t.Errorf("%v, %v", v, err)
		}
		f.wantCounts("GET", 0, 3, 0)
		f.answer(nodeB, "GET", fmt.Sprintf("-MOVED %d %s", slotA, nodeA), 0)
		if _, err := n.Do(t.Context(), "GET", keyA); !errors.Is(err, resp.ErrMoved) {
			t.Errorf("%v, want MOVED", err)
		}
		f.wantCounts("GET", 0, 4, 0)
		for _, kind := range []string{"MOVED", "ASK"} {
			f.answer(nodeB, "GET", fmt.Sprintf("-%s %d %s", kind, slotB, nodeA), 1)
			if _, err := n.Do(t.Context(), "GET", keyB); !errors.Is(err, resp.Error(kind)) {
				t.Errorf("%v, want %s", err, kind)
			}
			if owner, _ := c.Owner(keyB); owner.Addr() != nodeB {
				t.Errorf("%s to a call for one node moves a slot to %s", kind, owner.Addr())
			}
		}
		f.wantCounts("GET", 0, 6, 0)
	})
}

// A caller's short limit says nothing about the node: the Cluster does not avoid the node.
func TestImpatientCallers(t *testing.T) {
	bubble(t, cluster.Config{}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
		f.hook(nodeB, func(cmd fakeredis.Cmd) *fakeredis.Action {
			act := fakeredis.Delay(time.Second, fakeredis.Run())
			if cmd.Name != "GET" {
				return nil
			}
			return &act
		})
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if _, err := c.Do(ctx, "GET", keyB); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v, want the end of ctx", err)
		}
		for range 50 {
			wantText(t, c, "PONG", "PING")
		}
		if f.nodes[nodeB].Count("PING") == 0 {
			t.Error("none of 50 calls for any node went there")
		}
	})
}

func TestWith(t *testing.T) {
	bubble(t, cluster.Config{}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
		f.nodes[nodeA].Do("RPUSH", keyA, "x")
		f.nodes[nodeB].Do("RPUSH", keyA, "y")
		pop := func(k *conn.Conn) error {
			_, err := k.Do(t.Context(), "BLPOP", keyA, 1)
			return err
		}
		if err := c.With(t.Context(), keyA, pop); err != nil {
			t.Error(err)
		}
		f.wantCounts("BLPOP", 1, 0, 0)
		f.answer(nodeA, "BLPOP", fmt.Sprintf("-MOVED %d %s", slotA, nodeB), 0)
		if err := c.With(t.Context(), keyA, pop); !errors.Is(err, resp.ErrMoved) {
			t.Errorf("%v, want MOVED", err)
		}
		if err := c.With(t.Context(), keyA, pop); err != nil { // learnt
			t.Error(err)
		}
		f.wantCounts("BLPOP", 2, 1, 0)
	})
	bareBubble(t, func(t *testing.T, f *fakes, proto int) {
		f.serve(fakeRange{0, 5460, nodeA})
		c := f.open(cluster.Config{Addrs: []string{nodeA}, Node: conn.Config{Protocol: proto}})
		if err := c.With(t.Context(), keyC, nil); !conn.SafeToRetry(err) {
			t.Errorf("for a slot that nobody serves: %v", err)
		}
	})
}

// With looks for a node until a connection is available, and never calls its function twice.
func TestWithLooksForTheOwner(t *testing.T) {
	bubble(t, cluster.Config{}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
		calls := 0
		ping := func(k *conn.Conn) error {
			calls++
			_, err := k.Do(t.Context(), "ECHO", "x")
			return err
		}
		f.nodes[nodeA].Refuse(true)
		f.serve(fakeRange{0, 10922, nodeB}, fakeRange{10923, 16383, nodeC})
		took(t, 0, time.Second, func() {
			if err := c.With(t.Context(), keyA, ping); err != nil {
				t.Errorf("its node cannot be reached any more: %v", err)
			}
		})
		f.wantCounts("ECHO", 0, 1, 0)
		f.answer(nodeB, "ECHO", "-LOADING x", 0)
		if err := c.With(t.Context(), keyA, ping); !errors.Is(err, resp.ErrLoading) || calls != 2 {
			t.Errorf("%d calls, %v; want one more, and its error", calls, err)
		}

		f.nodes[nodeB].Unreachable(true)
		f.nodes[nodeB].KillConns(nil)
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		took(t, time.Second, time.Second, func() {
			if err := c.With(ctx, keyA, ping); !errors.Is(err, context.DeadlineExceeded) || !conn.SafeToRetry(err) || calls != 2 {
				t.Errorf("%d calls, %v; want none more, and the end of ctx", calls, err)
			}
		})
	})
}

// Close immediately ends all activities of a Cluster.
func TestClose(t *testing.T) {
	loading := func(f *fakes, addr string) { f.answer(addr, "GET", "-LOADING busy", 0) }
	stages := map[string]func(f *fakes){
		"idle":      func(f *fakes) {},
		"pausing":   func(f *fakes) { loading(f, nodeA); loading(f, nodeB) },
		"dialling":  func(f *fakes) { f.nodes[nodeA].Unreachable(true); f.nodes[nodeB].Unreachable(true) },
		"refused":   func(f *fakes) { f.nodes[nodeA].Refuse(true) },
		"unserved":  func(f *fakes) { f.serve(fakeRange{5461, 16383, nodeC}) },
		"mute":      func(f *fakes) { f.nodes[nodeA].Mute(true); f.nodes[nodeB].Mute(true); f.nodes[nodeC].Mute(true) },
		"in a loop": func(f *fakes) { f.answer(nodeA, "GET", fmt.Sprintf("-MOVED %d %s", slotA, nodeA), 0) },
	}
	for name, stage := range stages {
		t.Run(name, func(t *testing.T) {
			bubble(t, cluster.Config{RefreshInterval: time.Second}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
				stage(f)
				results := make(chan error, 3)
				go func() {
					_, err := c.Do(t.Context(), "GET", keyA)
					results <- err
				}()
				go func() {
					_, err := c.SendBatch(t.Context(), []resp.Command{resp.Cmd("GET", keyA), resp.Cmd("GET", keyB)})
					results <- err
				}()
				go func() {
					_, err := c.Tx(t.Context(), []resp.Command{resp.Cmd("GET", keyA)})
					results <- err
				}()
				time.Sleep(300 * time.Millisecond)
				took(t, 0, 0, func() {
					if err := c.Close(); err != nil {
						t.Errorf("Close: %v", err)
					}
				})
				took(t, 0, 0, func() {
					for range 3 {
						<-results
					}
				})
				synctest.Wait()
				dials := f.dials(nodeA) + f.dials(nodeB) + f.dials(nodeC)
				if _, err := c.Do(t.Context(), "GET", keyC); !errors.Is(err, conn.ErrClosed) {
					t.Errorf("after Close: %v", err)
				}
				if _, err := c.SendBatch(t.Context(), []resp.Command{resp.Cmd("GET", keyC)}); !errors.Is(err, conn.ErrClosed) {
					t.Errorf("a batch after Close: %v", err)
				}
				if _, err := c.Stream(t.Context()); !errors.Is(err, conn.ErrClosed) {
					t.Errorf("a stream after Close: %v", err)
				}
				c.Close()
				time.Sleep(time.Minute)
				if n := f.dials(nodeA) + f.dials(nodeB) + f.dials(nodeC); n != dials {
					t.Errorf("%d dials after Close", n-dials)
				}
				for addr, srv := range f.nodes {
					if n := len(srv.Conns()); n > 0 {
						t.Errorf("%s has %d connections after Close", addr, n)
					}
				}
			})
		})
	}
}

// A call that is redirected while the Cluster is closed leaves nothing behind: no node, no goroutine for its pushes.
func TestRedirectedDuringClose(t *testing.T) {
	for _, reply := range []string{"-ASK 1711 10.0.0.9:7009", "-MOVED 1711 " + nodeA} {
		var c *cluster.Cluster
		var closing sync.WaitGroup
		cfg := cluster.Config{}
		cfg.Node.OnPush = func(resp.Value) {}
		cfg.Node.Trace = &conn.Trace{Retry: func(context.Context, conn.RetryInfo) {
			closing.Go(func() { c.Close() })
			synctest.Wait()
		}}
		bubble(t, cfg, func(t *testing.T, f *fakes, opened *cluster.Cluster) {
			c = opened
			f.answer(nodeA, "GET", reply, 1)
			if _, err := c.Do(t.Context(), "GET", keyA); !errors.Is(err, conn.ErrClosed) {
				t.Errorf("after %q: %v", reply, err)
			}
			closing.Wait()
		})
	}
}

// A ctx that has ended before the call, and a ctx that ends while the call waits.
func TestContext(t *testing.T) {
	bubble(t, cluster.Config{}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
		over, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := c.Do(over, "GET", keyA); !errors.Is(err, context.Canceled) || !conn.SafeToRetry(err) {
			t.Errorf("%v, want Canceled", err)
		}
		f.nodes[nodeA].Refuse(true)
		reason := errors.New("reason")
		ctx, cancel2 := context.WithTimeoutCause(t.Context(), 700*time.Millisecond, reason)
		defer cancel2()
		took(t, 700*time.Millisecond, 700*time.Millisecond, func() {
			_, err := c.Do(ctx, "GET", keyA)
			if !errors.Is(err, reason) || !errors.Is(err, context.DeadlineExceeded) || !conn.SafeToRetry(err) {
				t.Errorf("%v, want both the cause and DeadlineExceeded", err)
			}
		})
	})
}

// An answer that demands another attempt arrives as ctx ends: the error names ctx.
func TestContextEndsWithAnswer(t *testing.T) {
	bubble(t, cluster.Config{}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
		for range 50 {
			f.hook(nodeA, func(cmd fakeredis.Cmd) *fakeredis.Action {
				if cmd.Name != "GET" {
					return nil
				}
				act := fakeredis.Delay(time.Second, fakeredis.Reply("-LOADING it starts\r\n"))
				return &act
			})
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			_, err := c.Do(ctx, "GET", keyA)
			cancel()
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("%v, want DeadlineExceeded", err)
			}
		}
	})
}

func TestConfig(t *testing.T) {
	one := []string{"a:1"}
	for name, cfg := range map[string]cluster.Config{
		"no seed":     {},
		"a bad seed":  {Addrs: []string{"a:1", "b"}},
		"a Node.Addr": {Addrs: one, Node: conn.Config{Addr: "x:1"}},
		"a database":  {Addrs: one, Node: conn.Config{DB: 1}},
		"a socket":    {Addrs: one, Node: conn.Config{Network: "unix"}},
		"a bad Node":  {Addrs: one, Node: conn.Config{Protocol: 7}},
	} {
		if _, err := cluster.Open(t.Context(), cfg); err == nil || !strings.HasPrefix(err.Error(), "cluster: ") {
			t.Errorf("%s: %v, want an error of this package", name, err)
		}
	}
}

// The counters of Stats keep what a node that has left has counted.
func TestStatsOfNodesThatLeft(t *testing.T) {
	bubble(t, cluster.Config{RefreshInterval: time.Minute}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
		for _, key := range []string{keyA, keyB, keyC} {
			wantText(t, c, "OK", "SET", key, 1)
		}
		before := c.Stats().Nodes
		f.serve(fakeRange{0, 16383, nodeA})
		time.Sleep(3 * time.Minute)
		after := c.Stats().Nodes
		if before.Dials < 3 || after.Dials < before.Dials || after.Shared != 1 {
			t.Errorf("before %+v, after %+v", before, after)
		}
	})
}

// Traces report each repetition of a call once, and never contain an argument.
func TestTrace(t *testing.T) {
	var seen []conn.RetryInfo
	var ends []conn.CommandEnd
	node := conn.Config{Trace: &conn.Trace{
		Retry:      func(_ context.Context, i conn.RetryInfo) { seen = append(seen, i) },
		CommandEnd: func(_ context.Context, i conn.CommandEnd) { ends = append(ends, i) },
	}}
	bareBubble(t, func(t *testing.T, f *fakes, proto int) {
		seen, ends = nil, nil
		node.Protocol = proto
		c := f.open(cluster.Config{Addrs: []string{nodeA}, Node: node})
		f.answer(nodeA, "GET", fmt.Sprintf("-MOVED %d %s", slotA, nodeB), 0)
		f.answer(nodeB, "GET", "-LOADING busy", 2)
		if _, err := c.Do(t.Context(), "GET", keyA); err != nil {
			t.Fatal(err)
		}
		if len(seen) != 3 || seen[0].Addr != nodeA || seen[1].Addr != nodeB || seen[2].Attempt != 3 || seen[2].Name != "GET" {
			t.Errorf("retries %+v", seen)
		}
		last := ends[len(ends)-1]
		if last.Name != "GET" || last.Server != nodeB || last.Attempts != 4 || last.Protocol != proto || last.Err != nil {
			t.Errorf("call %+v", last)
		}
		for _, end := range ends[:len(ends)-1] {
			if end.Name == "GET" {
				t.Errorf("an attempt is reported as a call: %+v", end)
			}
		}
	})
}

// A command for a node is one call for a Trace, with its attempts.
func TestTraceOfANode(t *testing.T) {
	bareBubble(t, func(t *testing.T, f *fakes, proto int) {
		var ends []conn.CommandEnd
		node := conn.Config{Protocol: proto, Trace: &conn.Trace{CommandEnd: func(_ context.Context, i conn.CommandEnd) {
			if i.Name == "DBSIZE" {
				ends = append(ends, i)
			}
		}}}
		c := f.open(cluster.Config{Addrs: []string{nodeA}, Node: node})
		f.answer(nodeB, "DBSIZE", "-LOADING busy", 1)
		owner, _ := c.Owner(keyB)
		if _, err := owner.Do(t.Context(), "DBSIZE"); err != nil {
			t.Fatal(err)
		}
		if len(ends) != 1 || ends[0].Attempts != 2 || ends[0].Server != nodeB {
			t.Errorf("the Trace was told %+v, want one call with two attempts", ends)
		}
	})
}

// A call whose context ends before its first attempt has no failure to report but that.
func TestEndedBeforeTheFirstAttempt(t *testing.T) {
	bubble(t, cluster.Config{}, func(t *testing.T, _ *fakes, c *cluster.Cluster) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := c.Do(ctx, "GET", keyA)
		if !errors.Is(err, context.Canceled) || !errors.Is(err, conn.ErrNotSent) || strings.Contains(err.Error(), "last attempt") {
			t.Errorf("%v, want the end of the context, nothing sent, and no attempt", err)
		}
	})
}

// A stream goes to a master that can be dialed, though all may have failed moments ago.
func TestStreamGoesToAMasterThatAnswers(t *testing.T) {
	bubble(t, cluster.Config{}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
		f.nodes[nodeA].Refuse(true)
		f.nodes[nodeC].Refuse(true)
		for range 10 {
			s, err := c.Stream(t.Context())
			if err != nil || s.Addr() != nodeB {
				t.Fatalf("%v", err)
			}
			s.Close()
		}
		if n := f.dials(nodeC); n > 2 {
			t.Errorf("a node that is down was dialled %d times", n)
		}
		f.nodes[nodeB].Refuse(true)
		if s, err := c.Stream(t.Context()); err == nil {
			s.Close()
			t.Error("a stream to nowhere")
		}
		for range 10 {
			for _, n := range f.nodes {
				n.Refuse(true)
			}
			if s, err := c.Stream(t.Context()); err == nil {
				s.Close()
				t.Error("a stream to nowhere")
			}
			f.nodes[nodeB].Refuse(false)
			s, err := c.Stream(t.Context())
			if err != nil {
				t.Fatalf("one of three masters can be dialed: %v", err)
			}
			s.Close()
		}
	})
}

// Nodes dialed before Introduce and after it have the name, until stop.
func TestIntroduce(t *testing.T) {
	bubble(t, cluster.Config{}, func(t *testing.T, f *fakes, c *cluster.Cluster) {
		ask := func(keys ...string) {
			for _, key := range keys {
				if _, err := c.Send(t.Context(), resp.Cmd("GET", key)); err != nil {
					t.Fatal(err)
				}
			}
			synctest.Wait()
		}
		want := func(name string) {
			t.Helper()
			for addr, srv := range f.nodes {
				for _, conn := range srv.Conns() {
					if conn.Name != name {
						t.Errorf("a connection to %s is named %q, want %q", addr, conn.Name, name)
					}
				}
			}
		}
		move := func(addr string) {
			f.add(addr)
			f.answer(nodeA, "GET", fmt.Sprintf("-MOVED %d %s", slotA, addr), 1)
			ask(keyA)
			f.answer(addr, "GET", fmt.Sprintf("-MOVED %d %s", slotA, nodeA), 1)
			ask(keyA)
		}
		ask(keyA)
		stop := c.Introduce("web-7:id")
		ask(keyA, keyB, keyC)
		move("10.0.0.4:7004")
		want("web-7:id")
		stop()
		synctest.Wait()
		want("")
		move("10.0.0.5:7005")
		want("")
	})
}

// Each case of testdata/cases.md has a test: the test files of the case's package contain its
// number.
func TestCases(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("testdata", "cases.md"))
	if err != nil {
		t.Fatal(err)
	}
	sources, rows := map[string]string{}, map[string]bool{}
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		number := strings.TrimSpace(cells[0])
		if len(cells) != 4 || !regexp.MustCompile(`^[BC]\d\d$`).MatchString(number) {
			continue
		}
		if rows[number] {
			t.Errorf("%s has two rows", number)
		}
		rows[number] = true
		named := false
		for name := range strings.SplitSeq(cells[3], ",") {
			pkg, function, other := strings.Cut(strings.TrimSpace(name), ".")
			if !other {
				pkg, function = "cluster", pkg
			}
			if sources[pkg] == "" {
				sources[pkg] = testSource(t, pkg)
			}
			if !strings.Contains(sources[pkg], "\nfunc "+function+"(t *testing.T)") {
				t.Errorf("%s: there is no %s in %s", number, function, pkg)
			}
			named = named || strings.Contains(sources[pkg], number)
		}
		if !named {
			t.Errorf("%s stands in no test", number)
		}
	}
	for n := range 24 {
		if number := fmt.Sprintf("C%02d", n+1); !rows[number] {
			t.Errorf("%s has no row", number)
		}
	}
	for _, n := range []int{26, 27, 28, 29, 30, 32, 34, 35} {
		if number := fmt.Sprint("B", n); !rows[number] {
			t.Errorf("%s has no row", number)
		}
	}
}

// testSource returns the text of a package's tests.
func testSource(t *testing.T, pkg string) string {
	files, err := filepath.Glob(filepath.Join("..", pkg, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		b.Write(source)
	}
	return b.String()
}
