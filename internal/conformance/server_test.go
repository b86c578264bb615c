package conformance_test

import (
	"flag"
	"fmt"
	"slices"
	"testing"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/conformance"
	"github.com/lockwire/lockwire/internal/redistest"
	"github.com/lockwire/lockwire/resp"
)

// TestMain has several tests run at once: for the most part they wait.
func TestMain(m *testing.M) {
	if err := flag.Set("test.parallel", "3"); err != nil {
		panic(err)
	}
	redistest.Main(m)
}

func TestServers(t *testing.T) {
	t.Parallel()
	redistest.RunProtocols(t, func(t *testing.T, s *redistest.Server, proto int) {
		t.Parallel()
		for kind, test := range conformance.Kinds() {
			t.Run(kind, func(t *testing.T) {
				t.Parallel()
				var servers []*redistest.Server
				serverAt := func(i int) conformance.Server {
					for len(servers) <= i { // when it is needed first
						servers = append(servers, redistest.Start(t, redistest.Options{Binary: s.Binary()}))
					}
					cfg := servers[i].Config()
					cfg.Protocol = proto
					return empty(servers[i], cfg)
				}
				test(t, func(*testing.T) conformance.Server {
					first := serverAt(0)
					first.More = func(*testing.T) []conformance.Server { return []conformance.Server{serverAt(1), serverAt(2)} }
					return first
				})
			})
		}
	})
}

// empty returns a server with nothing in it.
func empty(s *redistest.Server, cfg conn.Config) conformance.Server {
	s.Do("FLUSHALL")
	return conformance.Server{Config: cfg, Command: func(t *testing.T, args ...string) string {
		t.Helper()
		list := make([]any, len(args))
		for i, arg := range args {
			list[i] = arg
		}
		return text(s.Do(list...))
	}}
}

// text is a reply as fmt prints it: [] for an empty array.
func text(v resp.Value) string {
	if v.Kind() == resp.Array {
		var list []string
		for e := range v.All() {
			list = append(list, text(e))
		}
		slices.Sort(list)
		return fmt.Sprint(list)
	}
	got, err := v.Text()
	if n, isInt := v.Int(); err != nil && isInt == nil {
		return fmt.Sprint(n)
	}
	return got
}
