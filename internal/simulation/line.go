package simulation

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockwire/lockwire/internal/fakeredis"
)

// line is the order in which processes have come to the line of a lock, as the scripts tell it.
type line struct {
	key    string               // on the server
	places map[string]*place    // by name
	had    map[string]time.Time // by waiter: when the first by its last turn had the lock
	passed []place              // those passed by later ones; not judged yet
}

// place is a process in a line.
type place struct {
	name   string
	since  time.Time // as the server's line tells it: a place may have come unseen, while its slot moved
	passes int       // of others who came later
}

// passes is how often a process may be passed in the line of a lock: between its call and its request the lock may be had by readers,
// and by who is called behind it. More are called at once by nobody.
const passes = 8

// keepsOut is how long the writer at the head keeps readers out at first, and letsIn how long it then lets some in at least.
const keepsOut, letsIn = 3 * time.Second, 2 * time.Second

// inFront is how much older than it is a writer says that it is, to stand before all readers.
const inFront = 1_000_000 * time.Second

// named matches a place: client, the half of a read-write lock, number, and length of the turn.
var named = regexp.MustCompile(`^([0-9a-f]{8}-[0-9a-f-]{27}(?::[rw])?):[0-9]+:[0-9]+$`)

// half is the half of a read-write lock for which a place stands, or "".
func (p *place) half() string {
	switch {
	case strings.Contains(p.name, ":r:"):
		return "read"
	case strings.Contains(p.name, ":w:"):
		return "first"
	}
	return ""
}

// turn is how long the turn of a place lasts.
func (p *place) turn() time.Duration {
	ms, _ := strconv.Atoi(p.name[strings.LastIndexByte(p.name, ':')+1:])
	return time.Duration(ms) * time.Millisecond
}

// lined takes in a script of a lock with a line. It is called inside the server.
func (o *object) lined(title string, c *fakeredis.Call, reply any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	l := &o.line
	if strings.HasPrefix(title, "apart: ") {
		*l = line{}
		return
	}
	l.forgetLocked(c)
	for i, name := range c.Args {
		waiter := named.FindStringSubmatch(name)
		if waiter == nil {
			continue
		}
		stand := "join" // of an acquire that says nothing else
		if strings.HasSuffix(title, ", quit") {
			stand = "leave"
		} else if i+1 < len(c.Args) {
			stand = c.Args[i+1]
		}
		if strings.HasSuffix(title, ", acquire") {
			if _, refused := reply.(int64); refused && stand != "" {
				l.joinLocked(c, name)
			}
			if !grants(reply) {
				return
			}
			l.hadLocked(c, name, waiter[1])
		}
		switch stand {
		case "leave":
			delete(l.places, name)
		case "move":
			delete(l.places, name)
			l.joinLocked(c, name)
		}
		return
	}
}

// forgetLocked forgets the places that the server's line no longer has, except the place that asks: nobody listened when they were to be
// called, or their turn is over, also because another request of the same client has ended it. Such a client comes to the line anew.
func (l *line) forgetLocked(c *fakeredis.Call) {
	if l.key == "" || !slices.Contains(c.Keys, l.key) {
		return // a kind without a line
	}
	for name := range l.places {
		if !slices.Contains(c.Args, name) && c.TryDo("ZSCORE", l.key, name) == nil {
			delete(l.places, name)
		}
	}
}

// grants reports whether the reply to an acquire is that of a first hold.
func grants(reply any) bool {
	list, fenced := reply.([]any)
	return reply == nil || fenced && list[0] == any(int64(1))
}

func (l *line) joinLocked(c *fakeredis.Call, name string) {
	if l.places == nil {
		l.places, l.had = map[string]*place{}, map[string]time.Time{}
	}
	if l.places[name] == nil {
		l.key = c.Keys[len(c.Keys)-1]
		now := serverTime(c)
		arrived, next := stamp(c.TryDo("ZSCORE", l.key, name), now)
		if !next && strings.Contains(name, ":w:") {
			arrived = arrived.Add(inFront)
		}
		l.places[name] = &place{name: name, since: time.Now().Add(-max(0, now.Sub(arrived)))}
	}
}

// serverTime is the time by the clock of the server, which may be wrong.
func serverTime(c *fakeredis.Call) time.Time {
	parts := c.TryDo("TIME").([]any)
	s, _ := strconv.ParseInt(parts[0].(string), 10, 64)
	us, _ := strconv.ParseInt(parts[1].(string), 10, 64)
	return time.UnixMicro(s*1e6 + us)
}

// stamp returns the time that the score of a place says, and whether the place has been next since then: otherwise it has arrived
// then. A place without a score has arrived now.
func stamp(score any, now time.Time) (at time.Time, next bool) {
	text, _ := score.(string)
	n, err := strconv.ParseFloat(text, 64)
	switch {
	case err != nil:
		return now, false
	case n <= float64(now.UnixMilli()):
		return time.UnixMilli(int64(n)), true
	}
	return time.UnixMicro(int64(n)), false
}

// hadLocked notes that a waiter has the lock, before all who are in the server's line and have come before.
func (l *line) hadLocked(c *fakeredis.Call, name, waiter string) {
	self := &place{name: name, since: time.Now()}
	if known := l.places[name]; known != nil {
		self = known
	}
	if self.half() == "read" && time.Since(l.had[waiter]) < self.turn() {
		return // by the turn of the first of its process
	}
	if l.had != nil {
		l.had[waiter] = time.Now()
	}
	key := c.Keys[len(c.Keys)-1]
	if self.half() == "read" && letsReadersIn(c, key) {
		return // past all writers, however short a time these have waited: they stand behind the one at the head
	}
	for _, other := range l.places {
		if !other.since.Before(self.since) || self.half() == "first" && other.half() != "first" || self.half() == "read" && other.half() == "read" {
			continue
		}
		other.passes++
		l.passed = append(l.passed, *other)
	}
}

// letsReadersIn reports whether the head of the server's line is a writer that lets readers in.
func letsReadersIn(c *fakeredis.Call, key string) bool {
	marks, _ := c.TryDo("ZCOUNT", key, "-inf", "(0").(int64)
	rank := strconv.FormatInt(marks, 10)
	head, _ := c.TryDo("ZRANGE", key, rank, rank, "WITHSCORES").([]any)
	if len(head) == 0 {
		return false
	}
	now := serverTime(c)
	since, next := stamp(head[1], now)
	return next && lettingIn(now.Sub(since))
}

// lettingIn reports whether a writer that has been next for so long lets readers in. It keeps them out for twice as long each time, and lets
// them in for half as long.
func lettingIn(waited time.Duration) bool {
	out, open := keepsOut, letsIn
	for waited >= out+open {
		waited, out = waited-out-open, 2*out
		open = max(letsIn, out/2)
	}
	return waited >= out
}
