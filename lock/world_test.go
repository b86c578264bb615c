package lock_test

import (
	"errors"
	"fmt"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/internal/lockscripts"
	"github.com/lockwire/lockwire/internal/redistest"
	"github.com/lockwire/lockwire/lock"
	"github.com/lockwire/lockwire/lock/internal/kinds"
)

func TestMain(m *testing.M) { redistest.Main(m) }

const patience = redistest.Patience

// world is a fake server in virtual time with clients of it.
type world struct {
	t       *testing.T
	srv     *fakeredis.Server
	machine lock.Machine
	pools   []*conn.Pool
	clients []*lock.Client
}

// inVirtualTime runs fn in a bubble. What fn's clients leave behind in the server or in this process fails the test.
func inVirtualTime(t *testing.T, fn func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, srv: fakeredis.New()}
		teach(w.srv)
		defer w.close()
		fn(t, w)
	})
}

func (w *world) pool(cfg conn.Config) *conn.Pool {
	w.t.Helper()
	cfg.Dial = w.srv.Dial
	pool, err := conn.Open(w.t.Context(), cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	return pool
}

func (w *world) client(cfg lock.Config) *lock.Client {
	w.t.Helper()
	return w.clientOn(conn.Config{}, cfg)
}

// clientOn is client with a configuration for its pool as well.
func (w *world) clientOn(poolCfg conn.Config, cfg lock.Config) *lock.Client {
	w.t.Helper()
	pool := w.pool(poolCfg)
	c, err := lock.New(pool, cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	w.machine.Run(c)
	c.Deaf()
	w.pools = append(w.pools, pool)
	w.clients = append(w.clients, c)
	return c
}

func (w *world) close() {
	for _, c := range w.clients {
		if err := c.Close(); err != nil {
			w.t.Errorf("Client.Close() = %v", err)
		}
	}
	for _, p := range w.pools {
		if err := p.Close(); err != nil {
			w.t.Errorf("Pool.Close() = %v", err)
		}
	}
	w.srv.Close()
}

// mustLock locks name and fails the test if that does not work.
func mustLock(t *testing.T, c *lock.Client, name string, opts ...lock.Option) *lock.Lease {
	t.Helper()
	lease, err := c.Reentrant(name).Lock(t.Context(), opts...)
	if err != nil {
		t.Fatalf("Lock(%q) = %v", name, err)
	}
	return lease
}

func mustUnlock(t *testing.T, l *lock.Lease) {
	t.Helper()
	if err := l.Unlock(t.Context()); err != nil {
		t.Fatalf("Unlock() = %v", err)
	}
}

func wantErr(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("%s = %v, want %v", what, err, want)
	}
}

func lostBecause(t *testing.T, err error, want lock.Reason) {
	t.Helper()
	lost, ok := errors.AsType[*lock.LostError](err)
	if !ok || lost.Reason != want {
		t.Fatalf("error = %v, want a loss because %v", err, want)
	}
}

// sleep lets virtual time go by: a world is in a bubble.
func (w *world) sleep(d time.Duration) { time.Sleep(d) }

// ttl is the remaining lease of a key as the server has it, negative if it has none.
func (w *world) ttl(key string) time.Duration {
	left, _ := w.srv.Do("PTTL", key).(int64)
	return time.Duration(left) * time.Millisecond
}

// wantHolds fails the test unless the server has so many holds for the owner, and lease knows of no loss.
func (w *world) wantHolds(name, count string, lease *lock.Lease) {
	w.t.Helper()
	got, _ := w.srv.Do("HGET", name, lease.Owner()).(string)
	if got != count || lease.Err() != nil {
		w.t.Fatalf("hold count on the server %q, Err() = %v, want %q and nil", got, lease.Err(), count)
	}
}

// latchLife is how long the server may have to know a request that had no answer.
const latchLife = 20 * time.Second

// free fails the test unless the server has no key left and nobody listens.
func (w *world) free() {
	w.t.Helper()
	time.Sleep(time.Second) // for what goes on in the background
	synctest.Wait()
	if keys := w.srv.Do("DBSIZE"); keys != int64(0) {
		w.t.Errorf("%v keys are left", w.srv.Do("KEYS", "*"))
	}
	if channels, _ := w.srv.Do("PUBSUB", "CHANNELS").([]any); len(channels) != 0 {
		w.t.Errorf("subscriptions are left: %v", channels)
	}
	for _, c := range w.clients {
		if !c.Idle() {
			w.t.Error("a client has not forgotten everything")
		}
	}
}

// teach gives srv the functions of the scripts and loads the scripts.
func teach(srv *fakeredis.Server) { lockscripts.Load(srv, kinds.All()) }

// timeoutLeft is what the lease of a reader's n-th hold has left on the server.
func (w *world) timeoutLeft(name, owner string, n int64) time.Duration {
	return w.ttl(lockscripts.TimeoutKey(name, owner, n))
}

func number(text string) int64 {
	n, _ := strconv.ParseInt(text, 10, 64)
	return n
}

func text(n int64) string { return strconv.FormatInt(n, 10) }

// fields is a hash as a script sees it.
func fields(c *fakeredis.Call, key string) map[string]string { return lockscripts.Fields(c, key) }

// soon is a time until which a request is good.
func soon() int64 { return time.Now().Add(30 * time.Second).UnixMilli() }

// fleet is several servers, each with the clients of it.
type fleet []*world

// inFleet is inVirtualTime with n servers, which have been up for an hour.
func inFleet(t *testing.T, n int, fn func(t *testing.T, f fleet)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var f fleet
		for range n {
			w := &world{t: t, srv: fakeredis.New()}
			teach(w.srv)
			defer w.close()
			f = append(f, w)
		}
		time.Sleep(time.Hour)
		fn(t, f)
	})
}

// process is what a process has: a client of each server.
type process []*lock.Client

func (f fleet) process(cfg lock.Config) process {
	var p process
	for _, w := range f {
		p = append(p, w.clientOn(conn.Config{Timeout: time.Second, DialTimeout: time.Second}, cfg))
	}
	return p
}

// holders are who has the key on each of the servers.
func (f fleet) holders(key string) []any {
	var list []any
	for _, w := range f {
		if w.srv.Do("TYPE", key) == fakeredis.Status("string") {
			list = append(list, w.srv.Do("GET", key))
		} else if owners, _ := w.srv.Do("HKEYS", key).([]any); len(owners) > 0 {
			list = append(list, owners[0])
		} else {
			list = append(list, nil)
		}
	}
	return list
}

// taken is on how many servers somebody has the key.
func (f fleet) taken(key string) (n int) {
	for _, h := range f.holders(key) {
		if h != nil {
			n++
		}
	}
	return n
}

func (f fleet) free() {
	for i, w := range f {
		w.free()
		if w.t.Failed() {
			w.t.Fatalf("on server %d", i)
		}
	}
}

// names are n names in order.
func names(prefix string, n int) (list []string) {
	for i := range n {
		list = append(list, fmt.Sprint(prefix, i))
	}
	return list
}

func (w *world) pexpire(key string, ms int64) { w.srv.Do("PEXPIRE", key, fmt.Sprint(ms)) }
