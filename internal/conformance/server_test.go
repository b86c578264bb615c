package conformance_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/lockwire/lockwire/internal/conformance"
	"github.com/lockwire/lockwire/internal/redistest"
	"github.com/lockwire/lockwire/resp"
)

func TestMain(m *testing.M) { redistest.Main(m) }

func TestServers(t *testing.T) {
	redistest.RunProtocols(t, func(t *testing.T, s *redistest.Server, _ int) {
		conformance.Run(t, func(t *testing.T) conformance.Server {
			s.Do("FLUSHALL")
			return conformance.Server{Config: s.Config(), Command: func(t *testing.T, args ...string) string {
				t.Helper()
				list := make([]any, len(args))
				for i, arg := range args {
					list[i] = arg
				}
				return text(s.Do(list...))
			}}
		})
	})
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
