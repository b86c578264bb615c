package simulation

import (
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/lockwire/lockwire/internal/fakeredis"
)

// line is the order in which processes have come to the line of a lock, as the scripts tell it.
type line struct {
	came   int                  // places, so far
	places map[string]*place    // by name
	had    map[string]time.Time // by waiter: when the first by its last turn had the lock
	passed []place              // those passed by later ones; not judged yet
}

// place is a process in a line.
type place struct {
	name   string
	number int
	since  time.Time
	passes int // of others who came later
}

// passes is how often a process may be passed in the line of a lock: between its call and its request the lock may be had by readers,
// and by who is called behind it. More are called at once by nobody.
const passes = 8

// keepsOut is how long a waiting writer keeps readers out at least, before it lets some in.
const keepsOut = 3 * time.Second

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
	for i, name := range c.Args {
		waiter := named.FindStringSubmatch(name)
		if waiter == nil {
			continue
		}
		stand := "leave" // of the script that ends a place
		if !strings.HasSuffix(title, ", quit") {
			stand = c.Args[i+1]
		}
		if strings.HasSuffix(title, ", acquire") {
			if _, refused := reply.(int64); refused && stand != "" {
				l.joinLocked(name)
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
			l.joinLocked(name)
		}
		return
	}
}

// grants reports whether the reply to an acquire is that of a first hold.
func grants(reply any) bool {
	list, fenced := reply.([]any)
	return reply == nil || fenced && list[0] == any(int64(1))
}

func (l *line) joinLocked(name string) {
	if l.places == nil {
		l.places, l.had = map[string]*place{}, map[string]time.Time{}
	}
	if l.places[name] == nil {
		l.came++
		l.places[name] = &place{name: name, number: l.came, since: time.Now()}
	}
}

// hadLocked notes that a waiter has the lock, before all who are in the server's line and have come before.
func (l *line) hadLocked(c *fakeredis.Call, name, waiter string) {
	self := &place{name: name, number: l.came + 1}
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
	for _, other := range l.places {
		if self.half() == "read" && other.half() != "read" && time.Since(other.since) > keepsOut {
			continue
		}
		if other.number >= self.number || self.half() == "first" && other.half() != "first" || self.half() == "read" && other.half() == "read" {
			continue
		}
		if c.TryDo("ZSCORE", key, other.name) == nil {
			delete(l.places, other.name)
			continue
		}
		other.passes++
		l.passed = append(l.passed, *other)
	}
}
