//go:build !wasip1

package simulation

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/internal/redistest"
	"github.com/lockwire/lockwire/resp"
)

// luas are scripts of which the interpreter has to say what a server says: how values change between Redis and Lua, and whatever
// of Lua the scripts of package lock use.
var luas = []string{
	"return 1", "return -1.9", "return 2^40", "return 'text'", "return true", "return false", "return nil", "return {}",
	"return {1, 'two', {3}, nil, 5}", "return {ok = 'fine'}", "return {err = 'ERR bad'}", "return redis.status_reply('late')",
	"return redis.error_reply('WRONGTYPE no number')", "return {KEYS[1], ARGV[1], KEYS[3], ARGV[2]}", "return #KEYS + #ARGV",
	"return redis.call('set', KEYS[1], 17)", "return redis.call('get', KEYS[1]) + 1", "return redis.call('get', 'none')",
	"return redis.call('get', 'none') or 'nothing'", "return redis.call('type', KEYS[1])", "return redis.call('type', KEYS[1]).ok",
	"redis.call('hset', KEYS[2], 'a', 1, 'b', 2.5) return redis.call('hgetall', KEYS[2])",
	"return redis.call('hincrby', KEYS[2], 'a', 3)", "return redis.call('hget', KEYS[2], 'none')",
	"return redis.pcall('hget', KEYS[1], 'a').err ~= nil", "return type(redis.pcall('hget', KEYS[1], 'a'))",
	"redis.pcall('no such command') return 'goes on'", "return redis.call('lpush', KEYS[1], 1) == nil",
	"redis.call('zadd', 'z', 1700000000123, 'm') return redis.call('zrange', 'z', 0, -1, 'withscores')",
	"return tonumber(redis.call('zscore', 'z', 'm')) + 0.5", "redis.call('zadd', 'z', 1.5, 'n') return redis.call('zscore', 'z', 'n')",
	"return redis.call('set', 'n', 1700000000123456) and redis.call('get', 'n')", "return string.format('%.0f', 1700000000123456)",
	"return string.format('%d', '12')", "return 'a' .. 1 .. 2.5", "return 10 / 4", "return {10 % 3, '7' % 4, '2' * 1000, -7 % 3}",
	"return math.max(1, 2.5) * 2", "return math.floor(-1.5)", "return math.huge > 1e300", "return '10' < '9'",
	"return string.sub('redisson', 1, -2)", "return string.find('a{b}', '{', 1, true)", "return string.match('12-3', '^%-?%d+$')",
	"return string.match('0a-f', '^%x+%-%x+$')", "return string.gsub('x:write', ':write$', '')", "return {unpack({1, 2, 3}, 2)}",
	"local t = {} table.insert(t, 'a') table.insert(t, 'b') return #t", "return select('#', nil, nil)",
	"local a, _, c = unpack(KEYS) return c or 'none'", "for i, k in ipairs(KEYS) do if i == 2 then return k end end",
	"local n = 0 for i = 1, 10, 3 do n = n + i end return n", "return tonumber('') or 'no number'", "return tonumber('0x10')",
	"return tostring(1) .. tostring(nil) .. tostring(true)", "return type(redis.call('time')[1])",
	"redis.call('pexpire', KEYS[1], 100000) return redis.call('pttl', KEYS[1]) > 90000", "return redis.call('exists', KEYS[1], 'none')",
	"return redis.call('publish', 'channel', 'x')", "this is no Lua", "return undefined.field", "local function f() return f end return f() == f",
}

// twins are a server and the fake one, which runs the Lua itself.
type twins struct {
	t          *testing.T
	real, fake *conn.Pool
	srv        *fakeredis.Server
}

// runTwins runs test with each server, beside a fake one of its own.
func runTwins(t *testing.T, test func(w twins)) {
	redistest.Run(t, func(t *testing.T, s *redistest.Server) {
		real, err := conn.Open(t.Context(), s.Config())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = real.Close() }()
		srv := fakeredis.New()
		defer srv.Close()
		interpreter := newInterpreter(func(string, *fakeredis.Call, any) {})
		defer interpreter.close()
		srv.Interpret(interpreter.compile)
		fake, err := conn.Open(t.Context(), conn.Config{Dial: srv.Dial})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = fake.Close() }()
		test(twins{t, real, fake, srv})
	})
}

// compare runs each of the scripts on both servers, whose state is as given.
func (w twins) compare(state string, sources []string) {
	w.t.Helper()
	for _, source := range sources {
		if got, want := eval(w.fake, source), eval(w.real, source); got != want {
			w.t.Errorf("%s: %s\n  is %s\n want %s", state, source, got, want)
		}
	}
}

func TestServerLua(t *testing.T) {
	runTwins(t, func(w twins) { w.compare("as ever", luas) })
}

// wrapped is what a server before 7.0 makes of an error reply that ends a script; its class is still in it.
var wrapped = regexp.MustCompile(`^ERR Error running script \(call to f_[0-9a-f]{40}\): @user_script:[0-9]+: (?:@user_script: [0-9]+: )?-?([A-Z]+ )`)

// eval is the reply to a script as text; of an error only its class.
func eval(d conn.Doer, source string) string {
	v, err := d.Send(context.Background(), resp.Cmd("EVAL", source, 2, "key", "{key}2", "argument"))
	if err != nil {
		class, _, _ := strings.Cut(wrapped.ReplaceAllString(err.Error(), "$1"), " ")
		return "error " + class
	}
	return fmt.Sprint(v)
}
