package lock_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/lock"
	"github.com/lockwire/lockwire/script"
)

// unheard lets the first release of a kind run without an answer. No other one arrives until then, and to later ones comes late.
func (w *world) unheard(kind string, then time.Time, late fakeredis.Action) {
	begin, released := time.Now(), false
	scripts := append(scriptsFor(kind, "release"), scriptsFor(kind, "undo")...)
	w.srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
		switch {
		case len(cmd.Args) < 2 || !slices.ContainsFunc(scripts, func(s *script.Script) bool { return s.Digest() == cmd.Args[1] }):
			return fakeredis.Run()
		case !released:
			released = true
			return fakeredis.Drop()
		case time.Now().After(then):
			return late
		case time.Since(begin) < 10*time.Second:
			return fakeredis.Swallow()
		}
		return fakeredis.Close()
	})
}

// The first release has no answer, and its repeat arrives when the server has forgotten it. No further hold of the Owner goes.
func TestRepeatBehindTheLatch(t *testing.T) {
	for kind, of := range releases {
		if kind == "plain" {
			continue // nobody has it twice
		}
		t.Run(kind, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, w *world) {
				c := w.client(lock.Config{})
				owner := lock.As(c.NewOwner())
				outer, middle, inner := mustHave(t, of(c), owner), mustHave(t, of(c), owner), mustHave(t, of(c), owner)
				w.unheard(kind, time.Now().Add(17*time.Second), fakeredis.Delay(4*time.Second, fakeredis.Run()))
				wantErr(t, "Unlock()", inner.Unlock(t.Context()), lock.ErrUncertain)
				w.sleep(time.Minute)
				w.srv.Intercept(nil)
				mustUnlock(t, middle)
				if err := outer.Check(t.Context()); err != nil {
					t.Errorf("the other hold: %v", err)
				}
				mustUnlock(t, outer)
			})
		})
	}
}

// The same of an owner with one hold: the lock was held until its Unlock.
func TestRepeatOfASingleReleaseBehindTheLatch(t *testing.T) {
	for kind, of := range releases {
		t.Run(kind, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, w *world) {
				lease := mustHave(t, of(w.client(lock.Config{})))
				w.unheard(kind, time.Now().Add(17*time.Second), fakeredis.Delay(4*time.Second, fakeredis.Run()))
				wantErr(t, "Unlock()", lease.Unlock(t.Context()), lock.ErrUncertain)
				w.sleep(15 * time.Second)
				if err := lease.Unlock(t.Context()); errors.Is(err, lock.ErrNotHeld) {
					t.Errorf("second Unlock() = %v", err)
				}
			})
		})
	}
}

// The same, by a second Unlock after the client has given up its repeats, because the user had no right to them.
func TestUnlockBehindTheLatch(t *testing.T) {
	for kind, of := range releases {
		for _, nested := range []bool{true, false} {
			if nested && kind == "plain" {
				continue
			}
			t.Run(fmt.Sprint(kind, " nested ", nested), func(t *testing.T) {
				inVirtualTime(t, func(t *testing.T, w *world) {
					c := w.client(lock.Config{})
					opts := []lock.Option{lock.For(25 * time.Second)}
					var outer *lock.Lease
					if nested {
						owner := lock.As(c.NewOwner())
						opts = append(opts, owner)
						outer = mustHave(t, of(c), owner)
					}
					inner := mustHave(t, of(c), opts...)
					w.unheard(kind, time.Now(), fakeredis.Reply("-NOPERM no right to do so\r\n"))
					wantErr(t, "Unlock()", inner.Unlock(t.Context()), lock.ErrUncertain)
					w.sleep(25 * time.Second)
					w.srv.Intercept(nil)
					wantErr(t, "second Unlock()", inner.Unlock(t.Context()), lock.ErrUncertain)
					if outer == nil {
						return
					}
					if err := outer.Check(t.Context()); err != nil {
						t.Errorf("the other hold: %v", err)
					}
					mustUnlock(t, outer)
				})
			})
		}
	}
}
