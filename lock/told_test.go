package lock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/lock"
	"github.com/lockwire/lockwire/lock/internal/kinds"
)

// forcings are the ways to free the lock job, and the scripts of these.
var forcings = []struct {
	unlock func(ctx context.Context, c *lock.Client, owner string) (bool, error)
	script string
}{{forceJob, "force"}, {forceOwnerOfJob, "undo"}}

// A holder is told of a forced unlock within a second also if the announcement, or all of the forcing process, is interrupted and the call
// repeated elsewhere.
func TestForcedIsToldAfterAnInterruption(t *testing.T) {
	for name, cut := range map[string]func(w *world, cmd fakeredis.Cmd, script string) bool{
		"announcement": func(_ *world, cmd fakeredis.Cmd, _ string) bool {
			return cmd.Name == "PUBLISH" && cmd.Args[1] == kinds.ForcedChannel
		},
		"process": func(w *world, cmd fakeredis.Cmd, script string) bool {
			forces := isScript(cmd, script)
			if forces {
				w.srv.Refuse(true)
				time.AfterFunc(500*time.Millisecond, func() { w.srv.Refuse(false) })
			}
			return forces
		},
	} {
		for _, force := range forcings {
			for _, opts := range [][]lock.Option{nil, {lock.For(time.Hour)}} {
				t.Run(fmt.Sprint(name, " ", force.script, len(opts)), func(t *testing.T) {
					inVirtualTime(t, func(t *testing.T, w *world) {
						c, forcing, again := w.listening(), w.client(lock.Config{}), w.client(lock.Config{})
						lease := mustLock(t, c, "job", opts...)
						w.sleep(time.Second)
						interrupted := false
						w.srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
							switch {
							case interrupted || !cut(w, cmd, force.script):
								return fakeredis.Run()
							case name == "announcement":
								interrupted = true
								return fakeredis.Close()
							}
							interrupted = true
							return fakeredis.RunThenClose()
						})
						if _, err := force.unlock(t.Context(), forcing, lease.Owner()); err != nil {
							t.Logf("ForceUnlock() = %v", err)
							_ = forcing.Close()
							w.sleep(time.Second)
							if _, err := force.unlock(t.Context(), again, lease.Owner()); err != nil {
								t.Fatal(err)
							}
						}
						w.sleep(time.Second)
						if !interrupted {
							t.Fatal("nothing was interrupted")
						}
						wantErr(t, "Err()", lease.Err(), lock.ErrLost)
					})
				})
			}
		}
	}
}

// A forced unlock without an answer may take effect later, when its announcement has been heard already. The holder is told all the same.
func TestForcedIsToldThoughItComesLate(t *testing.T) {
	for _, force := range forcings {
		for _, after := range []time.Duration{time.Second, 4900 * time.Millisecond} {
			t.Run(fmt.Sprint(force.script, " ", after), func(t *testing.T) {
				inVirtualTime(t, func(t *testing.T, w *world) {
					lease := mustLock(t, w.listening(), "job", lock.For(time.Hour))
					w.sleep(time.Second)
					args := w.holdUp("reentrant", force.script)
					_, err := force.unlock(t.Context(), w.client(lock.Config{}), lease.Owner())
					wantErr(t, "ForceUnlock()", err, conn.ErrUncertain)
					late := slices.Clone(args())
					w.sleep(after)
					w.srv.Do(late...)
					w.sleep(6 * time.Second)
					lostBecause(t, lease.Err(), lock.Forced)
					w.sleep(latchLife)
					w.free()
				})
			})
		}
	}
}

// The question whether a lost lock is still there is asked again while a right is missing, also for a lease that is not renewed.
func TestLossIsToldOnceTheRightIsBack(t *testing.T) {
	for _, refusal := range []string{"NOPERM no right to do so", "NOAUTH Authentication required."} {
		for _, opts := range [][]lock.Option{nil, {lock.For(time.Hour)}} {
			t.Run(fmt.Sprint(refusal, len(opts)), func(t *testing.T) {
				inVirtualTime(t, func(t *testing.T, w *world) {
					c := w.listening()
					lease := mustLock(t, c, "job", opts...)
					w.sleep(2 * time.Second)
					w.srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
						if cmd.Name == "EVALSHA" || cmd.Name == "EVAL" {
							return fakeredis.Reply("-" + refusal + "\r\n")
						}
						return fakeredis.Run()
					})
					w.srv.Do("DEL", "job")
					w.srv.KillConns(nil)
					w.sleep(3 * time.Second)
					w.srv.Intercept(nil)
					w.sleep(3 * time.Second)
					wantErr(t, "Err()", lease.Err(), lock.ErrLost)
				})
			})
		}
	}
}

