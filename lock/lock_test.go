package lock_test

import (
	"errors"
	"regexp"
	"testing"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/lock"
)

func TestNames(t *testing.T) {
	for name, want := range map[string]bool{
		"job": true, "{a}": true, "{a}:b": true, "b:{a}": true, "{a}{": true, "{a}}": true, "{a}{}": true, "a b\x00\xff": true,
		"": false, "{": false, "}": false, "a{b": false, "a}b": false, "{}a": false, "{}": false, "}{": false, "{}{a}": false,
	} {
		if err := lock.CheckName(name); (err == nil) != want || err != nil && !errors.Is(err, lock.ErrInvalid) {
			t.Errorf("CheckName(%q) = %v, want ok %v", name, err, want)
		}
	}
}

func TestUUID(t *testing.T) {
	form := regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	seen := map[string]bool{}
	for range 100 {
		id := lock.NewUUID()
		if !form.MatchString(id) || seen[id] {
			t.Fatalf("UUID %q", id)
		}
		seen[id] = true
	}
}

func TestBadInput(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		for _, d := range []time.Duration{-time.Second, 0, time.Nanosecond, 10*time.Millisecond - 1} {
			_, err := c.Reentrant("job").Lock(t.Context(), lock.For(d))
			wantErr(t, "Lock for "+d.String(), err, lock.ErrInvalid)
		}
		for _, name := range []string{"", "a{b"} {
			bad := c.Reentrant(name)
			_, err := bad.Lock(t.Context())
			wantErr(t, "Lock", err, lock.ErrInvalid)
			_, err = bad.TryLock(t.Context())
			wantErr(t, "TryLock", err, lock.ErrInvalid)
			_, err = bad.Info(t.Context())
			wantErr(t, "Info", err, lock.ErrInvalid)
			_, err = bad.ForceUnlock(t.Context())
			wantErr(t, "ForceUnlock", err, lock.ErrInvalid)
			wantErr(t, "Do", bad.Do(t.Context(), nil), lock.ErrInvalid)
		}
		if n := w.srv.Count("EVALSHA") + w.srv.Count("EVAL"); n != 0 {
			t.Errorf("%d scripts were sent", n)
		}
		w.srv.Do("SET", "text", "kept")
		_, err := c.Reentrant("text").Lock(t.Context())
		wantErr(t, "Lock", err, lock.ErrWrongType)
		_, err = c.Reentrant("text").TryLock(t.Context())
		wantErr(t, "TryLock", err, lock.ErrWrongType)
		_, err = c.Reentrant("text").ForceUnlock(t.Context())
		wantErr(t, "ForceUnlock", err, lock.ErrWrongType)
		_, err = c.Reentrant("text").Info(t.Context())
		wantErr(t, "Info", err, lock.ErrWrongType)
		if got := w.srv.Do("GET", "text"); got != "kept" {
			t.Errorf("the key now holds %v", got)
		}
	})
}

func TestBadConfig(t *testing.T) {
	inVirtualTime(t, testBadConfig)
}

func testBadConfig(t *testing.T, w *world) {
	pool := w.pool(conn.Config{})
	defer pool.Close()
	for _, cfg := range []lock.Config{
		{Lease: -1}, {Lease: time.Millisecond}, {RenewEvery: -1}, {Lease: time.Second, RenewEvery: time.Second}, {RenewBatch: -1}, {RenewBatch: 1001}, {HandOverFor: -1},
		{TokenLife: -1}, {TokenLife: 500 * time.Microsecond}, {TokenLife: 29 * time.Second}, {TokenLife: time.Hour, PlainTokens: true},
	} {
		if c, err := lock.New(pool, cfg); !errors.Is(err, lock.ErrInvalid) {
			t.Errorf("New(%+v) = %v, %v, want ErrInvalid", cfg, c, err)
		}
	}
}

func lockAndUnlock(t testing.TB, job *lock.Reentrant) {
	lease, err := job.Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := lease.Unlock(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// Replies that the scripts cannot give are neither a grant nor a release.
func TestRepliesThatMakeNoSense(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		for _, reply := range []string{"+QUEUED\r\n", "+\r\n", "+0\r\n", "+1\r\n", "*0\r\n", "$1\r\n1\r\n", "%0\r\n", "#t\r\n"} {
			w.onScript("acquire", func(int) fakeredis.Action { return fakeredis.Reply(reply) })
			for _, opts := range [][]lock.Option{nil, {lock.As(c.NewOwner())}} {
				if _, err := c.Reentrant("job").TryLock(t.Context(), opts...); err == nil {
					t.Errorf("TryLock() answered by %q succeeded", reply)
				}
			}
		}
		for reply, owned := range map[string]bool{
			"+OK\r\n": false, ":0\r\n": false, ":7\r\n": true, ":-1\r\n": false, "*0\r\n": false, "$1\r\nx\r\n": false, "%0\r\n": false,
		} {
			w.srv.Intercept(nil)
			opts := []lock.Option{lock.For(time.Second)}
			if owned {
				opts = append(opts, lock.As(c.NewOwner()))
			}
			lease := mustLock(t, c, "job", opts...)
			w.onScript("release", func(int) fakeredis.Action { return fakeredis.Reply(reply) })
			if err := lease.Unlock(t.Context()); err == nil {
				t.Errorf("Unlock() answered by %q succeeded", reply)
			}
			w.sleep(2 * time.Second)
		}
		w.srv.Intercept(nil)
	})
}
