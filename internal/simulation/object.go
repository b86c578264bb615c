package simulation

import (
	"fmt"
	"slices"
	"sync"
	"time"
)

// family is the sort of an object in the eyes of the checks.
type family string

const (
	exclusive family = "lock"
	plain     family = "plain"
	readWrite family = "rw"
	permits   family = "permits"
	semaphore family = "sem"
	countdown family = "latch"
	faster    family = "group"
)

// The kinds of exclusive locks, which exclude each other under a common name.
const (
	reentrant        = "Reentrant"
	nonReentrant     = "NonReentrant"
	spin             = "Spin"
	fenced           = "Fenced"
	fair             = "Fair"
	nonReentrantFair = "NonReentrantFair"
)

var mixes = [][]string{
	{reentrant}, {reentrant}, {fenced}, {spin}, {nonReentrant}, {fair}, {fair, nonReentrantFair},
	{reentrant, fenced, nonReentrant}, {reentrant, spin}, {reentrant, fair}, {reentrant, nonReentrant, spin, fenced, fair},
}

// object is a lock or a synchronizer in contention.
type object struct {
	name   string
	family family
	kinds  []string // of an exclusive object
	nests  bool     // owners take further holds
	total  int      // permits, or the count of a latch
	server int      // where there are several
	// patience is the longest time a wanted object may be free without a fault.
	patience time.Duration

	// Guarded by the world's mu.
	live    []*hold
	last    *hold    // the fenced hold with the largest token
	side    string   // the last owner, in runs with Redisson
	out     int      // taken permits of a semaphore
	missing int      // permits of a semaphore that may be lost with their processes
	rounds  []*round // of a latch
	kept    []kept
	idle    time.Time         // begin of the time as a free and wanted object; zero for any other state
	orphans map[string]orphan // unknown owners on the server
	// aged are owners who may have the lock until these times although no call is about them: a clock set back has made the lease
	// longer, or the server has refused the release.
	aged map[string]time.Time

	mu     sync.Mutex // guards the following; taken inside a server
	losses []loss
	queue  queue
	line   line
}

// loss is the server's loss of all holders since before at.
type loss struct {
	at       time.Time
	happened time.Time // the time of the loss; later than at if holds granted in between are not concerned
	until    time.Time // until then grants are not safe either; zero: only earlier grants
	why      *exclusion
	changes  bool // only a Downgrade, or the rest of AtLeast, is concerned: the change is lost, and the lock is not
}

// orphan is an unknown owner on the server.
type orphan struct{ since time.Time }

// lost notes a loss now.
func (o *object) lost(why *exclusion) { o.lostUntil(why, time.Time{}) }

// lostAgain notes a loss now, perhaps followed by further losses.
func (o *object) lostAgain(why *exclusion) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	if n := len(o.losses); n > 0 && o.losses[n-1].why == why && !o.losses[n-1].changes {
		o.losses[n-1].at, o.losses[n-1].happened = now, now
		return
	}
	o.losses = append(o.losses, loss{at: now, happened: now, why: why})
}

// lostUntil notes that nothing is safe until a time.
func (o *object) lostUntil(why *exclusion, until time.Time) {
	o.lose(loss{at: time.Now(), until: until, why: why})
}

// lostBefore notes a loss, now, of all grants until at.
func (o *object) lostBefore(why *exclusion, at time.Time) { o.lose(loss{at: at, why: why}) }

// changesLost notes a loss, now, of all unacknowledged changes of a lock.
func (o *object) changesLost() {
	o.lose(loss{at: time.Now(), why: unacknowledged, changes: true})
}

func (o *object) lose(l loss) {
	l.happened = time.Now()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.losses = append(o.losses, l)
}

// lostBy reports whether a loss of a sort has happened.
func (o *object) lostBy(why *exclusion) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.ContainsFunc(o.losses, func(l loss) bool { return l.why == why })
}

// lossSince returns the first loss of a grant of a time, or nil.
func (o *object) lossSince(since time.Time) *loss {
	o.mu.Lock()
	defer o.mu.Unlock()
	for i := range o.losses {
		if o.losses[i].changes {
			continue
		}
		if !o.losses[i].at.Before(since) || since.Before(o.losses[i].until) {
			l := o.losses[i]
			return &l
		}
	}
	return nil
}

// lastLossSince returns the last such loss, or nil. changes: including losses of changes alone.
func (o *object) lastLossSince(since time.Time, changes bool) *loss {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, l := range slices.Backward(o.losses) {
		if !l.at.Before(since) && (changes || !l.changes) {
			return &l
		}
	}
	return nil
}

// backAndForgotten reports whether since a time the server has lost its data, or forgets counters of tokens anyway, and its
// clock has ever gone back: tokens grow over a loss by the clock alone.
func (o *object) backAndForgotten(since time.Time, anyway bool) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	back, forgotten := false, anyway
	for _, l := range o.losses {
		back = back || l.why == clockJumped
		forgotten = forgotten || l.why != clockJumped && !l.changes && !l.at.Before(since)
	}
	return back && forgotten
}

// newObjects are the few names of a run.
func newObjects(d *dice) []*object {
	var all []*object
	for i := range 1 + d.n(4) {
		o := &object{name: fmt.Sprint("o", i), orphans: map[string]orphan{}}
		switch d.n(11) {
		case 0:
			o.family = plain
		case 1, 2:
			o.family = readWrite
		case 3:
			o.family, o.total = permits, 1+d.n(4)
		case 4:
			o.family, o.total = semaphore, 2+d.n(4)
		case 5:
			o.family, o.total = countdown, 2+d.n(3)
		case 6:
			o.family, o.nests = faster, d.oneIn(2)
		default:
			o.family, o.kinds, o.nests = exclusive, pick(d, mixes), d.oneIn(2)
		}
		o.patience = o.patient()
		all = append(all, o)
	}
	return all
}

// tagged gives the objects names in a common slot, or in separate slots, or leaves the names alone.
func tagged(d *dice, all []*object) []*object {
	how := d.n(3)
	for _, o := range all {
		switch {
		case o.family == countdown: // the names must have no braces
		case how == 0:
			o.name = "{t}" + o.name
		case how == 1:
			o.name = "{" + o.name + "}"
		}
	}
	return all
}

// fairPatience is for as long as the head of a fair queue may listen without coming for the lock: after 15 s it is passed over.
const fairPatience = 20 * time.Second

func (o *object) patient() time.Duration {
	switch {
	case o.family == readWrite:
		return 16 * time.Second // a writer that died in its wait keeps readers out for 15 s
	case slices.Contains(o.kinds, fair), slices.Contains(o.kinds, nonReentrantFair):
		return fairPatience
	case slices.Contains(o.kinds, spin) && len(o.kinds) > 1:
		return 11 * time.Second // the release wakes nobody
	case o.nests:
		return longestLease + time.Second // the end of an inner hold may shorten the lease known to waiters
	}
	return 2 * time.Second // without a subscription a waiter looks once a second
}

func (o *object) String() string {
	switch o.family {
	case exclusive:
		return fmt.Sprintf("%s: %v, nested: %v", o.name, o.kinds, o.nests)
	case permits, semaphore, countdown:
		return fmt.Sprintf("%s: %s of %d", o.name, o.family, o.total)
	}
	return fmt.Sprintf("%s: %s", o.name, o.family)
}
