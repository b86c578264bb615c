package simulation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockwire/lockwire/internal/simulation/redisson"
	"github.com/lockwire/lockwire/lock"
	"github.com/lockwire/lockwire/resp"
)

// unlockLimit is how long Unlock and the changes of synchronizers take at most.
const unlockLimit = 10 * time.Second

// turn does something with an object.
func (k *worker) turn(o *object) {
	if k.process.redisson != nil {
		k.turnOfRedisson(o)
		return
	}
	if k.process.world.five {
		k.vote(o)
		return
	}
	switch o.family {
	case exclusive:
		k.exclusive(o)
	case plain:
		k.hold(o, "Plain", &k.process.clientOf(o).Plain(o.name).Handle, "", 1)
	case readWrite:
		k.readWrite(o)
	case permits:
		k.permits(o)
	case semaphore:
		k.semaphore(o)
	case countdown:
		k.countdown(o)
	case faster:
		k.faster(o)
	}
}

// handle is the lock of a kind.
func (k *worker) handle(kind string, o *object) *lock.Handle {
	c, name := k.process.clientOf(o), o.name
	switch kind {
	case nonReentrant:
		return &c.NonReentrant(name).Handle
	case spin:
		return &c.Spin(name, lock.Backoff{}).Handle
	case fenced:
		return &c.Fenced(name).Handle
	case fair:
		return &c.Fair(name).Handle
	case nonReentrantFair:
		return &c.NonReentrantFair(name).Handle
	}
	return &c.Reentrant(name).Handle
}

func (k *worker) exclusive(o *object) {
	kind := pick(k.dice, o.kinds)
	handle := k.handle(kind, o)
	if k.process.world.several && k.dice.oneIn(3) && k.multi(o) {
		return
	}
	switch k.dice.n(60) {
	case 0:
		k.force(o, kind, handle.ForceUnlock)
		return
	case 1:
		k.look(o, kind, handle)
		return
	case 2, 3, 4, 5:
		if k.multi(o) {
			return
		}
	}
	holds := 1
	if o.nests && (kind == reentrant || kind == fair) {
		holds += k.dice.n(3)
	}
	k.hold(o, kind, handle, "", holds)
}

func (k *worker) readWrite(o *object) {
	rw := k.process.clientOf(o).ReadWrite(o.name)
	switch {
	case k.dice.oneIn(100):
		k.force(o, "Write", rw.Write().ForceUnlock)
	case k.dice.oneIn(100):
		k.force(o, "Read", rw.Read().ForceUnlock)
	case k.dice.oneIn(3):
		k.hold(o, "Write", &rw.Write().Handle, "write", 1+k.dice.n(2))
	default:
		k.hold(o, "Read", &rw.Read().Handle, "read", 1+k.dice.n(2))
	}
}

// request is how a lock is asked for.
type request struct {
	ctx    context.Context
	cancel context.CancelFunc
	limit  time.Duration // 0: none
	try    bool
	owned  bool
	fixed  bool // the lease is not renewed
	term   time.Duration
	least  time.Duration // AtLeast
	most   time.Duration // AtMost
	opts   []lock.Option
	text   string
}

// request makes a request for a lock of a kind.
func (k *worker) request(o *object, kind string, owned bool) request {
	r := request{owned: owned, try: k.dice.oneIn(4), term: k.process.lease}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	if owned {
		r.opts, r.text = append(r.opts, lock.As(k.ownerOf(o))), " as owner"
	}
	if k.dice.oneIn(4) {
		d := k.dice.between(200*time.Millisecond, 5*time.Second).Round(time.Millisecond)
		r.fixed, r.term = true, d
		r.opts, r.text = append(r.opts, lock.For(d)), fmt.Sprint(r.text, " for ", d)
	}
	k.limit(&r, kind)
	switch {
	case k.dice.oneIn(8):
		d := k.dice.upTo(300 * time.Millisecond)
		timer := time.AfterFunc(d, r.cancel)
		cancel := r.cancel
		r.limit, r.text = d, fmt.Sprint(r.text, " cancelled after ", d)
		r.cancel = func() { timer.Stop(); cancel() }
	case !k.dice.oneIn(5):
		r.limit = k.dice.upTo(pick(k.dice, []time.Duration{50 * time.Millisecond, 500 * time.Millisecond, 5 * time.Second, 20 * time.Second}))
		r.cancel()
		r.ctx, r.cancel = context.WithTimeout(context.Background(), r.limit)
		r.text = fmt.Sprint(r.text, " within ", r.limit)
	}
	if r.try {
		r.text = " try" + r.text
	}
	return r
}

