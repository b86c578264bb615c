package lock_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/lock"
	"github.com/lockwire/lockwire/lock/internal/kinds"
	"github.com/lockwire/lockwire/resp"
	"github.com/lockwire/lockwire/script"
)

// A plain lock is what SET NX PX makes of the key, and what others delete when they have the value.
func TestPlainOnTheWire(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		lease, err := c.Plain("job").Lock(t.Context(), lock.For(5*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		if got := w.srv.Do("GET", "job"); got != lease.Owner() || len(lease.Owner()) != 32 || w.ttl("job") != 5*time.Second {
			t.Errorf("the key holds %v for %v, the owner is %q", got, w.ttl("job"), lease.Owner())
		}
		if w.srv.Do("SET", "job", "theirs", "NX", "PX", "1000") != nil {
			t.Error("somebody else has set it")
		}
		mustUnlock(t, lease)
		w.srv.Do("SET", "job", "theirs", "NX", "PX", "1000")
		_, err = c.Plain("job").TryLock(t.Context())
		wantErr(t, "TryLock() of another's", err, lock.ErrNotAcquired)
		start := time.Now()
		lease, err = c.Plain("job").Lock(t.Context())
		if waited := time.Since(start); err != nil || waited < time.Second || waited > 1200*time.Millisecond {
			t.Errorf("Lock() = %v after %v", err, waited)
		}
		w.sleep(time.Hour)
		if err := lease.Check(t.Context()); err != nil {
			t.Errorf("Check() after an hour = %v", err)
		}
		w.srv.Do("SET", "job", "theirs", "PX", "1000")
		lostBecause(t, lease.Check(t.Context()), lock.Taken)
		wantErr(t, "Unlock()", lease.Unlock(t.Context()), lock.ErrNotHeld)
		if w.srv.Do("GET", "job") != "theirs" {
			t.Error("Unlock has deleted another's key")
		}
		w.srv.Do("DEL", "job")
		w.free()
	})
}

func TestPlainIsNotReentrant(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		owner := c.NewOwner()
		lease, err := c.Plain("job").Lock(t.Context(), lock.As(owner))
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Plain("job").Lock(t.Context(), lock.As(owner))
		wantErr(t, "Lock() by the owner", err, lock.ErrReentry)
		mustUnlock(t, lease)
		w.free()
	})
}

// Redisson's locks and plain ones cannot take each other's key for free or for taken.
func TestPlainAndHashes(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		lease := mustLock(t, c, "job")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := c.Plain("job").Lock(ctx)
		wantErr(t, "Lock() of a hash", err, lock.ErrWrongType)
		mustUnlock(t, lease)
		lease, err = c.Plain("job").Lock(ctx)
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Reentrant("job").Lock(ctx)
		wantErr(t, "Lock() of a string", err, lock.ErrWrongType)
		mustUnlock(t, lease)
		w.free()
	})
}

// A Redlock of plain locks has one value on all servers, as those of others have.
func TestPlainRedlockOnTheWire(t *testing.T) {
	inFleet(t, 3, func(t *testing.T, f fleet) {
		lease := lockRed(t, f.process(lock.Config{}).redlock(t, lock.RedlockConfig{}, true))
		f[0].sleep(time.Second)
		for i, holder := range f.holders("job") {
			if holder != lease.Owner() {
				t.Errorf("server %d has %v, the owner is %q", i, holder, lease.Owner())
			}
		}
		mustUnlock(t, lease)
		f.free()
	})
}

