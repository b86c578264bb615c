package conformance_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/conformance"
	"github.com/lockwire/lockwire/internal/redistest"
	"github.com/lockwire/lockwire/resp"
)

func TestMain(m *testing.M) { redistest.Main(m) }

func TestServers(t *testing.T) {
	t.Parallel()
	redistest.RunProtocols(t, func(t *testing.T, s *redistest.Server, _ int) {
		var more []*redistest.Server // started when they are needed first
		conformance.Run(t, func(*testing.T) conformance.Server {
			first := empty(s, s.Config())
			first.More = func(*testing.T) (list []conformance.Server) {
				for len(more) < 2 {
					more = append(more, redistest.Start(t, redistest.Options{Binary: s.Binary()}))
				}
				for _, other := range more {
					cfg := other.Config()
					cfg.Protocol = s.Config().Protocol
					list = append(list, empty(other, cfg))
				}
				return list
			}
			return first
		})
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
