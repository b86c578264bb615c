package simulation

import (
	"fmt"
	"slices"
	"sync"
	"time"
)

// family is what an object is, as far as the checks are concerned.
type family string

const (
	exclusive family = "lock"
	plain     family = "plain"
	readWrite family = "rw"
	permits   family = "permits"
	semaphore family = "sem"
	countdown family = "latch"
)

// The kinds of exclusive locks, which exclude each other under one name.
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

// object is a lock or a synchronizer that the processes contend for.
type object struct {
	name   string
	family family
	kinds  []string // of an exclusive one
	nests  bool     // owners take it several times
	total  int      // permits, or the count of a latch
	// patience is for how long it may be free while somebody waits for it and nothing is wrong.
	patience time.Duration

	// Guarded by the world's mu.
	live    []*hold
	last    *hold             // the fenced one with the largest token
	side    string            // who has had it last, where Redisson takes part
	out     int               // permits of a semaphore that somebody has
	missing int               // permits of a semaphore that may be lost with their processes
	rounds  []*round          // of a latch
	idle    time.Time         // since when it has been free while somebody waits; zero if it is not
	orphans map[string]orphan // owners that the server has and nobody is

	mu     sync.Mutex // guards losses; taken inside a server
	losses []loss
}

// loss is that the server forgot who has the object, all who have had it since before at.
type loss struct {
	at       time.Time
	happened time.Time // when it did; later than at if who has got the object in between is not concerned
	until    time.Time // what is granted meanwhile is not safe either; zero: only what was granted before
	why      *exclusion
	changes  bool // only what has been downgraded is concerned: the change is lost, and the lock is not
}

// orphan is an owner that the server has and nobody is.
type orphan struct{ since time.Time }

// lost takes note that the server forgets now.
func (o *object) lost(why *exclusion) { o.lostUntil(why, time.Time{}) }

// lostAgain takes note that the server forgets now, and may go on to forget.
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

// lostUntil takes note that until then nothing is safe.
func (o *object) lostUntil(why *exclusion, until time.Time) {
	o.lose(loss{at: time.Now(), until: until, why: why})
}

// lostBefore takes note that the server forgets now who has got the object until at.
func (o *object) lostBefore(why *exclusion, at time.Time) { o.lose(loss{at: at, why: why}) }

// changesLost takes note that the server forgets now what nobody acknowledges of a lock.
func (o *object) changesLost() {
	if o.family == readWrite {
		o.lose(loss{at: time.Now(), why: unacknowledged, changes: true})
	}
}

func (o *object) lose(l loss) {
	l.happened = time.Now()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.losses = append(o.losses, l)
}

// lostBy reports whether there was a loss of that sort.
func (o *object) lostBy(why *exclusion) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.ContainsFunc(o.losses, func(l loss) bool { return l.why == why })
}

// lossSince returns the first loss of what was granted at that time, or nil.
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

// lastLossSince returns the last such loss, or nil. changes: also one of changes alone.
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

// backAndForgotten reports whether since that time the server has lost what it had, and its clock has gone back at any time: what
// makes tokens grow over a loss is the clock.
func (o *object) backAndForgotten(since time.Time) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	back, forgotten := false, false
	for _, l := range o.losses {
		back = back || l.why == clockJumped
		forgotten = forgotten || l.why != clockJumped && !l.at.Before(since)
	}
	return back && forgotten
}

// newObjects are the few names of a run.
func newObjects(d *dice) []*object {
	var all []*object
	for i := range 1 + d.n(4) {
		o := &object{name: fmt.Sprint("o", i), orphans: map[string]orphan{}}
		switch d.n(10) {
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
		default:
			o.family, o.kinds, o.nests = exclusive, pick(d, mixes), d.oneIn(2)
		}
		o.patience = o.patient()
		all = append(all, o)
	}
	return all
}

// tagged gives the objects names in one slot, or in one each, or leaves them as they are.
func tagged(d *dice, all []*object) []*object {
	how := d.n(3)
	for _, o := range all {
		switch {
		case o.family == countdown: // its names have no braces
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
		return 16 * time.Second // a writer that has died while it waited keeps readers out for 15
	case slices.Contains(o.kinds, fair), slices.Contains(o.kinds, nonReentrantFair):
		return fairPatience
	case slices.Contains(o.kinds, spin) && len(o.kinds) > 1:
		return 11 * time.Second // its release wakes nobody
	case o.nests:
		return longestLease + time.Second // the end of an inner hold may shorten the lease that waiters know of
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
