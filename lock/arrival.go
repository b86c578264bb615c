package lock

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/resp"
)

// A request may be held up on its way, and come when nobody waits for it any more, or when its repeat has been answered. So one that
// takes or changes something says until when it is good, by the server's clock, and does nothing after that. Until then a latch keeps it
// from taking effect: that of an undo, or the one under which a change is known. This is one rule for all kinds.

const (
	// arrival is how long a request may be on its way.
	arrival = 5 * time.Second
	// arrivals is how often in a row a request is sent that came too late.
	arrivals = 4
)

// errLate is for a request that came when it was not good any more: it did nothing.
var errLate = fmt.Errorf("%w: the server found it too old", conn.ErrNotSent)

// clocks knows by how much the clocks of servers are ahead of the client's. At first they are taken to be right; a server that
// refuses what is too late says what time it is. Nothing but speed depends on it.
type clocks struct {
	begin time.Time // constant; nothing that sets the client's clock later on changes what it says
	mu    sync.RWMutex
	ahead map[string]time.Duration // by route; guarded by mu
}

func (k *clocks) now() time.Time { return k.begin.Add(time.Since(k.begin)) }

// last is until when a request that is sent now to the server that has name is good, by its clock, in ms.
func (c *Client) last(name string) int64 {
	c.clocks.mu.RLock()
	var ahead time.Duration
	if len(c.clocks.ahead) > 0 {
		ahead = c.clocks.ahead[c.route(name)]
	}
	c.clocks.mu.RUnlock()
	return c.clocks.now().Add(ahead + arrival).UnixMilli()
}

// runInTime runs the call that of makes when it is good until last, and another one when that came later.
func (c *Client) runInTime(ctx context.Context, t *target, of func(last int64) *call) (resp.Value, error) {
	for range arrivals {
		v, err := c.run(ctx, c.server, of(c.last(t.name)))
		if err != nil || !c.late(t.name, v) {
			return v, err
		}
	}
	return resp.Value{}, errLate
}

// late reports whether v says that a request came too late, and learns from it what time it is there.
func (c *Client) late(name string, v resp.Value) bool {
	if v.Kind() != resp.SimpleString {
		return false
	}
	text, _ := v.Text()
	digits, ok := strings.CutPrefix(text, "late ")
	if !ok {
		return false
	}
	if now, err := strconv.ParseInt(digits, 10, 64); err == nil {
		c.clocks.mu.Lock()
		defer c.clocks.mu.Unlock()
		if c.clocks.ahead == nil || len(c.clocks.ahead) > maxTallies {
			c.clocks.ahead = make(map[string]time.Duration)
		}
		c.clocks.ahead[c.route(name)] = time.UnixMilli(now).Sub(c.clocks.now())
	}
	return true
}

func isLate(err error) bool { return errors.Is(err, errLate) }
