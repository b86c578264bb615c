package lock_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/lock"
	"github.com/lockwire/lockwire/resp"
	"github.com/lockwire/lockwire/script"
)

const jobToken = "redisson_lock_token:{job}"

func lockFenced(t *testing.T, c *lock.Client, opts ...lock.Option) *lock.Lease {
	t.Helper()
	lease, err := c.Fenced("job").Lock(t.Context(), opts...)
	if err != nil {
		t.Fatalf("Lock() = %v", err)
	}
	return lease
}

func lastToken(t *testing.T, c *lock.Client) int64 {
	t.Helper()
	token, err := c.Fenced("job").Token(t.Context())
	if err != nil {
		t.Fatalf("Token() = %v", err)
	}
	return token
}

func TestTokensGrow(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		if got := lastToken(t, c); got != 0 {
			t.Errorf("token before the first holder %d", got)
		}
		last := int64(0)
		for i := range 20 {
			lease := lockFenced(t, c)
			if lease.Token() <= last || lease.Token() != lastToken(t, c) {
				t.Fatalf("token %d after %d, the server has %d", lease.Token(), last, lastToken(t, c))
			}
			if floor := time.Now().UnixMicro(); i == 0 && lease.Token() < floor {
				t.Errorf("token %d, less than the server's time %d", lease.Token(), floor)
			}
			last = lease.Token()
			mustUnlock(t, lease)
			if got := lastToken(t, c); got != last {
				t.Errorf("token of the free lock %d, want %d", got, last)
			}
		}
	})
}

func TestTokenOfFurtherHolds(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		owner := c.NewOwner()
		first := lockFenced(t, c, lock.As(owner))
		second := lockFenced(t, c, lock.As(owner))
		if second.Token() != first.Token() {
			t.Errorf("tokens %d and %d of one owner's holds", first.Token(), second.Token())
		}
		w.srv.Do("DEL", jobToken)
		third := lockFenced(t, c, lock.As(owner))
		if third.Token() < second.Token() {
			t.Errorf("token %d after %d, which was lost", third.Token(), second.Token())
		}
		for _, l := range []*lock.Lease{third, second, first} {
			mustUnlock(t, l)
		}
		if lease := mustLock(t, c, "other"); lease.Token() != 0 {
			t.Errorf("token %d of a lock that is not fenced", lease.Token())
		} else {
			mustUnlock(t, lease)
		}
	})
}

// A client of Redisson counts on from our token, and we from its.
func TestTokensBesideRedisson(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		lease := lockFenced(t, c)
		mustUnlock(t, lease)
		theirs := w.srv.Do("INCRBY", jobToken, "1000000000").(int64)
		next := lockFenced(t, c)
		if next.Token() != theirs+1 {
			t.Errorf("token %d after %d", next.Token(), theirs)
		}
		mustUnlock(t, next)
	})
}

func TestPlainTokens(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{PlainTokens: true})
		for want := range int64(3) {
			lease := lockFenced(t, c)
			if lease.Token() != want+1 {
				t.Errorf("token %d, want %d", lease.Token(), want+1)
			}
			mustUnlock(t, lease)
		}
	})
}

// The counter ends TokenLife after the time in the last token, however the lock was acquired, and the next token is larger.
func TestTokenLife(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{TokenLife: time.Hour, HandOverFor: time.Hour})
		owner := c.NewOwner()
		var last int64
		grow := func(token int64) {
			t.Helper()
			if token <= last {
				t.Fatalf("token %d after %d", token, last)
			}
			last = token
		}
		for _, ahead := range []time.Duration{0, 20 * time.Minute} { // of the time in the token before, from another server's clock
			w.srv.Do("SET", jobToken, fmt.Sprint(time.Now().Add(ahead).UnixMicro()))
			first := lockFenced(t, c, lock.As(owner))
			grow(first.Token())
			w.sleep(30 * time.Minute)
			again := lockFenced(t, c, lock.As(owner))
			if again.Token() != last || w.ttl(jobToken) != 30*time.Minute+ahead {
				t.Errorf("token %d after %d, the counter stays for %v", again.Token(), last, w.ttl(jobToken))
			}
			mustUnlock(t, again)
			mustUnlock(t, first)
			w.sleep(30*time.Minute + ahead - time.Millisecond)
			if got := lastToken(t, c); got != last {
				t.Errorf("Token() = %d before the end of the counter, want %d", got, last)
			}
			w.sleep(2 * time.Millisecond)
			if got := lastToken(t, c); got != 0 {
				t.Errorf("Token() = %d after the end of the counter", got)
			}

			first = lockFenced(t, c)
			grow(first.Token())
			w.sleep(5 * time.Second)
			next := make(chan *lock.Lease)
			go func() { next <- lockFenced(t, c, lock.For(time.Minute)) }()
			synctest.Wait()
			mustUnlock(t, first)
			heir := <-next
			grow(heir.Token())
			if w.ttl(jobToken) != time.Hour {
				t.Errorf("the counter stays for %v after a hand-over", w.ttl(jobToken))
			}
			mustUnlock(t, heir)
		}
		forever := w.client(lock.Config{})
		lease := lockFenced(t, forever)
		grow(lease.Token())
		mustUnlock(t, lease)
		w.sleep(2 * time.Hour)
		if got := lastToken(t, c); got != last {
			t.Errorf("Token() = %d, want %d: the last client keeps it for ever", got, last)
		}
	})
}

