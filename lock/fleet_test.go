package lock_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/lock"
)

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