func TestReentryIsRefused(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		job, owner := c.NonReentrant("job"), c.NewOwner()
		lease, err := job.Lock(t.Context(), lock.As(owner))
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		_, err = job.Lock(t.Context(), lock.As(owner))
		wantErr(t, "Lock by the owner", err, lock.ErrReentry)
		_, err = job.TryLock(t.Context(), lock.As(owner))
		wantErr(t, "TryLock by the owner", err, lock.ErrReentry)
		if took := time.Since(start); took != 0 {
			t.Errorf("refused after %v", took)
		}
		_, err = job.TryLock(t.Context())
		wantErr(t, "TryLock by somebody else", err, lock.ErrNotAcquired)
		_, err = job.TryLock(t.Context(), lock.As(c.NewOwner()))
		wantErr(t, "TryLock by another Owner", err, lock.ErrNotAcquired)
		if err := lease.Check(t.Context()); err != nil {
			t.Errorf("Check() after refusals = %v", err)
		}
		mustUnlock(t, lease)
		again, err := job.Lock(t.Context(), lock.As(owner))
		if err != nil {
			t.Fatal(err)
		}
		mustUnlock(t, again)
		w.free()
	})
}

// A1: an acquire whose answer was lost is taken back, and is not met by its own repeat. Redisson sends the same again.
func TestA01NonReentrant(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		resent := kinds.All()["nonreentrant"]["acquire"]
		for _, want := range []string{"", "reentry"} {
			v, err := resent.Run(t.Context(), w.pools[0], []string{"resent", "channel", "latch"}, 30_000, "redisson:1", soon())
			if text, _ := v.Text(); err != nil || text != want {
				t.Fatalf("acquire, sent twice, returns %q, %v, so this shows nothing", text, err)
			}
		}
		w.srv.Do("DEL", "resent")

		job, owner := c.NonReentrant("job"), c.NewOwner()
		acquire, n := kinds.All()["nonreentrant"]["acquire"].Digest(), 0
		w.srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
			if len(cmd.Args) < 2 || cmd.Args[1] != acquire {
				return fakeredis.Run()
			}
			if n++; n == 1 {
				return fakeredis.RunThenClose()
			}
			return fakeredis.Run()
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		lease, err := job.Lock(ctx, lock.As(owner))
		if err != nil {
			t.Fatalf("Lock() = %v, want the lock after the lost grant is taken back", err)
		}
		if w.srv.Do("HGET", "job", owner.String()) != "1" {
			t.Errorf("hold count %v", w.srv.Do("HGET", "job", owner.String()))
		}
		mustUnlock(t, lease)
		w.sleep(latchLife)
		w.free()
	})
}

// Redisson's ExponentialBackOff: the n-th pause is twice the one before it, and less than n ms more.
func TestBackoff(t *testing.T) {
	for name, test := range map[string]struct {
		backoff    lock.Backoff
		initial    time.Duration
		longest    time.Duration
		multiplier int
	}{
		"default":  {lock.Backoff{}, time.Millisecond, 128 * time.Millisecond, 2},
		"max":      {lock.Backoff{Max: time.Second}, time.Millisecond, time.Second, 2},
		"initial":  {lock.Backoff{Initial: time.Second}, time.Second, time.Second, 2},
		"slow":     {lock.Backoff{Initial: 10 * time.Millisecond, Max: time.Hour, Multiplier: 3}, 10 * time.Millisecond, time.Hour, 3},
		"constant": {lock.ConstantBackoff(64 * time.Millisecond), 64 * time.Millisecond, 64 * time.Millisecond, 1},
		"longest":  {lock.Backoff{Initial: 1 << 62, Max: 1<<63 - 1}, 1 << 62, 1<<63 - 1, 2},
	} {
		pauses := lock.Pauses(test.backoff, 40)
		if pauses[0] != test.initial || pauses[len(pauses)-1] != test.longest {
			t.Errorf("%s: pauses from %v to %v", name, pauses[0], pauses[len(pauses)-1])
		}
		for i := 1; i < len(pauses); i++ {
			least := test.longest
			if pauses[i-1] <= test.longest/time.Duration(test.multiplier) {
				least = pauses[i-1] * time.Duration(test.multiplier)
			}
			most := min(test.longest, least+time.Duration(i)*time.Millisecond)
			if least < 0 || pauses[i] < least || pauses[i] > max(least, most) {
				t.Errorf("%s: pause %d is %v after %v", name, i, pauses[i], pauses[i-1])
			}
		}
	}
}

