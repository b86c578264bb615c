//go:build !wasip1

package simulation

import (
	"testing"
	"time"

	"github.com/lockwire/lockwire/internal/fakeredis"
)

// limitedLuas are scripts of which the fake says what a server says that is full, or denies PUBLISH and EXPIRE.
var limitedLuas = []string{
	"return redis.call('set', KEYS[1], 1)", "return redis.call('del', KEYS[1])", "return redis.call('get', KEYS[1])",
	"redis.call('del', KEYS[1]) return redis.call('set', KEYS[1], 1)", "redis.call('publish', 'c', 'x') return redis.call('set', KEYS[1], 1)",
	"return redis.call('hincrby', KEYS[2], 'a', 1)", "return redis.call('hdel', KEYS[2], 'a')", "return redis.call('zadd', KEYS[2], 1, 'a')",
	"return redis.call('rpush', KEYS[2], 'a')", "return redis.call('lpop', KEYS[2])", "return redis.call('incr', KEYS[1])",
	"return redis.call('pexpire', KEYS[1], 1000)", "return redis.call('expire', KEYS[1], 1000)", "return redis.call('hset', KEYS[2], 'a', 1)",
	"return type(redis.pcall('set', KEYS[1], 1))", "return redis.call('publish', 'c', 'x')", "return type(redis.pcall('publish', 'c', 'x'))",
	"return redis.call('zrem', KEYS[2], 'a')", "return redis.call('decrby', KEYS[1], 1)", "return redis.call('setnx', KEYS[1], 1)",
	"return redis.call('lrem', KEYS[2], 0, 'a')", "return redis.call('zincrby', KEYS[2], 1, 'a')", "return redis.call('hlen', KEYS[2])",
}

func TestServerLimits(t *testing.T) {
	runTwins(t, func(w twins) {
		must := func(args ...any) {
			w.t.Helper()
			if _, err := w.real.Do(w.t.Context(), args...); err != nil {
				w.t.Fatal(err)
			}
		}
		must("CONFIG", "SET", "maxmemory", "1")
		w.srv.Full(true)
		w.compare("full", limitedLuas)
		must("CONFIG", "SET", "maxmemory", "0")
		w.srv.Full(false)
		w.compare("not full", limitedLuas)
		must("ACL", "SETUSER", "default", "-publish", "-expire")
		w.srv.Deny("publish", "expire")
		w.compare("denied", limitedLuas)
		must("ACL", "SETUSER", "default", "+publish", "+expire")
		w.srv.Deny()
		w.compare("allowed", limitedLuas)
	})
}

// A jump of the clock takes from the lives of keys.
func TestJump(t *testing.T) {
	srv := fakeredis.New()
	defer srv.Close()
	srv.Do("SET", "key", "1", "PX", "60000")
	srv.Jump(-time.Minute)
	if left, _ := srv.Do("PTTL", "key").(int64); left < 110_000 || left > 120_000 {
		t.Errorf("a key has %d ms after the clock went back a minute, want 120 s", left)
	}
	srv.Jump(3 * time.Minute)
	if left := srv.Do("PTTL", "key"); left != any(int64(-2)) {
		t.Errorf("a key has %v ms after the clock jumped 3 minutes ahead, want none", left)
	}
}
