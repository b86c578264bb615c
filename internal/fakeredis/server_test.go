package fakeredis_test

import (
	"bufio"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/internal/redistest"
)

// both is a fake server and a real one, to which the same is sent.
type both struct {
	t          *testing.T
	srv        *fakeredis.Server
	redis      *redistest.Server
	fake, real *client
}

// against runs fn in both protocols against each Redis 7.0, whose replies the fake makes to the byte. Others have other
// texts and commands.
func against(t *testing.T, fn func(b *both)) {
	redistest.RunProtocols(t, func(t *testing.T, s *redistest.Server, proto int) {
		if s.Binary().Product != "redis" || !s.AtLeast(7, 0) || s.AtLeast(7, 1) {
			t.Log("not Redis 7.0: nothing to compare with")
			return
		}
		srv := fakeredis.New()
		t.Cleanup(srv.Close)
		b := &both{t: t, srv: srv, redis: s, fake: dial(t, srv), real: dialReal(t, s)}
		b.fake.do("HELLO", strconv.Itoa(proto))
		b.real.do("HELLO", strconv.Itoa(proto))
		fn(b)
	})
}

func dialReal(t *testing.T, s *redistest.Server) *client {
	t.Helper()
	nc, err := net.Dial(s.Network(), s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = nc.Close() })
	if err := nc.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	return &client{t, nc, bufio.NewReader(nc)}
}

// compare sends a command to both and compares the replies. Only a remaining time may differ a little.
func (b *both) compare(args ...string) {
	b.t.Helper()
	fake, real := b.fake.do(args...), b.real.do(args...)
	if fake != real && !(isRemaining(args[0]) && near(fake, real)) {
		b.t.Errorf("%q:\nfake %q\nreal %q", args, fake, real)
	}
}

func near(fake, real string) bool {
	f, errFake := strconv.Atoi(strings.TrimSpace(fake[1:]))
	r, errReal := strconv.Atoi(strings.TrimSpace(real[1:]))
	return errFake == nil && errReal == nil && f >= 0 && r >= 0 && max(f-r, r-f) < 60_000
}

func isRemaining(name string) bool { return name == "TTL" || name == "PTTL" }

// words splits a line at its spaces, but for what is in single quotes.
func words(line string) []string {
	var list []string
	for i, part := range strings.Split(line, "'") {
		if i%2 == 1 {
			list = append(list, part)
			continue
		}
		list = append(list, strings.Fields(part)...)
	}
	return list
}

func TestConversation(t *testing.T) {
	against(t, func(b *both) {
		for line := range strings.Lines(conversation) {
			if args := words(line); len(args) > 0 {
				b.compare(args...)
			}
		}
	})
}

// TestSubscribedConversation compares all that the two send until they hang up, as a command may have several replies.
func TestSubscribedConversation(t *testing.T) {
	against(t, func(b *both) {
		var all []byte
		for line := range strings.Lines(subscribedConversation) {
			if args := words(line); len(args) > 0 {
				all = append(all, encode(args...)...)
			}
		}
		fake, real := b.fake.everything(all), b.real.everything(all)
		if fake != real {
			b.t.Errorf("fake %q\nreal %q", fake, real)
		}
	})
}

// everything sends bytes, the last of which must be QUIT, and returns all that is answered.
func (c *client) everything(p []byte) string {
	c.t.Helper()
	if _, err := c.nc.Write(p); err != nil {
		c.t.Fatal(err)
	}
	all := ""
	for {
		raw, err := readReply(c.r)
		all += raw
		if err != nil {
			return all
		}
	}
}

func TestMessages(t *testing.T) {
	against(t, func(b *both) {
		b.compare("SUBSCRIBE", "news")
		b.compare("PSUBSCRIBE", "n?ws")
		b.srv.Do("PUBLISH", "news", "hello")
		dialReal(b.t, b.redis).do("PUBLISH", "news", "hello")
		for range 2 {
			if fake, real := b.fake.read(), b.real.read(); fake != real {
				b.t.Errorf("fake %q\nreal %q", fake, real)
			}
		}
	})
}

