package conn

import (
	"testing"
	"time"

	"github.com/lockwire/lockwire/conn/internal/pipeline"
)

// READONLY and NOAUTH: fresh links are dialled in place of the first ones in a row, then the reply is believed, and
// checked by another dial each second.
func TestMisrouted(t *testing.T) {
	const dial, believe = true, false
	a, b, c, d := new(pipeline.Link), new(pipeline.Link), new(pipeline.Link), new(pipeline.Link)
	type reply struct {
		after time.Duration // since the reply before
		l     *pipeline.Link
		again bool
		first bool
	}
	for name, test := range map[string]struct {
		most    int
		replies []reply
	}{
		"a wrong server once":        {2, []reply{{0, a, dial, true}}},
		"wrong servers without end":  {2, []reply{{0, a, dial, true}, {0, b, dial, false}, {0, c, believe, false}, {0, c, believe, false}}},
		"an unknown user":            {1, []reply{{0, a, dial, true}, {0, b, believe, false}}},
		"the dial has failed":        {2, []reply{{0, a, dial, true}, {time.Second - 1, a, believe, false}, {1, a, dial, false}, {time.Second - 1, a, believe, false}}},
		"believed, then checked":     {1, []reply{{0, a, dial, true}, {0, b, believe, false}, {time.Second, b, dial, false}, {0, c, believe, false}, {time.Second, c, dial, false}}},
		"a row":                      {1, []reply{{0, a, dial, true}, {rejectionMemory, b, believe, false}}},
		"after a row":                {1, []reply{{0, a, dial, true}, {rejectionMemory + 1, b, dial, true}}},
		"a row lasts by fresh links": {1, []reply{{0, a, dial, true}, {6 * time.Second, b, believe, false}, {6 * time.Second, c, believe, false}, {11 * time.Second, d, dial, true}}},
		"and not by old ones":        {1, []reply{{0, a, dial, true}, {6 * time.Second, a, dial, false}, {6 * time.Second, b, dial, true}}},
	} {
		m, now := misrouted{}, time.Now()
		for i, r := range test.replies {
			now = now.Add(r.after)
			again, first := m.refused(r.l, now, test.most)
			if again != r.again || first != r.first {
				t.Errorf("%s: reply %d: again %v, first %v; want %v, %v", name, i+1, again, first, r.again, r.first)
			}
		}
	}
}
