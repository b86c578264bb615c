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

// A request may be delayed on its way, and arrive after its caller has left, or after the reply to its repeat. Each
// request that takes or changes something therefore carries the time until which it is valid, by the server's clock,
// and does nothing later. Until then a latch prevents its effect: the latch of an undo, or the latch that identifies a
// change. The rule holds for all kinds.

const (
	// arrival is the maximum delay of a valid request.
	arrival = 5 * time.Second
	// arrivals limits the attempts to send a request that arrives too late.
	arrivals = 4
)

// errLate is the error for a request that arrived after its validity and did nothing.
var errLate = fmt.Errorf("%w: the server received it too late", conn.ErrNotSent)

// clocks records how far the clocks of servers are ahead of the client's. Clocks count as equal at first; a server
// that refuses a late request reports its time. Only speed depends on clocks.
type clocks struct {
	begin time.Time // constant; later changes of the client's clock have no effect
	mu    sync.RWMutex
	ahead map[string]time.Duration // by route; guarded by mu
}

func (k *clocks) now() time.Time { return k.begin.Add(time.Since(k.begin)) }

// last returns the time until which a request sent now to the server of name is valid, by the server's clock, in ms.
func (c *Client) last(name string) int64 {
	c.clocks.mu.RLock()
	var ahead time.Duration
	if len(c.clocks.ahead) > 0 {
		ahead = c.clocks.ahead[c.route(name)]
	}
	c.clocks.mu.RUnlock()
	return c.clocks.now().Add(ahead + arrival).UnixMilli()
}

// runInTime runs the call that of makes for the validity last, and a new call if the call arrived too late.
func (c *Client) runInTime(ctx context.Context, t *target, of func(last int64) *call) (resp.Value, error) {
	for range arrivals {
		v, err := c.run(ctx, c.server, of(c.last(t.name)))
		if err != nil || !c.late(t.name, v) {
			return v, err
		}
	}
	return resp.Value{}, errLate
}

// late reports whether v is the refusal of a late request, and learns the server's time from v.
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
