package fakeredis_test

import (
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockwire/lockwire/internal/fakeredis"
)

func TestBlockingPop(t *testing.T) {
	run(t, func(t *testing.T, srv *fakeredis.Server) {
		first, second := dial(t, srv), dial(t, srv)
		first.send("BLPOP", "q", "0")
		synctest.Wait()
		second.send("BLPOP", "p", "q", "0")
		synctest.Wait()
		srv.Do("RPUSH", "q", "a", "b")
		if got := first.read(); got != "*2\r\n$1\r\nq\r\n$1\r\na\r\n" {
			t.Errorf("first reply %q", got)
		}
		if got := second.read(); got != "*2\r\n$1\r\nq\r\n$1\r\nb\r\n" {
			t.Errorf("second reply %q", got)
		}
		start := time.Now()
		first.expect("*-1\r\n", "BLPOP", "q", "1.5")
		if took := time.Since(start); took != 1500*time.Millisecond {
			t.Errorf("took %v, want 1.5s", took)
		}
	})
}

func TestBlockedClientGone(t *testing.T) {
	run(t, func(t *testing.T, srv *fakeredis.Server) {
		c := dial(t, srv)
		c.send("BLPOP", "q", "0")
		synctest.Wait()
		_ = c.nc.Close()
		srv.Do("RPUSH", "q", "a")
		if got := srv.Do("LLEN", "q"); got != int64(1) {
			t.Errorf("LLEN = %v: the element went to a client that is gone", got)
		}
	})
}

func TestBlockingMoveChain(t *testing.T) {
	run(t, func(t *testing.T, srv *fakeredis.Server) {
		first, second := dial(t, srv), dial(t, srv)
		second.send("BLPOP", "end", "0")
		synctest.Wait()
		first.send("BLMOVE", "start", "end", "LEFT", "RIGHT", "0")
		synctest.Wait()
		dial(t, srv).expect(":1\r\n", "RPUSH", "start", "x")
		if got := first.read(); got != "$1\r\nx\r\n" {
			t.Errorf("BLMOVE = %q", got)
		}
		if got := second.read(); got != "*2\r\n$3\r\nend\r\n$1\r\nx\r\n" {
			t.Errorf("BLPOP = %q", got)
		}
	})
}

func TestWaitForReplicas(t *testing.T) {
	run(t, func(t *testing.T, srv *fakeredis.Server) {
		srv.Replicas(1)
		c := dial(t, srv)
		start := time.Now()
		c.expect(":1\r\n", "WAIT", "1", "1000")
		if took := time.Since(start); took != 0 {
			t.Errorf("WAIT 1 took %v", took)
		}
		c.expect(":1\r\n", "WAIT", "2", "1000")
		if took := time.Since(start); took != time.Second {
			t.Errorf("WAIT 2 took %v, want 1s", took)
		}
	})
}

func TestWatchExpiredKey(t *testing.T) {
	run(t, func(t *testing.T, srv *fakeredis.Server) {
		c := dial(t, srv)
		c.do("SET", "k", "v", "PX", "100")
		c.do("WATCH", "k")
		time.Sleep(101 * time.Millisecond)
		c.do("MULTI")
		c.do("GET", "k")
		c.expect("*-1\r\n", "EXEC")
		c.do("WATCH", "k")
		c.do("MULTI")
		c.do("GET", "k")
		c.expect("*1\r\n$-1\r\n", "EXEC")
	})
}

func TestPubSub(t *testing.T) {
	run(t, func(t *testing.T, srv *fakeredis.Server) {
		c := dial(t, srv)
		c.do("HELLO", "3")
		c.do("SUBSCRIBE", "a")
		c.do("SSUBSCRIBE", "s")
		if got := srv.Subscribers("a") + srv.Subscribers("s"); got != 2 {
			t.Errorf("Subscribers = %d, want 2", got)
		}
		srv.Script("publish", func(call *fakeredis.Call) any { return call.Publish("a", "from script") })
		if got := srv.Do("EVAL", "publish", "0"); got != int64(1) {
			t.Errorf("EVAL = %v, want 1", got)
		}
		if got := c.read(); got != ">3\r\n$7\r\nmessage\r\n$1\r\na\r\n$11\r\nfrom script\r\n" {
			t.Errorf("message %q", got)
		}
		srv.Do("SPUBLISH", "s", "x")
		if got := c.read(); got != ">3\r\n$8\r\nsmessage\r\n$1\r\ns\r\n$1\r\nx\r\n" {
			t.Errorf("shard message %q", got)
		}
		srv.Unsubscribe("s")
		if got := c.read(); got != ">3\r\n$12\r\nsunsubscribe\r\n$1\r\ns\r\n:0\r\n" {
			t.Errorf("push %q", got)
		}
		want := []fakeredis.Message{{Channel: "a", Payload: "from script", Receivers: 1}, {Channel: "s", Payload: "x", Shard: true, Receivers: 1}}
		if got := srv.Messages(); !slices.Equal(got, want) {
			t.Errorf("Messages = %v, want %v", got, want)
		}
	})
}

func TestScriptIsAtomic(t *testing.T) {
	run(t, func(t *testing.T, srv *fakeredis.Server) {
		srv.Script("add", func(call *fakeredis.Call) any {
			call.Do("SET", call.Keys[0], "999")
			call.Do("SET", call.Keys[0], "0")
			return call.Int("INCRBY", call.Keys[0], call.Args[0])
		})
		const callers = 20
		done := make(chan string)
		for range callers {
			c := dial(t, srv)
			go func() { done <- c.do("EVAL", "add", "1", "k", "5") }()
		}
		for range callers {
			if got := <-done; got != ":5\r\n" {
				t.Errorf("EVAL = %q, want 5", got)
			}
		}
	})
}

