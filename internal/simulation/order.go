package simulation

import (
	"slices"
	"strconv"
	"time"

	"github.com/lockwire/lockwire/internal/fakeredis"
)

// queue is the order in which owners have come to a fair lock, as its server has seen them.
type queue struct {
	came     int               // owners, so far
	stands   map[string]*stand // by owner
	newest   stand             // the last to come among all who have had the lock
	seen     []string          // who stood in the server's queue after the latest script
	blind    time.Time         // owners may have come unseen before
	overtook [][2]stand        // who came first, and who had the lock first; not judged yet
}

// stand is an owner in the queue.
type stand struct {
	owner  string
	number int // 0: unknown
	since  time.Time
	gone   bool // has had the lock, or has left
}

// blindFor is for how long an owner who came while the slot moved may not have asked again.
const blindFor = 15 * time.Second

// shortWait is the wait of a call up to which the place kept by its undo for other calls of the owner may end before one of these asks: it may then
// have kept its place or not.
const shortWait = time.Second

// queued takes in a script of a fair lock. It is called inside the server.
func (o *object) queued(title string, c *fakeredis.Call, reply any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	q := &o.queue
	switch title {
	case "Fair lock, acquire":
		now := members(c)
		left, refused := reply.(int64)
		switch {
		case reply == nil:
			q.grantLocked(c.Args[1])
		case refused && left >= 0 && c.Args[3] == "1":
			last := len(now) > 0 && now[len(now)-1] == c.Args[1]
			q.standLocked(c.Args[1], last || time.Now().After(q.blind) && !slices.Contains(q.seen, c.Args[1]))
		}
		q.seen = now
	case "Fair lock, undo":
		switch s := q.stands[c.Args[1]]; {
		case s == nil:
		case c.Args[6] != "1":
			s.gone = true
		case reply == any(int64(1)): // the owner heads the queue, for the wait of the undone call; otherwise the lease has ended before its answer came
			s.gone = false
			if wait, _ := strconv.Atoi(c.Args[5]); time.Duration(wait)*time.Millisecond < shortWait {
				s.number = 0
			}
		}
		q.seen = members(c)
	case "apart: Fair lock, acquire":
		*q = queue{blind: time.Now().Add(blindFor)} // the owner is one of many arguments
	}
}

// members returns the owners in the queue of a fair lock.
func members(c *fakeredis.Call) (owners []string) {
	all, _ := c.TryDo("LRANGE", c.Keys[2], "0", "-1").([]any)
	for _, owner := range all {
		owners = append(owners, owner.(string))
	}
	return owners
}

// standLocked notes that an owner stands in the queue, and whether it has come now, unless that is known already.
func (q *queue) standLocked(owner string, came bool) *stand {
	if q.stands == nil {
		q.stands = map[string]*stand{}
	}
	s := q.stands[owner]
	if s == nil || s.gone {
		s = &stand{owner: owner, since: time.Now()}
		if came {
			q.came++
			s.number = q.came
		}
		q.stands[owner] = s
	}
	return s
}

func (q *queue) grantLocked(owner string) {
	if s := q.stands[owner]; (s == nil || s.gone) && time.Now().Before(q.blind) {
		return
	}
	s := q.standLocked(owner, true)
	switch {
	case s.number == 0:
	case s.number < q.newest.number:
		q.overtook = append(q.overtook, [2]stand{*s, q.newest})
	default:
		q.newest = *s
	}
	s.gone = true
}

// judgeQueues fails if somebody has had a fair lock before an owner who had come first, while nothing was wrong. Where other
// kinds take the lock too, a head whose subscription has just been killed may be passed over at once (RELIABILITY.md). Redisson's
// waiters put deadlines into the queue by their own clocks, which a server with another clock takes for over.
func (w *world) judgeQueues() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, o := range w.objects {
		o.mu.Lock()
		all := o.queue.overtook
		o.queue.overtook = nil
		o.mu.Unlock()
		for _, pair := range all {
			if first := pair[0]; o.onlyOf(fair, nonReentrantFair) && !(w.mixed && w.srv.Ahead() != 0) && w.soundLocked(first.since, o) {
				w.violate(o, "%s has had the lock before %s, who had come first, at %v", pair[1].owner, first.owner, w.since(first.since))
			}
		}
		o.mu.Lock()
		passed := o.line.passed
		o.line.passed = nil
		o.mu.Unlock()
		for _, p := range passed {
			if p.passes > passes && w.soundLocked(p.since, o) {
				w.violate(o, "%s waits in the line since %v, and others who came later have had the lock %d times", p.name, w.since(p.since), p.passes)
			}
		}
	}
}

// soundLocked reports whether nothing has been wrong with an object since a time.
func (w *world) soundLocked(since time.Time, o *object) bool {
	return !w.calmSince.IsZero() && since.Sub(w.calmSince) > w.times.settle && o.lossSince(since) == nil && !w.shards.moving(since, o) && !w.shards.hesitates(o)
}

// onlyOf reports whether an object is an exclusive lock of some kinds alone.
func (o *object) onlyOf(kinds ...string) bool {
	return o.family == exclusive && !slices.ContainsFunc(o.kinds, func(kind string) bool { return !slices.Contains(kinds, kind) })
}
