package lock_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/lock"
)

// cutOff has the server refuse all connections for a time.
func (w *world) cutOff(d time.Duration) {
	w.srv.Intercept(nil)
	w.srv.Refuse(true)
	w.srv.KillConns(nil)
	time.AfterFunc(d, func() { w.srv.Refuse(false) })
}

// A renewal that no replica is known to have acknowledged has extended the lease on its server: a release is repeated until the end there.
func TestReleaseBehindUnacknowledgedRenewals(t *testing.T) {
	for what, cause := range map[string]func(w *world, r *replicated){
		"nobody tells who would replace the server": func(_ *world, r *replicated) {
			r.tell(func(r *replicated) { r.err = fmt.Errorf("%w: no sentinel", conn.ErrNotSent) })
		},
		"an error in place of acknowledgements": func(w *world, _ *replicated) {
			w.srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
				if cmd.Name == "WAIT" && cmd.Args[1] != "0" {
					return fakeredis.Reply("-UNBLOCKED force unblock from blocking operation\r\n")
				}
				return fakeredis.Run()
			})
		},
	} {
		t.Run(what, func(t *testing.T) {
			inShard(t, lock.Config{}, func(t *testing.T, w *world, r *replicated, c *lock.Client) {
				w.attached("state=online,offset=1,lag=0")
				w.srv.Replicas(1)
				r.tell(func(r *replicated) { r.heirs.Replicas = 1 })
				lease := mustLock(t, c, "job")
				cause(w, r)
				w.sleep(26 * time.Second)
				if err := lease.Err(); err != nil {
					t.Fatal(err)
				}
				if left := w.ttl("job"); left < 20*time.Second {
					t.Fatalf("no renewal has run: the lease ends in %v", left)
				}
				r.tell(func(r *replicated) { r.err = nil })
				w.cutOff(14 * time.Second)
				wantErr(t, "Unlock", lease.Unlock(t.Context()), lock.ErrUncertain)
				w.sleep(15 * time.Second)
				if n := w.srv.Do("EXISTS", "job"); n != int64(0) {
					t.Errorf("the lock is still taken, for %v", w.ttl("job"))
				}
				w.sleep(time.Minute)
			})
		})
	}
}