// hold completes the hold that a request has led to.
func (r *request) hold(h hold) *hold {
	h.fixed, h.term, h.least, h.most = r.fixed, r.term, r.least, r.most
	return &h
}

// hold takes a lock up to a number of times, and releases all holds.
func (k *worker) hold(o *object, kind string, handle *lock.Handle, mode string, holds int) {
	owned := holds > 1 || k.dice.oneIn(6)
	var held []*hold
	for range holds {
		h := k.take(o, kind, handle, mode, owned)
		if h == nil {
			break
		}
		held = append(held, h)
		if mode == "write" && k.dice.oneIn(3) {
			held = append(held[:len(held)-1], k.downgrade(h)...)
			break
		}
	}
	for _, h := range held {
		k.work(h)
		k.giveBack(h)
	}
}

// take asks for a lock once, and returns nil if it is not to be had.
func (k *worker) take(o *object, kind string, handle *lock.Handle, mode string, owned bool) *hold {
	if !k.pass() {
		return nil
	}
	r := k.request(o, kind, owned)
	defer r.cancel()
	k.begin(o, r.limit, !r.try, "%s%s", kind, r.text)
	call := handle.Lock
	if r.try {
		call = handle.TryLock
	}
	lease, err := call(r.ctx, r.opts...)
	if !k.end(err) || err != nil {
		return nil
	}
	return k.took(o, lease, r.hold(hold{mode: mode, fenced: kind == fenced, shared: r.owned}))
}

// took takes in the result of a call. The server's grant may be older than the call: callers of a process pass a lock on.
func (k *worker) took(o *object, lease *lock.Lease, h *hold) *hold {
	h.worker, h.object, h.lease = k, o, lease
	if h.asked.IsZero() {
		h.asked = k.asked
	}
	if k.process.gone() {
		return nil
	}
	w := k.process.world
	h.since = lease.ValidUntil().Add(-h.term)
	w.history.add(k.name, o.name, "has it as %s, token %d, valid for %v", lease.Owner(), lease.Token(), time.Until(lease.ValidUntil()))
	w.acquired(h)
	return h
}

// downgrade makes a read hold of a write hold.
func (k *worker) downgrade(h *hold) []*hold {
	w := k.process.world
	if !k.pass() {
		return []*hold{h}
	}
	w.releasing(h)
	k.begin(h.object, unlockLimit, false, "Downgrade")
	lease, err := h.lease.(*lock.Lease).Downgrade(context.Background())
	if !k.end(err) || err != nil {
		return nil
	}
	// A limit by AtMost begins anew, and says nothing about the lease.
	acknowledged := !h.fixed && h.most == 0 && lease.ValidUntil().After(h.lease.(*lock.Lease).ValidUntil())
	read := &hold{mode: "read", shared: true, changed: !acknowledged, fixed: h.fixed, term: longestLease, most: h.most, asked: h.asked}
	if read = k.took(h.object, lease, read); read != nil {
		return []*hold{read}
	}
	return nil
}

