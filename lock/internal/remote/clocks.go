package remote

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/resp"
)

// A request may be delayed on the way, and arrive after its caller has left, or after the reply to a repeat. Each
// request for a hold or a change therefore carries a last moment, by the server's clock, after which it does nothing.
// Until its last moment a latch keeps it from an effect: the latch of its undo, or the latch of the change.

const (
	// Arrival is the time from a request to its last moment.
	Arrival = 5 * time.Second
	// Arrivals limits the attempts to send a request that arrives after its last moment.
	Arrivals = 4
)

// ErrLate is the error for a request that arrived after its last moment and did nothing.
var ErrLate = fmt.Errorf("%w: the server received it too late", conn.ErrNotSent)

// Clocks records how far the clocks of servers are ahead of the client's. Clocks count as equal at first; a server
// that refuses a late request reports its time. A client's clock ahead of the server's is never noticed: requests may then run for longer.
type Clocks struct {
	server *Server
	begin  time.Time // constant; later changes of the client's clock have no effect
	mu     sync.RWMutex
	ahead  map[string]time.Duration // by route; guarded by mu
}

// NewClocks returns the clocks of s.
func NewClocks(s *Server) *Clocks { return &Clocks{server: s, begin: time.Now()} }

// Age returns the time since NewClocks.
func (k *Clocks) Age() time.Duration { return time.Since(k.begin) }

// LastMoment returns the time until which a request sent now to the server of name is valid, by the server's clock, in ms.
func (k *Clocks) LastMoment(name string) int64 {
	k.mu.RLock()
	var ahead time.Duration
	if len(k.ahead) > 0 {
		ahead = k.ahead[k.server.Route(name)]
	}
	k.mu.RUnlock()
	return k.now().Add(ahead + Arrival).UnixMilli()
}

func (k *Clocks) now() time.Time { return k.begin.Add(time.Since(k.begin)) }

// Late reports whether v is the refusal of a late request, and learns the server's time from v.
func (k *Clocks) Late(name string, v resp.Value) bool {
	if v.Kind() != resp.SimpleString {
		return false
	}
	text, _ := v.Text()
	digits, ok := strings.CutPrefix(text, "late ")
	if !ok {
		return false
	}
	if now, err := strconv.ParseInt(digits, 10, 64); err == nil {
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.ahead == nil || len(k.ahead) > maxKnown {
			k.ahead = make(map[string]time.Duration)
		}
		k.ahead[k.server.Route(name)] = time.UnixMilli(now).Sub(k.now())
	}
	return true
}