func TestScriptsAsInLua(t *testing.T) {
	against(t, func(b *both) {
		for _, sc := range luaScripts() {
			b.srv.Script(sc.source, sc.run)
			digest := fakeredis.Digest(sc.source)
			b.compare(append([]string{"EVALSHA", digest}, sc.args...)...)
			b.compare("SCRIPT", "LOAD", sc.source)
			b.compare(append([]string{"EVALSHA", strings.ToUpper(digest)}, sc.args...)...)
			b.compare("SCRIPT", "EXISTS", digest)
			b.compare("SCRIPT", "FLUSH")
			b.compare("SCRIPT", "EXISTS", digest)
			b.compare(append([]string{"EVAL", sc.source}, sc.args...)...)
			b.compare(append([]string{"EVALSHA", digest}, sc.args...)...)
			b.compare(append([]string{"EVAL_RO", sc.source}, sc.args...)...)
		}
	})
}

func TestRandomCommands(t *testing.T) {
	against(t, func(b *both) {
		for seed := range uint64(3) {
			r := rand.New(rand.NewPCG(seed, 0))
			for range 2000 {
				b.compare(randomCommand(r)...)
				if b.t.Failed() {
					b.t.Fatalf("seed %d", seed)
				}
			}
		}
	})
}

// randomCommand is one of the commands whose reply depends on nothing but those before it: K stands for a key, mostly of
// the type that the command is for, F for a field, V for a value and N for a number.
func randomCommand(r *rand.Rand) []string {
	families := map[string][]string{
		"string": {
			"GET K", "SET K N", "SET K V NX", "SET K V XX GET", "SET K V PXAT 9100000000000", "SET K V KEEPTTL", "SETNX K V",
			"APPEND K V", "STRLEN K", "INCR K", "DECRBY K N", "INCRBY K N",
			"MGET K K K", "MSET K V K V",
		},
		"hash": {
			"HSET K F V F N", "HGET K F", "HDEL K F F", "HEXISTS K F", "HLEN K", "HGETALL K", "HKEYS K",
			"HINCRBY K F N", "HMGET K F F", "HSETNX K F V", "HSTRLEN K F",
		},
		"list": {
			"LPUSH K V V", "RPUSH K V", "LPOP K", "LLEN K", "LRANGE K N N", "LINDEX K N", "LREM K N V",
		},
		"set": {"SADD K N N", "SMEMBERS K"},
		"zset": {
			"ZADD K N F N F", "ZADD K XX CH N F", "ZADD K GT N F", "ZADD K NX INCR N F", "ZINCRBY K N F", "ZREM K F",
			"ZSCORE K F", "ZCARD K", "ZCOUNT K N N", "ZRANK K F", "ZRANGE K N N WITHSCORES",
			"ZREVRANGE K N N", "ZRANGEBYSCORE K N N WITHSCORES", "ZRANGEBYSCORE K -inf (N LIMIT N N",
			"ZREMRANGEBYSCORE K N N",
		},
		"any": {
			"DEL K", "EXISTS K K", "TYPE K", "PEXPIREAT K 9000000000000 NX", "PEXPIREAT K 8000000000000 GT",
			"PEXPIREAT K 9200000000000", "EXPIRE K 0", "PERSIST K", "DBSIZE",
			"MULTI", "EXEC", "EXEC", "EXEC", "WATCH K", "UNWATCH", "DISCARD", "PUBLISH K V",
		},
	}
	types := []string{"any", "hash", "list", "set", "string", "zset"}
	kind := types[r.IntN(len(types))]
	args := strings.Fields(families[kind][r.IntN(len(families[kind]))])
	for i, arg := range args[1:] {
		number := strconv.Itoa(r.IntN(12) - 4)
		switch arg {
		case "K":
			if kind == "any" || r.IntN(10) == 0 {
				kind = types[r.IntN(len(types))]
			}
			args[i+1] = kind + strconv.Itoa(r.IntN(3))
		case "F":
			args[i+1] = string(rune('a' + r.IntN(4)))
		case "V":
			args[i+1] = []string{"v", "", "17", "x y\r\n"}[r.IntN(4)]
		case "N":
			args[i+1] = number
		case "(N":
			args[i+1] = "(" + number
		}
	}
	return args
}