// work holds for a while, as often as not only until the hold is lost.
func (k *worker) work(h *hold) {
	var lost <-chan struct{}
	if k.dice.oneIn(2) {
		lost = h.lease.Lost()
	}
	most := pick(k.dice, []time.Duration{0, time.Millisecond, 5 * time.Millisecond, 50 * time.Millisecond, 400 * time.Millisecond})
	if k.dice.oneIn(k.process.world.pace.long) {
		most = 8 * time.Second
	}
	k.pause(k.dice.upTo(most), lost)
	if k.dice.oneIn(20) && k.pass() {
		k.begin(h.object, 0, false, "Check")
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		k.end(h.lease.Check(ctx))
		cancel()
	}
}

// giveBack unlocks a hold.
func (k *worker) giveBack(h *hold) {
	p := k.process
	if !k.pass() && (p.gone() || k.dice.oneIn(2)) {
		return // taken until the end of its lease
	}
	p.world.releasing(h)
	validUntil := h.lease.ValidUntil()
	k.begin(h.object, unlockLimit, false, "Unlock of %s", h.lease.Owner())
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if k.dice.oneIn(4) {
		cancel() // Unlock ignores the end of ctx
	}
	err := h.lease.Unlock(ctx)
	if !k.end(err) {
		return
	}
	p.world.released(h, validUntil, err)
	if limitedBy(err) && !p.world.mayRefuse(h) {
		p.world.violate(h.object, "%v: Unlock = %v", h, err)
	}
}

// force frees a lock of any holder. The server tells the world the time.
func (k *worker) force(o *object, kind string, call func(context.Context) (bool, error)) {
	k.begin(o, 0, false, "ForceUnlock %s", kind)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_, err := call(ctx)
	k.end(err)
}

// look asks for the holders of a lock.
func (k *worker) look(o *object, kind string, handle *lock.Handle) {
	k.begin(o, 5*time.Second, false, "Info %s", kind)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_, err := handle.Info(ctx)
	k.end(err)
}

// multi takes this lock together with a second lock, if possible.
func (k *worker) multi(o *object) bool {
	w := k.process.world
	other := pick(k.dice, w.objects)
	if other == o || other.family != exclusive || !k.pass() {
		return false
	}
	both, err := lock.NewMulti(k.handle(pick(k.dice, o.kinds), o), k.handle(pick(k.dice, other.kinds), other))
	if err != nil {
		w.violate(o, "NewMulti: %v", err)
		return false
	}
	r := k.request(o, "Multi", false)
	defer r.cancel()
	k.begin(o, r.limit, false, "Multi of %s and %s%s", o.name, other.name, r.text)
	k.besideOf(other)
	call := both.Lock
	if r.try {
		call = both.TryLock
	}
	lease, err := call(r.ctx, r.opts...)
	if !k.end(err) || err != nil {
		return true
	}
	first := k.took(o, lease, r.hold(hold{beside: []*object{other}}))
	second := k.took(other, lease, r.hold(hold{beside: []*object{o}}))
	if first == nil || second == nil {
		return true
	}
	k.work(first)
	if !k.pass() {
		return true
	}
	w.releasing(first)
	w.releasing(second)
	k.begin(o, unlockLimit, false, "Unlock of Multi with %s", other.name)
	k.besideOf(other)
	k.end(lease.Unlock(context.Background()))
	return true
}

// passing are the errors of calls that the faults explain.
var passing = []error{
	lock.ErrNotAcquired, lock.ErrClosed, lock.ErrLost, lock.ErrUncertain, lock.ErrNotHeld, lock.ErrReentry, lock.ErrUpgrade,
	lock.ErrReleased, context.DeadlineExceeded, context.Canceled, redisson.ErrNotOwner,
}

// ofCluster reports whether an error is a reply of the nodes of a changing cluster.
func ofCluster(err error) bool {
	said, _ := errors.AsType[resp.Error](err)
	return slices.Contains([]string{"MOVED", "ASK", "TRYAGAIN", "CLUSTERDOWN", "READONLY", "UNBLOCKED"}, said.Prefix()) ||
		strings.Contains(string(said), "non local key") // a hold of an Owner that only the server knows, while the slot moves
}

// isOne reports whether err is in the list.
func isOne(err error, list ...error) bool {
	for _, e := range list {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
