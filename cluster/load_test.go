package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockwire/lockwire/cluster"
	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/redistest"
	"github.com/lockwire/lockwire/resp"
	"github.com/lockwire/lockwire/script"
)

// loadTime returns the duration of a test's load: LOCKWIRE_TORTURE_TIME, or short by default.
func loadTime(t *testing.T, short time.Duration) time.Duration {
	text := os.Getenv("LOCKWIRE_TORTURE_TIME")
	if text == "" {
		return short
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("LOCKWIRE_TORTURE_TIME: %v", err)
	}
	return d
}

// load is a set of callers that count in the keys of a cluster, through every method that sends
// commands.
type load struct {
	t    *testing.T
	c    *cluster.Cluster
	keys []counter
	stop context.CancelFunc
	ctx  context.Context
	wg   sync.WaitGroup

	calls  atomic.Int64
	failed atomic.Int64          // calls that certainly ran nothing
	mayErr func(key string) bool // whether a call on the key may fail; nil: no call may
}

// counter is a key with the known outcomes of its calls.
type counter struct {
	name      string
	done      atomic.Int64 // acknowledged
	uncertain atomic.Int64
}

var incr = script.New("return redis.call('INCR', KEYS[1])")

// loads distinguishes the keys of successive loads, because a replica that takes over may bring
// deleted keys back.
var loads atomic.Int64

// startLoad begins to count in perTag keys of each tag.
func startLoad(t *testing.T, c *cluster.Cluster, tags []string, perTag int, mayErr func(string) bool) *load {
	l := &load{t: t, c: c, keys: make([]counter, len(tags)*perTag), mayErr: mayErr}
	load := loads.Add(1)
	for i := range l.keys {
		l.keys[i].name = fmt.Sprintf("{%s}%d:%d", tags[i/perTag], load, i%perTag)
	}
	l.ctx, l.stop = context.WithCancel(t.Context())
	for i := range 24 {
		l.wg.Go(func() {
			for n := 0; l.ctx.Err() == nil; n++ {
				l.once(i, perTag)
			}
		})
	}
	return l
}

// once makes one call. The worker decides the kind of call.
func (l *load) once(worker, perTag int) {
	at := rand.IntN(len(l.keys))
	k := &l.keys[at]
	sibling := &l.keys[at/perTag*perTag+rand.IntN(perTag)]
	switch worker % 6 {
	case 0, 1:
		_, err := l.c.Do(l.t.Context(), "INCR", k.name)
		l.count(k, err)
	case 2:
		_, err := incr.Run(l.t.Context(), l.c, []string{k.name})
		l.count(k, err)
	case 3:
		l.batch()
	case 4:
		values, err := l.c.Tx(l.t.Context(), []resp.Command{resp.Cmd("INCR", k.name), resp.Cmd("INCR", sibling.name)})
		if err == nil && len(values) != 2 {
			l.t.Errorf("a transaction of 2 has %d replies", len(values))
		}
		l.count(k, err)
		l.count(sibling, err)
	case 5:
		v, err := l.c.Do(l.t.Context(), "MGET", k.name, sibling.name)
		l.calls.Add(1)
		if err != nil && (l.mayErr == nil || !l.mayErr(k.name)) {
			l.t.Errorf("MGET: %v", err)
		} else if err == nil && v.Len() != 2 {
			l.t.Errorf("MGET has %d values", v.Len())
		}
	}
}

func (l *load) batch() {
	keys := make([]*counter, 10)
	cmds := make([]resp.Command, 10)
	for i := range cmds {
		keys[i] = &l.keys[rand.IntN(len(l.keys))]
		cmds[i] = resp.Cmd("INCR", keys[i].name)
	}
	values, err := l.c.SendBatch(l.t.Context(), cmds)
	all, divided := errors.AsType[*cluster.BatchError](err)
	for i, k := range keys {
		var v resp.Value
		outcome := err
		switch {
		case divided:
			v, outcome = all.At(i)
		case i < len(values):
			v, outcome = values[i], nil
		}
		if outcome == nil {
			outcome = v.Err()
		}
		l.count(k, outcome)
	}
}

// count records the outcome of a counting call.
func (l *load) count(k *counter, err error) {
	l.calls.Add(1)
	switch {
	case err == nil:
		k.done.Add(1)
	case l.mayErr == nil || !l.mayErr(k.name):
		l.t.Errorf("%s: %v", k.name, err)
	case errors.Is(err, conn.ErrUncertain):
		k.uncertain.Add(1)
	default:
		l.failed.Add(1)
	}
}

// end ends the load and checks the counters. If acknowledged writes may be lost, end only checks
// that no call counted twice.
func (l *load) end(mayLose bool) {
	l.t.Helper()
	l.stop()
	l.wg.Wait()
	lost := int64(0)
	for i := range l.keys {
		k := &l.keys[i]
		done, uncertain := k.done.Load(), k.uncertain.Load()
		v, err := l.c.Do(l.t.Context(), "GET", k.name)
		if err != nil {
			l.t.Fatalf("%s: %v", k.name, err)
		}
		if v.IsNull() && done > 0 && !mayLose {
			l.t.Errorf("%s is gone", k.name)
			continue
		}
		var n int64
		if !v.IsNull() {
			if n, err = v.Int(); err != nil {
				l.t.Fatal(err)
			}
		}
		if n > done+uncertain || n < done && !mayLose {
			l.t.Errorf("%s is %d, want %d to %d", k.name, n, done, done+uncertain)
		}
		lost += max(done-n, 0)
	}
	l.t.Logf("%d calls, %d failed, %d acknowledged writes lost, %+v", l.calls.Load(), l.failed.Load(), lost, l.c.Stats())
}

// await lets the load continue for d.
func (l *load) await(d time.Duration) {
	select {
	case <-time.After(d):
	case <-l.ctx.Done():
	}
}

// tagsOf returns count tags in slots of a node.
func tagsOf(rc *redistest.Cluster, s *redistest.Server, count int) (tags []string) {
	for i := 0; len(tags) < count; i++ {
		tag := fmt.Sprint("tag", i)
		if rc.Owner(cluster.Slot(tag)) == s {
			tags = append(tags, tag)
		}
	}
	return tags
}