func TestBadBackoff(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		for _, b := range []lock.Backoff{
			{Initial: -1}, {Max: -1}, {Multiplier: -1}, {Initial: time.Second, Max: time.Millisecond}, {Initial: 1},
		} {
			_, err := c.Spin("job", b).Lock(t.Context())
			wantErr(t, "Lock", err, lock.ErrInvalid)
		}
	})
}

// A wait ends with its context, in the middle of a pause. Nothing is published or subscribed to, and the lock is as much a
// Reentrant's as a Spin's.
func TestSpin(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c, other := w.client(lock.Config{}), w.client(lock.Config{})
		lease := mustLock(t, other, "job")
		spin := c.Spin("job", lock.ConstantBackoff(time.Minute))
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		start := time.Now()
		_, err := spin.Lock(ctx)
		wantErr(t, "Lock", err, lock.ErrNotAcquired)
		if took := time.Since(start); took != 1500*time.Millisecond {
			t.Errorf("Lock() returned after %v, want 1.5s", took)
		}
		mustUnlock(t, lease)

		held, err := spin.Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_, err = other.Reentrant("job").TryLock(t.Context())
		wantErr(t, "TryLock by a Reentrant", err, lock.ErrNotAcquired)
		published := w.srv.Count("PUBLISH")
		mustUnlock(t, held)
		if n := w.srv.Count("SUBSCRIBE"); n != 0 || w.srv.Count("PUBLISH") != published {
			t.Errorf("%d subscriptions, %d messages", n, w.srv.Count("PUBLISH")-published)
		}
	})
}

// Who waits looks when its pause is over: at 0, 64 and 128 ms, and then the lock is free.
func TestSpinLooks(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c, other := w.client(lock.Config{}), w.client(lock.Config{})
		lease := mustLock(t, other, "job")
		time.AfterFunc(100*time.Millisecond, func() { mustUnlock(t, lease) })
		start := time.Now()
		held, err := c.Spin("job", lock.ConstantBackoff(64*time.Millisecond)).Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took != 128*time.Millisecond {
			t.Errorf("acquired after %v, want 128ms", took)
		}
		mustUnlock(t, held)
	})
}

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

// An Owner's first fenced hold has a token of its own, also while the Owner has the lock by a hold without a token: the last token is that
// of an earlier holder.
func TestTokenOfFurtherHoldsOfOtherKinds(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		earlier := lockFenced(t, c)
		mustUnlock(t, earlier)
		owner := c.NewOwner()
		plain := mustLock(t, c, "job", lock.As(owner))
		first := lockFenced(t, c, lock.As(owner))
		if first.Token() <= earlier.Token() {
			t.Errorf("token %d after %d of an earlier holder", first.Token(), earlier.Token())
		}
		mustUnlock(t, first)
		fair, err := c.Fair("job").Lock(t.Context(), lock.As(owner))
		if err != nil {
			t.Fatal(err)
		}
		again := lockFenced(t, c, lock.As(owner))
		if again.Token() != first.Token() {
			t.Errorf("tokens %d and %d of one owner's holds", first.Token(), again.Token())
		}
		for _, l := range []*lock.Lease{again, fair, plain} {
			mustUnlock(t, l)
		}
		lost := lockFenced(t, c, lock.As(owner))
		w.srv.Do("DEL", "job")
		after := mustLock(t, c, "job", lock.As(owner)) // of a new period, without a token
		next := lockFenced(t, c, lock.As(owner))
		if lost.Token() <= again.Token() || next.Token() <= lost.Token() {
			t.Errorf("tokens %d, %d and %d, want them to grow", again.Token(), lost.Token(), next.Token())
		}
		_ = lost.Unlock(t.Context())
		mustUnlock(t, next)
		mustUnlock(t, after)
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
