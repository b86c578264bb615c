package kinds_test

import (
	"slices"
	"testing"

	"github.com/lockwire/lockwire/internal/lockscripts"
	"github.com/lockwire/lockwire/lock/internal/kinds"
)

// A script without a Go function does not work on the fake server, and so not with package locktest.
func TestModels(t *testing.T) {
	without := []string{"All kinds, apart", "All kinds, look"} // for clusters only
	for _, scripts := range kinds.All() {
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
