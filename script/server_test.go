package script_test

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/redistest"
	"github.com/lockwire/lockwire/resp"
	"github.com/lockwire/lockwire/script"
)

// onServers runs fn with a pool of a real server, in RESP2 and RESP3.
func onServers(t *testing.T, fn func(t *testing.T, srv *redistest.Server, pool *conn.Pool)) {
	t.Helper()
	redistest.RunProtocols(t, func(t *testing.T, srv *redistest.Server, protocol int) {
		cfg := srv.Config()
		cfg.Retry.Attempts = -1
		pool, err := conn.Open(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer pool.Close()
		fn(t, srv, pool)
	})
}

func TestDigestIsTheServers(t *testing.T) {
	onServers(t, func(t *testing.T, srv *redistest.Server, pool *conn.Pool) {
		for _, src := range []string{"return 1", "return 'ä\\n'", strings.Repeat("-- comment\n", 10_000) + "return 1"} {
			s := script.New(src)
			got, err := srv.Do("SCRIPT", "LOAD", src).Text()
			if err != nil || got != s.Digest() {
				t.Errorf("SCRIPT LOAD = %s, %v, Digest = %s", got, err, s.Digest())
			}
			if v, err := s.Run(t.Context(), pool, nil); err != nil {
				t.Errorf("Run = %v, %v", v, err)
			}
		}
		if n := calls(t, srv, "eval"); n != 0 {
			t.Errorf("%d EVAL of loaded scripts, want none", n)
		}
	})
}

func TestErrorsOnServer(t *testing.T) {
	onServers(t, func(t *testing.T, srv *redistest.Server, pool *conn.Pool) {
		ctx := t.Context()
		srv.Do("SET", "text", "x")
		_, err := script.New("return redis.call('INCR', KEYS[1]").Run(ctx, pool, []string{"n"})
		if !errors.Is(err, resp.ErrGeneral) || !strings.Contains(err.Error(), "compiling") {
			t.Errorf("a script that does not compile: %v", err)
		}
		_, err = script.New("return redis.call('LPUSH', KEYS[1], 1)").Run(ctx, pool, []string{"text"})
		if reply, ok := errors.AsType[resp.Error](err); !ok || !strings.Contains(string(reply), "WRONGTYPE") {
			t.Errorf("a script that fails: %v", err)
		}
		v, err := script.New("return {1, redis.error_reply('OOM x'), ARGV[1]}").Run(ctx, pool, nil, "tail")
		if err != nil || v.Len() != 3 || !errors.Is(v.At(1).Err(), resp.ErrOOM) {
			t.Errorf("an error inside a reply: %v, %v", v, err)
		}
	})
}

func TestRunROOnServer(t *testing.T) {
	onServers(t, func(t *testing.T, srv *redistest.Server, pool *conn.Pool) {
		srv.Do("SET", "n", "5")
		get := script.New("return redis.call('GET', KEYS[1])")
		for range 3 {
			v, err := get.RunRO(t.Context(), pool, []string{"n"})
			wantInt(t, v, err, 5)
		}
		_, err := script.New("return redis.call('INCR', KEYS[1])").RunRO(t.Context(), pool, []string{"n"})
		readOnly := srv.AtLeast(7, 0)
		if readOnly == (err == nil) {
			t.Errorf("RunRO of a script that writes = %v", err)
		}
		srv.Do("SET", "n", "5")
		_, err = script.New("redis.pcall('INCR', KEYS[1]) return redis.error_reply(\"ERR unknown command 'x'\")").
			RunRO(t.Context(), pool, []string{"n"})
		if n, _ := srv.Do("GET", "n").Int(); err == nil || readOnly && n != 5 {
			t.Errorf("RunRO = %v, and n is %d after it", err, n)
		}
	})
}

// Scripts run exactly once while other clients flush all scripts.
func TestFlushUnderLoad(t *testing.T) {
	const workers, rounds = 8, 200
	onServers(t, func(t *testing.T, srv *redistest.Server, pool *conn.Pool) {
		flusher, err := conn.Dial(t.Context(), srv.Config())
		if err != nil {
			t.Fatal(err)
		}
		defer flusher.Close()
		one := script.New("return redis.call('INCR', KEYS[1])")
		two := script.New("return redis.call('INCRBY', KEYS[1], 1)")
		completed := make(chan struct{}, workers)
		flushed := make(chan int)
		go func() {
			n := 0
			for range completed {
				if v, err := flusher.Do(t.Context(), "SCRIPT", "FLUSH"); err != nil {
					t.Errorf("SCRIPT FLUSH = %v, %v", v, err)
				}
				n++
			}
			flushed <- n
		}()
		var all sync.WaitGroup
		for w := range workers {
			all.Go(func() {
				for range rounds {
					increment(t, pool, []string{fmt.Sprint("n:", w)}, one, two)
					select {
					case completed <- struct{}{}:
					default:
					}
				}
			})
		}
		all.Wait()
		close(completed)
		n := <-flushed
		for w := range workers {
			if got, _ := srv.Do("GET", fmt.Sprint("n:", w)).Int(); got != 5*rounds {
				t.Errorf("counter %d is %d, want %d", w, got, 5*rounds)
			}
		}
		eval, load := calls(t, srv, "eval"), calls(t, srv, "script|load")
		t.Logf("%d flushes, %d EVAL, %d SCRIPT LOAD in %d runs", n, eval, load, 5*rounds*workers)
		if n < rounds/4 || eval < n/8 {
			t.Errorf("%d flushes and %d EVAL: too few runs met a flushed script", n, eval)
		}
	})
}

// increment increments a counter five times by scripts: two runs alone and three in a batch.
func increment(t *testing.T, pool *conn.Pool, keys []string, one, two *script.Script) {
	ctx := t.Context()
	if _, err := one.Run(ctx, pool, keys); err != nil {
		t.Errorf("Run: %v", err)
	}
	if _, err := two.Run(ctx, pool, keys); err != nil {
		t.Errorf("Run: %v", err)
	}
	replies, err := script.RunBatch(ctx, pool, []script.Call{one.Call(keys), two.Call(keys), one.Call(keys)})
	if err != nil || len(replies) != 3 {
		t.Errorf("RunBatch = %d replies, %v", len(replies), err)
	}
	for _, v := range replies {
		if _, err := v.Int(); err != nil {
			t.Errorf("reply in a batch: %v", err)
		}
	}
}

// calls returns how often the server has executed a command.
func calls(t *testing.T, srv *redistest.Server, command string) int {
	t.Helper()
	info, err := srv.Do("INFO", "commandstats").Text()
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`(?m)^cmdstat_` + regexp.QuoteMeta(command) + `:calls=(\d+)`).FindStringSubmatch(info)
	if found == nil {
		return 0
	}
	n, err := strconv.Atoi(found[1])
	if err != nil {
		t.Fatal(err)
	}
	return n
}
