package lock_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/lockwire/lockwire/internal/redistest"
	"github.com/lockwire/lockwire/lock"
)

// An acquire and a release that nobody waits for run so many commands inside their scripts.
func TestServerPair(t *testing.T) {
	t.Parallel()
	redistest.Run(t, func(t *testing.T, s *redistest.Server) {
		c := serverLocks(t, s, lock.Config{})
		owner := lock.As(c.NewOwner())
		for _, pair := range []struct {
			kind     string
			lock     ruledLock
			commands int
			options  []lock.Option
		}{
			{"Plain", c.Plain("pair:plain"), 6, nil},
			{"Reentrant", c.Reentrant("pair:reentrant"), 8, nil},
			{"NonReentrant", c.NonReentrant("pair:nonreentrant"), 8, nil},
			{"Spin", c.Spin("pair:spin", lock.Backoff{}), 7, nil},
			{"Fair", c.Fair("pair:fair"), 8, nil},
			{"NonReentrantFair", c.NonReentrantFair("pair:nonreentrantfair"), 8, nil},
			{"Write", c.ReadWrite("pair:write").Write(), 9, nil},
			{"Fenced", c.Fenced("pair:fenced"), 10, nil},
			{"Reentrant of an Owner", c.Reentrant("pair:owner"), 10, []lock.Option{owner}},
			{"FasterMulti", c.FasterMulti("pair:group", "1"), 11, nil},
			{"Read", c.ReadWrite("pair:read").Read(), 11, nil},
		} {
			t.Run(pair.kind, func(t *testing.T) {
				m := s.Monitor()
				l, err := pair.lock.Lock(t.Context(), pair.options...)
				if err != nil {
					t.Fatal(err)
				}
				if err := l.Unlock(t.Context()); err != nil {
					t.Fatal(err)
				}
				inside := slices.DeleteFunc(m.Lines(), func(line string) bool { return !strings.HasPrefix(line, "[0 lua]") })
				if len(inside) != pair.commands {
					t.Errorf("the scripts run %d commands, want %d:\n%s", len(inside), pair.commands, strings.Join(inside, "\n"))
				}
			})
		}
	})
}