func TestUnregisteredScript(t *testing.T) {
	run(t, func(t *testing.T, srv *fakeredis.Server) {
		c := dial(t, srv)
		for _, args := range [][]string{{"EVAL", "return 1", "0"}, {"SCRIPT", "LOAD", "return 1"}} {
			if got := c.do(args...); !strings.HasPrefix(got, "-ERR Error compiling script") {
				t.Errorf("%q = %q", args, got)
			}
		}
	})
}

func TestScanSeesWhatStays(t *testing.T) {
	run(t, func(t *testing.T, srv *fakeredis.Server) {
		for _, k := range []string{"a", "b", "c", "d", "e"} {
			srv.Do("SET", k, "v")
		}
		var seen []string
		cursor := "0"
		for range 10 {
			reply := srv.Do("SCAN", cursor, "COUNT", "2").([]any)
			for _, k := range reply[1].([]any) {
				seen = append(seen, k.(string))
			}
			srv.Do("DEL", "a", "c")
			srv.Do("SET", "bb", "v")
			if cursor = reply[0].(string); cursor == "0" {
				break
			}
		}
		for _, k := range []string{"b", "d", "e"} {
			if n := strings.Count(strings.Join(seen, ","), k); n < 1 {
				t.Errorf("SCAN gave %q without %q", seen, k)
			}
		}
	})
}

func TestDump(t *testing.T) {
	run(t, func(t *testing.T, srv *fakeredis.Server) {
		srv.Do("SET", "s", "text", "PX", "1500")
		srv.Do("HSET", "h", "g", "2", "f", "1")
		srv.Do("RPUSH", "l", "b", "a")
		srv.Do("SADD", "m", "y", "x")
		srv.Do("ZADD", "z", "2", "b", "1", "c")
		time.Sleep(time.Second)
		want := []string{
			`hash h -1 {"f":"1" "g":"2"}`,
			`list l -1 ["b" "a"]`,
			`set m -1 {"x" "y"}`,
			`string s 500 "text"`,
			`zset z -1 {"c":1 "b":2}`,
		}
		if got := srv.Dump(); !slices.Equal(got, want) {
			t.Errorf("Dump = %q, want %q", got, want)
		}
		if k, found := srv.Key("s"); !found || k.Value != "text" || k.TTL != 500*time.Millisecond {
			t.Errorf("Key = %+v, %v", k, found)
		}
		if k, found := srv.Key("none"); found {
			t.Errorf("Key = %+v of a key that does not exist", k)
		}
	})
}

func TestBadRequests(t *testing.T) {
	tests := map[string]string{
		"*x\r\n":                        "-ERR Protocol error: invalid multibulk length\r\n",
		"*99999999999\r\n":              "-ERR Protocol error: invalid multibulk length\r\n",
		"*1\r\n+PING\r\n":               "-ERR Protocol error: expected '$', got '+'\r\n",
		"*1\r\n$-1\r\n":                 "-ERR Protocol error: invalid bulk length\r\n",
		"*1\r\n$999999999999999\r\n":    "-ERR Protocol error: invalid bulk length\r\n",
		strings.Repeat("x", 70_000):     "-ERR Protocol error: too big inline request\r\n",
		"\r\n*0\r\n*-1\r\nnonsense\r\n": "-ERR unknown command 'nonsense', with args beginning with: \r\n",
	}
	for request, want := range tests {
		run(t, func(t *testing.T, srv *fakeredis.Server) {
			c := dial(t, srv)
			if _, err := c.nc.Write([]byte(request)); err != nil {
				t.Fatal(err)
			}
			if got := c.read(); got != want {
				t.Errorf("%.40q = %q, want %q", request, got, want)
			}
			if strings.Contains(want, "Protocol error") {
				if err := c.ended(); err != io.EOF {
					t.Errorf("%.40q: read = %v, want EOF", request, err)
				}
			}
		})
	}
}

func TestAboutTheServer(t *testing.T) {
	run(t, func(t *testing.T, srv *fakeredis.Server) {
		c := dial(t, srv)
		time.Sleep(1500 * time.Millisecond)
		// A bubble's time begins with the year 2000.
		c.expect("*2\r\n$9\r\n946684801\r\n$6\r\n500000\r\n", "TIME")
		for want, args := range map[string][]string{
			"redis_version:" + fakeredis.Version: {"INFO"},
			"role:master":                        {"INFO", "replication"},
			"id=1 addr=127.0.0.1:50001 ":         {"CLIENT", "INFO"},
			" name= db=0 sub=0 psub=0 ssub=0 ":   {"CLIENT", "LIST"},
		} {
			if got := c.do(args...); !strings.Contains(got, want) {
				t.Errorf("%q = %q, want %q in it", args, got, want)
			}
		}
	})
}

func TestClientKill(t *testing.T) {
	run(t, func(t *testing.T, srv *fakeredis.Server) {
		first, second := dial(t, srv), dial(t, srv)
		first.do("PING")
		second.expect(":1\r\n", "CLIENT", "KILL", "ID", "1")
		if err := first.ended(); err != io.EOF {
			t.Errorf("read = %v, want EOF", err)
		}
		second.expect(":1\r\n", "CLIENT", "KILL", "ID", "2", "SKIPME", "no")
		if err := second.ended(); err != io.EOF {
			t.Errorf("read = %v, want EOF", err)
		}
	})
}
