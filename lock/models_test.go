package lock_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/internal/lockscripts"
	"github.com/lockwire/lockwire/lock"
)

// teach gives srv the models of the scripts and loads the scripts. TestScriptsLikeTheServer compares both.
func teach(srv *fakeredis.Server) {
	for kind, scripts := range lock.Scripts() {
		for operation, s := range scripts {
			if model, err := lockscripts.Interpret(s.Source()); err == nil {
				srv.Script(s.Source(), declared(kind+" "+operation, model))
				srv.Do("SCRIPT", "LOAD", s.Source())
			}
		}
	}
}

// declared has a script fail that touches a key which is not among its KEYS. Of the leases of other readers it may ask how long
// they last, if it bears to be refused.
func declared(name string, model func(*fakeredis.Call) any) func(*fakeredis.Call) any {
	return func(c *fakeredis.Call) any {
		c.Touch = func(tries bool, args []string) {
			keys := args[1:]
			switch strings.ToUpper(args[0]) {
			case "TIME", "PUBLISH", "SPUBLISH", "PUBSUB":
				return
			case "DEL", "EXISTS":
			case "PTTL":
				if tries && strings.Contains(keys[0], ":rwlock_timeout:") {
					return
				}
				fallthrough
			default:
				keys = keys[:1]
			}
			for _, key := range keys {
				if !slices.Contains(c.Keys, key) {
					panic(fmt.Sprintf("%s touches %q, which is not among its keys %q: %q", name, key, c.Keys, args))
				}
			}
		}
		return model(c)
	}
}

// A script without a Go function does not work on the fake server, and so not with package locktest.
func TestModels(t *testing.T) {
	without := []string{"All kinds, apart", "All kinds, look"} // for clusters only
	for _, scripts := range lock.Scripts() {
		for _, s := range scripts {
			title := lockscripts.Title(s.Source())
			if _, err := lockscripts.Interpret(s.Source()); err != nil && !slices.Contains(without, title) {
				t.Errorf("package lockscripts does not have %q", title)
			}
		}
	}
}

// never is the lease in ms of a permit without one.
const never = 922337203685477

func number(text string) int64 {
	n, _ := strconv.ParseInt(text, 10, 64)
	return n
}

func text(n int64) string { return strconv.FormatInt(n, 10) }

// fields is a hash as a script sees it.
func fields(c *fakeredis.Call, key string) map[string]string { return lockscripts.Fields(c, key) }

// timeoutKey is the name of the key that has the lease of a reader's n-th hold.
func timeoutKey(name, owner string, n int64) string { return lockscripts.TimeoutKey(name, owner, n) }

// timeoutLeft is what the lease of a reader's n-th hold has left on the server.
func (w *world) timeoutLeft(name, owner string, n int64) time.Duration {
	return w.ttl(timeoutKey(name, owner, n))
}
