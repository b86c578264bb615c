package lock_test

import (
	"context"
	"fmt"
	"sync/atomic"
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

// Unlock comes while a renewal is under way, which then extends the lease on the server. The release is repeated until the new end.
func TestReleaseBehindARenewalUnderWay(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		lease, begin := mustLock(t, w.client(lock.Config{}), "job"), time.Now()
		w.srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
			switch age := time.Since(begin); {
			case isScript(cmd, "renew"):
				return fakeredis.Run().Late(400 * time.Millisecond)
			case age > 10*time.Second && age < 38*time.Second:
				return fakeredis.Close()
			}
			return fakeredis.Run()
		})
		w.sleep(10*time.Second + 100*time.Millisecond)
		wantErr(t, "Unlock", lease.Unlock(t.Context()), lock.ErrUncertain)
		w.sleep(time.Until(begin.Add(39 * time.Second)))
		w.notTaken("job")
		w.sleep(time.Minute)
		w.free()
	})
}

// A Multi extends the locks that it has while it waits for the others. Without an answer it gives all back, and each for as long as the server may
// have it.
func TestMultiBehindAnUnansweredExtension(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c, other, all, begin := w.client(lock.Config{}), w.client(lock.Config{}), names("job", 10), time.Now()
		for i, name := range all[1:] {
			mustLock(t, other, name, lock.For(time.Duration(i+1)*1400*time.Millisecond))
		}
		var extended atomic.Bool
		w.srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
			switch {
			case isScript(cmd, "renew"):
				extended.Store(true)
				return fakeredis.RunThenClose()
			case extended.Load() && time.Since(begin) < 70*time.Second:
				return fakeredis.Close()
			}
			return fakeredis.Run()
		})
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		_, err := newMulti(t, reentrants(c, all...)...).Lock(ctx, lock.For(time.Minute))
		if err == nil || !extended.Load() {
			t.Fatalf("Lock() = %v", err)
		}
		w.sleep(time.Until(begin.Add(71 * time.Second)))
		if n := w.srv.Do("EXISTS", "job0"); n != int64(0) {
			t.Errorf("a lock is still taken, for %v", w.ttl("job0"))
		}
		w.sleep(time.Minute)
	})
}

// A write lease is downgraded without acknowledgement, so the read lease counts from the last renewal. The server has it for longer.
func TestReleaseBehindAnUnacknowledgedDowngrade(t *testing.T) {
	inShard(t, lock.Config{}, func(t *testing.T, w *world, r *replicated, c *lock.Client) {
		r.tell(func(r *replicated) { r.heirs.Replicas = 1 })
		w.srv.Replicas(1)
		write := mustWrite(t, c)
		w.sleep(9 * time.Second)
		w.srv.Replicas(0)
		read, begin := mustDowngrade(t, write), time.Now()
		w.srv.Intercept(func(fakeredis.Cmd) fakeredis.Action {
			if time.Since(begin) < 26*time.Second {
				return fakeredis.Close()
			}
			return fakeredis.Run()
		})
		wantErr(t, "Unlock", read.Unlock(t.Context()), lock.ErrUncertain)
		w.sleep(time.Until(begin.Add(27 * time.Second)))
		w.notTaken("job")
		w.sleep(time.Minute)
	})
}

// Neither an Extend nor the Downgrade behind it has an answer. What the server may have is taken back until the end of the extended lease.
func TestDowngradeBehindAnUnansweredExtend(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		write, begin := mustWrite(t, w.client(lock.Config{}), lock.For(10*time.Second)), time.Now()
		w.srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
			switch {
			case isScriptOf("write", cmd, "renew"):
				return fakeredis.RunThenClose()
			case time.Since(begin) < 40*time.Second:
				return fakeredis.Close()
			}
			return fakeredis.Run()
		})
		if err := write.Extend(t.Context(), time.Minute); err == nil {
			t.Fatal("Extend has an answer")
		}
		_, err := write.Downgrade(t.Context())
		wantErr(t, "Downgrade", err, lock.ErrUncertain)
		w.sleep(time.Until(begin.Add(41 * time.Second)))
		w.notTaken("job")
		w.sleep(time.Minute)
	})
}

// An Extend arrives long after it was sent, and its answer is lost.
func TestReleaseBehindALateExtend(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.clientOn(conn.Config{Timeout: time.Minute}, lock.Config{})
		lease, begin := mustLock(t, c, "job", lock.For(30*time.Second)), time.Now()
		w.srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
			switch {
			case isScript(cmd, "renew"):
				return fakeredis.Delay(25*time.Second, fakeredis.RunThenClose())
			case time.Since(begin) < 60*time.Second:
				return fakeredis.Close()
			}
			return fakeredis.Run()
		})
		if err := lease.Extend(t.Context(), 40*time.Second); err == nil {
			t.Fatal("Extend has an answer")
		}
		wantErr(t, "Unlock", lease.Unlock(t.Context()), lock.ErrUncertain)
		w.sleep(time.Until(begin.Add(62 * time.Second)))
		w.notTaken("job")
		w.sleep(time.Minute)
	})
}

// notTaken checks that nobody has a lock. Latches may be left.
func (w *world) notTaken(name string) {
	w.t.Helper()
	if n := w.srv.Do("EXISTS", name); n != int64(0) {
		w.t.Errorf("the lock is still taken, for %v", w.ttl(name))
	}
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
				w.notTaken("job")
				w.sleep(time.Minute)
			})
		})
	}
}
