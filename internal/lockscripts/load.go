package lockscripts

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/script"
)

// Load gives srv the functions of scripts, by kind and operation, and loads the scripts. A script then fails on a key that is
// not among its KEYS.
func Load(srv *fakeredis.Server, all map[string]map[string]*script.Script) {
	for kind, scripts := range all {
		for operation, s := range scripts {
			if model, err := Interpret(s.Source()); err == nil {
				srv.Script(s.Source(), declared(kind+" "+operation, model))
				srv.Do("SCRIPT", "LOAD", s.Source())
			}
		}
	}
}

// declared makes a script fail on a key missing in its KEYS. A script that can handle a refusal may ask for the PTTL of
// the leases of further readers.
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
