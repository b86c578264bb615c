package conn_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/redistest"
	"github.com/lockwire/lockwire/resp"
)

// shapes are commands whose replies differ in form between RESP3 and RESP2.
var shapes = []struct {
	since int // 100 * major version + minor version
	cmd   string
	at    []int  // path to the pairs in the reply
	pairs string // keys and values, or the error of Pairs; "*" matches any text
}{
	{600, "HGETALL h", nil, "f=1"},
	{600, "HGETALL none", nil, ""},
	{600, "CONFIG GET maxmemory", nil, "maxmemory=0"},
	{600, "CONFIG GET nothing-like-it", nil, ""},
	{600, "XREAD STREAMS s t 0 0", nil, "s=* t=*"},
	{600, "XREAD STREAMS s 0", nil, "s=*"},
	{600, "XREADGROUP GROUP g c STREAMS s 0", nil, "s=*"},
	{600, "XREAD STREAMS s 9", nil, "a null"},
	{600, "XRANGE s - +", nil, "1-0=* 2-0=*"},
	{600, "XRANGE s - +", []int{0, 1}, "f=v"},
	{600, "XINFO STREAM s", nil, "length=2 *"},
	{600, "XINFO GROUPS s", nil, "not pairs"},
	{600, "XINFO GROUPS s", []int{0}, "name=g *"},
	{600, "ZRANGE z 0 -1", nil, "not pairs"},
	{600, "ZRANGE z 0 -1 WITHSCORES", nil, "a=1 b=3.1 c=inf"},
	{600, "ZRANGE one 0 -1 WITHSCORES", nil, "a=*"},
	{600, "ZREVRANGEBYSCORE z 5 0 WITHSCORES", nil, "b=3.1 a=1"},
	{602, "ZUNION 1 z WITHSCORES", nil, "a=1 b=3.1 c=inf"},
	{602, "ZRANDMEMBER one 1 WITHSCORES", nil, "a=*"},
	{602, "HRANDFIELD h 1 WITHVALUES", nil, "f=1"},
	{602, "HRANDFIELD h 1", nil, "not pairs"},
	{600, "ZPOPMIN pop", nil, "a=1"},
	{600, "ZPOPMIN pop 2", nil, "b=2 c=3"},
	{700, "ZMPOP 1 mpop MIN COUNT 2", []int{1}, "a=1 b=2"},
	{600, "HSCAN h 0", []int{1}, "f=1"},
	{600, "ZSCAN one 0", []int{1}, "a=*"},
	{600, "GEORADIUS g 0 0 1000 km WITHCOORD", nil, "p=*"},
	{600, "GEORADIUS g 0 0 1000 km WITHCOORD WITHDIST", nil, "not pairs"},
	{602, "GEOSEARCH g FROMLONLAT 0 0 BYRADIUS 1000 km WITHDIST", nil, "p=*"},
	{600, "GEOPOS g p", []int{0}, "*=*"},
	{600, "PUBSUB NUMSUB a b", nil, "a=0 b=0"},
	{600, "ACL GETUSER default", nil, "flags=* *"},
	{600, "MEMORY STATS", nil, "*"},
	{600, "SMEMBERS set", nil, "not pairs"},
	{700, "LCS a b IDX", nil, "matches=* len=*"},
	{600, "GET a", nil, "not pairs"},
	{700, "COMMAND DOCS GET", nil, "get=*"},
}

// fill creates the keys for shapes and for texts.
var fill = []string{
	"HSET h f 1", "ZADD z 1 a 3.1 b inf c", "ZADD one 1700000000000000001 a", "ZADD pop 1 a 2 b 3 c", "ZADD mpop 1 a 2 b", "SADD set a b c",
	"GEOADD g 0.5 0.5 p", "SET a ohmytext", "SET b mynewtext", "SET big 12345678901234567890",
	"XADD s 1-0 f v", "XADD s 2-0 f v", "XADD t 1-0 f v", "XGROUP CREATE s g 0", "XREADGROUP GROUP g c STREAMS s >",
}