func TestTokenOfAnotherType(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		w.srv.Do("RPUSH", jobToken, "x")
		_, err := c.Fenced("job").Lock(t.Context())
		wantErr(t, "Lock", err, lock.ErrWrongType)
		w.srv.Do("DEL", jobToken)
		w.srv.Do("SET", jobToken, "many")
		if _, err = c.Fenced("job").Lock(t.Context()); err == nil {
			t.Error("Lock() with a token that is no number succeeded")
		}
		if w.srv.Do("EXISTS", "job") != int64(0) {
			t.Error("the lock is taken")
		}
	})
}

// A11: a lock without a time to live is taken, whoever asks; a token lives for ever, whoever gave it a time to live; and
// tokens go on growing after the counter was deleted.
func TestA11(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		redisson := newRedissonFenced(t, w)
		c := w.client(lock.Config{})

		w.srv.Do("HSET", "job", "somebody:1", "1")
		if !redisson.lock("me:1") {
			t.Error("Redisson's rule tells the lock taken, so this shows nothing")
		}
		_, err := c.Fenced("job").TryLock(t.Context())
		wantErr(t, "TryLock of a lock without a lease", err, lock.ErrNotAcquired)
		w.srv.Do("DEL", "job")

		first := lockFenced(t, c)
		mustUnlock(t, first)
		w.srv.Do("PEXPIRE", jobToken, "1000")
		second := lockFenced(t, c)
		mustUnlock(t, second)
		if left := w.ttl(jobToken); left >= 0 {
			t.Errorf("the token has %v to live", left)
		}

		w.srv.Do("DEL", jobToken)
		if redisson.lock("me:2"); redisson.token >= second.Token() {
			t.Error("Redisson's rule gives tokens that grow, so this shows nothing")
		}
		w.srv.Do("DEL", "job", jobToken)
		w.sleep(time.Millisecond)
		third := lockFenced(t, c)
		if third.Token() <= second.Token() {
			t.Errorf("token %d after %d, which was lost", third.Token(), second.Token())
		}
		mustUnlock(t, third)
	})
}

// redissonFenced acquires by Redisson's rule: a list of -1 and the token, or of PTTL and -1.
type redissonFenced struct {
	t     *testing.T
	pool  *conn.Pool
	token int64
}

var redissonFencedAcquire = script.New("-- Redisson's rule for a fenced lock, told by the fake server")

func newRedissonFenced(t *testing.T, w *world) *redissonFenced {
	w.srv.Script(redissonFencedAcquire.Source(), func(c *fakeredis.Call) any {
		if c.Int("EXISTS", c.Keys[0]) == 1 && c.Int("HEXISTS", c.Keys[0], c.Args[1]) == 0 {
			return []any{c.Do("PTTL", c.Keys[0]), int64(-1)}
		}
		token := c.Do("INCR", c.Keys[1])
		c.Do("HINCRBY", c.Keys[0], c.Args[1], "1")
		c.Do("PEXPIRE", c.Keys[0], c.Args[0])
		return []any{int64(-1), token}
	})
	pool := w.pool(conn.Config{})
	w.pools = append(w.pools, pool)
	return &redissonFenced{t: t, pool: pool}
}

// lock reports whether Redisson's client takes the reply for success.
func (r *redissonFenced) lock(owner string) bool {
	v, err := redissonFencedAcquire.Run(r.t.Context(), r.pool, []string{"job", jobToken}, 30_000, owner)
	if reply, ok := errors.AsType[resp.Error](err); ok || err != nil {
		r.t.Fatal(reply, err)
	}
	left, _ := v.At(0).Int()
	r.token, _ = v.At(1).Int()
	return left == -1
}
