package lock_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/lock"
)

// A release repeated for so long that its latch may have expired is confirmed in another way. The last request for it, which comes
// only then, gives back neither a further hold of the owner nor a later one.
func TestHeldUpReleaseBehindItsConfirmation(t *testing.T) {
	for kind, of := range releases {
		for _, nested := range []bool{true, false} {
			if nested && kind == "plain" {
				continue // nobody has it twice
			}
			t.Run(fmt.Sprint(kind, " nested ", nested), func(t *testing.T) {
				inVirtualTime(t, func(t *testing.T, w *world) {
					c := w.client(lock.Config{Lease: time.Minute})
					o := lock.As(c.NewOwner())
					var other *lock.Lease
					if nested {
						other = mustHave(t, of(c), o)
					}
					lease := mustHave(t, of(c), o)
					var mu sync.Mutex
					var late []string
					w.srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
						mu.Lock()
						defer mu.Unlock()
						if isScriptOf(kind, cmd, "release") {
							late = slices.Clone(cmd.Args)
							return fakeredis.Close()
						}
						return fakeredis.Run()
					})
					for first := time.Now(); ; w.sleep(10 * time.Millisecond) {
						err := lease.Unlock(t.Context())
						if wantErr(t, "Unlock", err, lock.ErrUncertain); strings.Contains(err.Error(), "released now") {
							break
						}
						if time.Since(first) > time.Minute {
							t.Fatalf("Unlock() = %v after a minute", err)
						}
					}
					if !nested {
						other = mustHave(t, of(c), o)
					}
					w.srv.Intercept(nil)
					w.srv.Do(late...)
					if err := other.Check(t.Context()); err != nil {
						t.Errorf("the other hold: %v", err)
					}
					mustUnlock(t, other)
				})
			})
		}
	}
}