// Conversions give the same result in both protocols.
func TestServerValuesOfBothProtocols(t *testing.T) {
	redistest.Run(t, func(t *testing.T, s *redistest.Server) {
		pools := map[int]*conn.Pool{}
		for _, proto := range []int{2, 3} {
			cfg := s.Config()
			cfg.Protocol = proto
			pool, err := conn.Open(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			defer pool.Close()
			pools[proto] = pool
		}
		ask := func(proto int, cmd string) resp.Value {
			var v resp.Value
			err := pools[proto].With(t.Context(), func(c *conn.Conn) (err error) {
				v, err = c.Send(t.Context(), resp.CmdStrings(strings.Fields(cmd)))
				return err
			})
			if err != nil && !strings.Contains(cmd, "POP") && !strings.HasPrefix(cmd, "DEBUG") {
				t.Errorf("RESP%d %s: %v", proto, cmd, err)
			}
			return v
		}
		reset := func() {
			s.Do("FLUSHALL")
			for _, cmd := range fill {
				if err := ask(3, cmd).Err(); err != nil {
					t.Fatal(cmd, err)
				}
			}
		}
		for _, shape := range shapes {
			if !s.AtLeast(shape.since/100, shape.since%100) {
				continue
			}
			for _, proto := range []int{2, 3} {
				if proto == 2 || strings.Contains(shape.cmd, "POP") && !strings.HasSuffix(shape.cmd, "pop 2") {
					reset()
				}
				if shape.cmd == "ZPOPMIN pop 2" {
					reset()
					ask(proto, "ZPOPMIN pop")
				}
				v := ask(proto, shape.cmd)
				for _, i := range shape.at {
					v = v.At(i)
				}
				if got := pairsOf(v); !matches(got, shape.pairs) {
					t.Errorf("RESP%d %s %v: pairs %q of %v, want %q", proto, shape.cmd, shape.at, got, v, shape.pairs)
				}
			}
		}
		reset()
		for _, cmd := range []string{
			"ZSCORE z a", "ZSCORE z b", "ZSCORE z c", "ZSCORE one a", "ZSCORE z none", "ZINCRBY z 1e300 b", "ZINCRBY z -2.5 a", "HINCRBYFLOAT h f 0.1",
			"INCRBYFLOAT big 0", "GET big", "GET none", "SISMEMBER set a", "EXISTS a", "LRANGE none 0 -1", "INFO server", "LOLWUT VERSION 5 1 1 1",
			"EVAL return{3.7} 0", "EVAL return{double=3.1} 0", "EVAL return{1,false,2} 0", "DEBUG PROTOCOL double", "DEBUG PROTOCOL bignum", "DEBUG PROTOCOL null",
			"DEBUG PROTOCOL true", "DEBUG PROTOCOL false", "DEBUG PROTOCOL verbatim", "GEODIST g p p", "BLPOP none 0.01", "CLIENT GETNAME",
			"EVAL redis.setresp(3);return{big_number='37'} 0", "EVAL redis.setresp(3);return{double=1e+17} 0", "EVAL redis.setresp(3);return{double=0.1} 0",
			"EVAL redis.setresp(3);return{map={k=1}} 0", "EVAL redis.setresp(3);return{set={k=true}} 0", "EVAL redis.setresp(3);return(true) 0",
		} {
			two, three := scalars(ask(2, cmd)), scalars(ask(3, cmd))
			if strings.Contains(cmd, "INCR") {
				reset()
				two = scalars(ask(2, cmd))
				reset()
				three = scalars(ask(3, cmd))
			}
			if two != three {
				t.Errorf("%s:\nRESP2 %.300s\nRESP3 %.300s", cmd, two, three)
			}
		}
	})
}

// pairsOf returns the result of Pairs as text.
func pairsOf(v resp.Value) string {
	pairs, err := v.Pairs()
	if err != nil {
		if v.IsNull() {
			return "a null"
		}
		return "not pairs"
	}
	var all []string
	for k, e := range pairs {
		key, err := k.Text()
		value, _ := e.Text()
		if err != nil {
			key = err.Error()
		}
		if f, err := e.Float(); err == nil && f == 3.1 {
			value = "3.1" // older servers reply 3.1000000000000001
		}
		all = append(all, key+"="+value)
	}
	return strings.Join(all, " ")
}

// matches reports whether got matches pattern, in which "*" is any word, or at the end any number of words.
func matches(got, pattern string) bool {
	have, want := strings.Fields(got), strings.Fields(pattern)
	for i, w := range want {
		if w == "*" && i == len(want)-1 {
			return true
		}
		if i >= len(have) {
			return false
		}
		key, value, _ := strings.Cut(w, "=")
		k, v, _ := strings.Cut(have[i], "=")
		if key != "*" && key != k || value != "*" && value != v {
			return false
		}
	}
	return len(have) == len(want)
}

// scalars returns the results of the other conversions as text.
func scalars(v resp.Value) string {
	text, err1 := v.Text()
	integer, err2 := v.Int()
	float, err3 := v.Float()
	boolean, err4 := v.Bool()
	if len(text) > 100 {
		text = "long"
	}
	out := fmt.Sprintf("text %q %v, int %d %v, float %v %v, bool %v %v, null %v, len %d", text, err1 != nil, integer, err2 != nil, float, err3 != nil,
		boolean, err4 != nil, v.IsNull(), v.Len())
	for e := range v.All() {
		out += "\n" + scalars(e)
	}
	return out
}

// As and Entries understand a server in both versions of the protocol.
func TestServerConversions(t *testing.T) {
	onServer(t, func(t *testing.T, _ *redistest.Server, p *conn.Pool, _ int) {
		ctx := t.Context()
		do := func(args ...any) (resp.Value, error) { return p.Do(ctx, args...) }
		if _, err := do("HSET", "h", resp.Fields(map[string]any{"name": "Ada", "age": 36})); err != nil {
			t.Fatal(err)
		}
		if u, ok, err := resp.Maybe[user](do("HGETALL", "h")); u != (user{"Ada", 36}) || !ok || err != nil {
			t.Errorf("HGETALL as a struct = %v, %v, %v", u, ok, err)
		}
		if _, ok, err := resp.Maybe[user](do("HGETALL", "none")); ok || err != nil {
			t.Errorf("HGETALL of nothing = %v, %v", ok, err)
		}
		many := make([]any, 0, 5000)
		for i := range 2500 {
			many = append(many, i, fmt.Sprint("m", i))
		}
		if n, err := resp.As[int](do("ZADD", "z", many)); n != 2500 || err != nil {
			t.Fatalf("ZADD = %d, %v", n, err)
		}
		if top, err := resp.As[map[string]float64](do("ZREVRANGE", "z", 0, 1, "WITHSCORES")); len(top) != 2 || top["m2499"] != 2499 || err != nil {
			t.Errorf("ZREVRANGE = %v, %v", top, err)
		}
		if top, err := resp.As[[]string](do("ZREVRANGE", "z", 0, 1, "WITHSCORES")); strings.Join(top, " ") != "m2499 2499 m2498 2498" || err != nil {
			t.Errorf("ZREVRANGE as a list = %v, %v", top, err)
		}
		scores := map[string]float64{}
		for s, err := range conn.ZScan(ctx, p, "z") {
			if err != nil {
				t.Fatal(err)
			}
			scores[s.Member] = s.Score
		}
		if len(scores) != 2500 || scores["m7"] != 7 {
			t.Errorf("ZSCAN has %d members", len(scores))
		}
		checkStream(t, p)
	})
}

func checkStream(t *testing.T, p *conn.Pool) {
	t.Helper()
	ctx := t.Context()
	var q conn.Queue
	for i := range 2100 {
		conn.Add[string](&q, "XADD", "s", fmt.Sprintf("%d-%d", i/3+1, i%3), resp.Fields(map[string]int{"n": i}))
	}
	conn.Add[string](&q, "XGROUP", "CREATE", "s", "g", "0")
	if err := q.Run(ctx, p); err != nil {
		t.Fatal(err)
	}
	n := 0
	for e, err := range conn.XRange(ctx, p, "s", "-", "+") {
		if err != nil || e.Get("n") != fmt.Sprint(n) {
			t.Fatalf("entry %d is %v, %v", n, e, err)
		}
		n++
	}
	if n != 2100 {
		t.Errorf("%d entries, want 2100", n)
	}
	for range 2 {
		read := 0
		for e, err := range resp.Entries(p.Block(ctx, "XREADGROUP", "GROUP", "g", "c", "COUNT", 1100, "BLOCK", 1, "STREAMS", "s", ">")) {
			if m, convert := resp.As[map[string]int](e.Fields, err); convert != nil || e.Stream != "s" || len(m) != 1 {
				t.Fatalf("%v, %v, %v", e, m, convert)
			}
			read++
		}
		if read != 1100 && read != 1000 {
			t.Errorf("%d entries for the group", read)
		}
	}
	for e, err := range resp.Entries(p.Block(ctx, "XREADGROUP", "GROUP", "g", "c", "BLOCK", 1, "STREAMS", "s", ">")) {
		t.Errorf("%v, %v from a stream that is read", e, err)
	}
}
