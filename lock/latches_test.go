package lock_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/lock"
)

// The outcomes of releases are forgotten by one command for many, or, where the keys cannot be in one command, by one for
// each.
func TestLatchesAreDeletedTogether(t *testing.T) {
	for _, test := range []struct {
		name    string
		cluster bool
		want    [2]int // commands that delete, in the first round and in the second
	}{
		{"one server", false, [2]int{1, 1}},
		{"node of a cluster", true, [2]int{1 + 5, 5}},
	} {
		t.Run(test.name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, w *world) {
				c := w.client(lock.Config{})
				w.srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
					if test.cluster && cmd.Name == "DEL" && len(cmd.Args) > 2 {
						return fakeredis.Reply("-CROSSSLOT Keys in request don't hash to the same slot\r\n")
					}
					return fakeredis.Run()
				})
				for _, want := range test.want {
					w.srv.ClearLog()
					for i := range 5 {
						mustUnlock(t, mustLock(t, c, fmt.Sprint("job", i)))
					}
					w.sleep(time.Second)
					if got := w.srv.Count("DEL"); got != want || len(w.srv.Keys()) > 0 {
						t.Errorf("%d commands to delete latches, want %d; left: %v", got, want, w.srv.Dump())
					}
				}
			})
		})
	}
}