// ForceUnlock whose context ends before the announcement announces all the same, even if the client is closed at once, as a process does at
// its end: Close has a second for it.
func TestForcedIsToldThoughTheForcingClientCloses(t *testing.T) {
	for _, force := range forcings {
		inVirtualTime(t, func(t *testing.T, w *world) {
			lease := mustLock(t, w.listening(), "job", lock.For(time.Hour))
			w.sleep(time.Second)
			forcing := w.client(lock.Config{})
			ctx, cancel := context.WithCancel(t.Context())
			w.srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
				if isScript(cmd, force.script) {
					time.AfterFunc(50*time.Millisecond, cancel) // before the answer of the announcement
				}
				if cmd.Name == "PUBLISH" && cmd.Args[1] == kinds.ForcedChannel && ctx.Err() == nil {
					return fakeredis.Delay(100*time.Millisecond, fakeredis.Close())
				}
				return fakeredis.Run()
			})
			did, err := force.unlock(ctx, forcing, lease.Owner())
			if !did || err != nil {
				t.Fatal(did, err)
			}
			began := time.Now()
			if err := forcing.Close(); err != nil || time.Since(began) > time.Second {
				t.Errorf("Close() = %v after %v", err, time.Since(began))
			}
			w.sleep(2 * time.Second)
			lostBecause(t, lease.Err(), lock.Forced)
		})
	}
}

// The same if Close comes first: ForceUnlock works after Close, and announces.
func TestForcedIsToldThoughTheForcingClientIsClosed(t *testing.T) {
	for _, unsure := range []bool{false, true} {
		for _, force := range forcings {
			t.Run(fmt.Sprint(force.script, " ", unsure), func(t *testing.T) {
				inVirtualTime(t, func(t *testing.T, w *world) {
					lease := mustLock(t, w.listening(), "job", lock.For(time.Hour))
					w.sleep(time.Second)
					forcing := w.client(lock.Config{})
					ctx, cancel := context.WithCancel(t.Context())
					w.srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
						if isScript(cmd, force.script) && ctx.Err() == nil {
							time.AfterFunc(20*time.Millisecond, func() { _ = forcing.Close() })
							time.AfterFunc(50*time.Millisecond, cancel) // before the answer of the announcement
							if unsure {
								return fakeredis.Delay(100*time.Millisecond, fakeredis.RunThenClose())
							}
						}
						if cmd.Name == "PUBLISH" && cmd.Args[1] == kinds.ForcedChannel && ctx.Err() == nil {
							return fakeredis.Delay(100*time.Millisecond, fakeredis.Close())
						}
						return fakeredis.Run()
					})
					began := time.Now()
					did, err := force.unlock(ctx, forcing, lease.Owner())
					if !unsure && (!did || err != nil) || unsure && !errors.Is(err, conn.ErrUncertain) {
						t.Fatal(did, err)
					}
					if took := time.Since(began); took > 2*time.Second {
						t.Errorf("ForceUnlock took %v", took)
					}
					w.sleep(2 * time.Second)
					if !errors.Is(lease.Err(), lock.ErrLost) {
						t.Errorf("unsure %v %v: the holder is not told", unsure, force.script)
					}
				})
			})
		}
	}
}

// A lock is handed over behind the look for holds of a ForceUnlock, and before its script. The next holder is told at once.
func TestForceUnlockBehindAHandOver(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		w.srv.Latency(2 * time.Millisecond)
		first := mustLock(t, c, "job", lock.For(time.Minute))
		next := make(chan *lock.Lease, 1)
		go func() { next <- mustLock(t, c, "job", lock.For(time.Minute)) }()
		w.sleep(10 * time.Millisecond)
		go func() { _ = first.Unlock(t.Context()) }()
		w.sleep(time.Millisecond) // the hand-over is on its way
		if forced, err := c.Reentrant("job").ForceUnlock(t.Context()); !forced || err != nil {
			t.Fatalf("ForceUnlock() = %v, %v", forced, err)
		}
		lease := <-next
		w.sleep(10 * time.Millisecond)
		lostBecause(t, lease.Err(), lock.Forced)
		wantErr(t, "Unlock", lease.Unlock(t.Context()), lock.ErrNotHeld)
		w.free()
	})
}
