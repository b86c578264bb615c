package lock_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/lock"
)

// A replica that loads the data it was sent is online for the server, for minutes with much data, and gives signs of life. It is not waited for
// once this cannot be the first second of a replica that has all the data.
func TestReplicaThatLoads(t *testing.T) {
	const live, loading, silent = "state=online,offset=7,lag=0", "state=online,offset=0,lag=1", "state=online,offset=0,lag=3"
	const first, second = "slave0:ip=10.0.0.2,port=6379,", "\r\nslave1:ip=10.0.0.3,port=6379,"
	for name, x := range map[string]struct {
		replicas string // according to the server
		written  int    // its offset
		comes    bool   // a replica comes again and again
		fresh    conn.Succession
		granted  bool // after three seconds
	}{
		"one loads":                    {replicas: first + live + second + loading, written: 9, fresh: conn.Succession{Replicas: 2}, granted: true},
		"one loads, away for others":   {replicas: first + live + second + loading, written: 9, fresh: conn.Succession{Replicas: 1, Away: 1, AwayAddrs: []string{"10.0.0.3:6379"}}, granted: true},
		"one loads, one is promoted":   {replicas: second + loading, written: 9, fresh: conn.Succession{Replicas: 2}},
		"one hangs":                    {replicas: first + live + second + live, written: 9, fresh: conn.Succession{Replicas: 2}},
		"one came, and hangs":          {replicas: first + live + second + silent, written: 9, fresh: conn.Succession{Replicas: 2}},
		"one comes again and again":    {replicas: first + live + second + loading, written: 9, comes: true, fresh: conn.Succession{Replicas: 2}},
		"nothing was ever written":     {replicas: first + live + second + loading, fresh: conn.Succession{Replicas: 2}},
		"another one becomes a master": {replicas: first + live + second + loading, written: 9, fresh: conn.Succession{Replicas: 2, Master: "next", Addr: "10.0.0.2:6379", Changes: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			inShard(t, lock.Config{}, func(t *testing.T, w *world, r *replicated, c *lock.Client) {
				arrivals := w.replication(fmt.Sprintf("# Replication\r\nrole:master\r\n%s\r\nmaster_replid:1\r\nmaster_repl_offset:%d\r\n", x.replicas, x.written))
				w.srv.Replicas(min(1, strings.Count(x.replicas, live)))
				r.tell(func(r *replicated) {
					r.heirs.Replicas = 2
					if x.fresh.Master == "" {
						x.fresh.Master, x.fresh.Addr = r.heirs.Master, r.heirs.Addr
						r.heirs = x.fresh
					}
					r.fresh = &x.fresh
				})
				granted := false
				for begin := time.Now(); !granted && time.Since(begin) < 10*time.Second; {
					lease, err := c.Reentrant("job").TryLock(t.Context())
					if err != nil {
						if !errors.Is(err, lock.ErrNotReplicated) {
							t.Fatalf("TryLock() = %v", err)
						}
						if x.comes {
							arrivals.Add(1)
						}
						w.sleep(100 * time.Millisecond) // the undo
						continue
					}
					mustUnlock(t, lease)
					granted = true
					if took := time.Since(begin); took < 3*time.Second || took > 5*time.Second {
						t.Errorf("granted after %v", took)
					}
				}
				if granted != x.granted {
					t.Fatalf("granted is %v", granted)
				}
				if !granted {
					return
				}
				begin := time.Now()
				for range 3 {
					mustUnlock(t, mustLock(t, c, "job"))
				}
				if took := time.Since(begin); took > time.Second {
					t.Errorf("three locks took %v: each waited for the replica that loads", took)
				}
				w.sleep(time.Minute)
			})
		})
	}
}
