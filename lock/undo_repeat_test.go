package lock_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/lock"
)

// One request that takes back an acquire is held up while a right is missing. It ends no further hold of the Owner, whichever it is.
func TestHeldUpRequestsOfAnUndo(t *testing.T) {
	for _, right := range []string{"hget", "hset", "pexpire", "set"} {
		for heldUp := 1; heldUp <= 8; heldUp++ {
			t.Run(fmt.Sprint(right, "/", heldUp), func(t *testing.T) {
				inVirtualTime(t, func(t *testing.T, w *world) {
					c := w.client(lock.Config{})
					owner := lock.As(c.NewOwner())
					outer := mustLock(t, c, "job", owner)
					var late []string
					n := 0
					w.srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
						w.srv.Deny()
						switch {
						case isScript(cmd, "acquire"):
							return fakeredis.RunThenClose()
						case !isScript(cmd, "undo"):
							return fakeredis.Run()
						}
						switch n++; {
						case n == heldUp:
							late = slices.Clone(cmd.Args)
							return fakeredis.Close()
						case n < 8:
							w.srv.Deny(right)
						}
						return fakeredis.Run()
					})
					ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
					defer cancel()
					if _, err := c.Reentrant("job").Lock(ctx, owner); err == nil {
						t.Fatal("the lock was granted without an answer")
					}
					w.sleep(time.Second)
					w.srv.Intercept(nil)
					w.srv.Deny()
					further := mustLock(t, c, "job", owner)
					if late != nil {
						w.srv.Do(late...)
					}
					w.wantHolds("job", "2", outer)
					mustUnlock(t, further)
					mustUnlock(t, outer)
				})
			})
		}
	}
}

// A part of what takes back an acquire has run, and the connection broke before the answer. Its latch does not say that the hold has ended.
func TestUndoWithoutTheAnswerOfAPart(t *testing.T) {
	for _, right := range []string{"hget", "hset", "pexpire"} {
		t.Run(right, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, w *world) {
				c := w.client(lock.Config{})
				owner := lock.As(c.NewOwner())
				outer := mustLock(t, c, "job", owner)
				n := 0
				w.srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
					w.srv.Deny()
					switch {
					case isScript(cmd, "acquire"):
						return fakeredis.RunThenClose()
					case !isScript(cmd, "undo"):
						return fakeredis.Run()
					}
					if n++; n <= 2 {
						w.srv.Deny(right)
					}
					if n == 2 {
						return fakeredis.RunThenClose()
					}
					return fakeredis.Run()
				})
				ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
				defer cancel()
				if _, err := c.Reentrant("job").Lock(ctx, owner); err == nil {
					t.Fatal("the lock was granted without an answer")
				}
				w.sleep(time.Second)
				w.wantHolds("job", "1", outer)
				mustUnlock(t, outer)
			})
		})
	}
}
