package conn

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/lockwire/lockwire/internal/netfail"
)

const (
	// maxSentinels bounds how many sentinels are remembered, however many they tell of.
	maxSentinels = 64

	// maxRestarts is how often one dial begins again because another server has become the master in the meantime.
	maxRestarts = 4

	// The pause after a round of questions that led to no master is doubled from the first to the second of these.
	minRoundPause, maxRoundPause = 50 * time.Millisecond, 500 * time.Millisecond
)

var (
	errSwitched      = errors.New("conn: another server has become the master")
	errNotMaster     = errors.New("the server is not a master")
	errUnknownMaster = errors.New("the sentinel knows no master of this name")
)

// finder connects to the server that the sentinels call the master, and says itself that it is.
//
// What a sentinel says may be old: one that was cut off from the others goes on naming the former master, which may
// not know either. So the sentinels' own count of changes, the epoch of their configuration, decides between answers:
// one of an older epoch than is known already is put aside, and believed only if no other leads to a master.
type finder struct {
	cfg    *Config                      // constant, as is the following
	moved  func(from string, to master) // told of each change
	kick   chan string                  // wakes watch, with the sentinel to ask first or ""
	nudge  chan struct{}                // has follow see whether the sentinel it listens to is there
	asks   pace                         // of connections to sentinels
	checks pace                         // of connections made to see whether what is announced is true
	asking chan struct{}                // holds a token while one caller asks the sentinels
	heirs  heirs

	mu        sync.Mutex // guards the following
	sentinels []string   // in the order to ask them in
	master    master
	doubted   bool // it has failed, or says that it is none
	changed   chan struct{}
	searches  map[*search]struct{} // in progress
	fruitless int                  // rounds in a row that led to no master
	notBefore time.Time            // the next round
}

// master is a server that was the master when it was asked.
type master struct {
	seq       uint64 // counts the changes; 0: there is none yet
	announced string // its address as the sentinels say it
	addr      string // where it is dialled
	epoch     int64  // of the sentinels' configuration; below 0: not known
}

// search is the dial of a server that is thought to be the master, or a round of questions.
type search struct {
	addr   string // "" if it is a round
	cancel context.CancelCauseFunc
}

// newFinder returns a finder for a Config that has its defaults. moved may be nil.
func newFinder(cfg *Config, moved func(from string, to master)) *finder {
	return &finder{
		cfg:       cfg,
		moved:     moved,
		kick:      make(chan string, 1),
		nudge:     make(chan struct{}, 1),
		asking:    make(chan struct{}, 1),
		heirs:     heirs{asking: make(chan struct{}, 1)},
		sentinels: slices.Clone(cfg.Sentinel.Addrs),
		master:    master{epoch: -1},
		changed:   make(chan struct{}),
		searches:  make(map[*search]struct{}),
	}
}

// current returns the master that is known, whether there are doubts, and what is closed when it changes.
func (f *finder) current() (m master, doubted bool, changed <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.master, f.doubted, f.changed
}

// doubt has the sentinels asked before the server at addr is dialled again. It is also the time to be sure that the next
// announcement will be heard.
func (f *finder) doubt(addr string) {
	select {
	case f.nudge <- struct{}{}:
	default:
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.master.addr == addr {
		f.doubted = true
	}
}

// dial connects to the master. If another one is found while it does, it begins again.
func (f *finder) dial(ctx context.Context) (*session, error) {
	for n := 1; ; n++ {
		s, err := f.dialOnce(ctx)
		if n == maxRestarts || ctx.Err() != nil || !errors.Is(err, errSwitched) {
			return s, err
		}
	}
}

// dialOnce connects to the master that is known, and if that fails to the one that the sentinels name.
func (f *finder) dialOnce(ctx context.Context) (*session, error) {
	m, doubted, changed := f.current()
	r := round{f: f, known: m, changed: changed}
	if m.seq > 0 && !doubted {
		s, err := r.try(ctx, m.announced, -1)
		if err == nil || r.over(ctx, err) {
			return s, err
		}
		f.doubt(m.addr)
	}
	select {
	case f.asking <- struct{}{}:
		defer func() { <-f.asking }()
	case <-changed:
		return nil, f.failure(errSwitched)
	case <-ctx.Done():
		return nil, f.failure(ended(ctx))
	}
	f.mu.Lock()
	pause := time.Until(f.notBefore)
	f.mu.Unlock()
	if err := await(ctx, changed, pause); err != nil {
		return nil, f.failure(err)
	}
	ctx, end, ok := f.untilSwitch(ctx, m.seq, "")
	defer end()
	if !ok {
		return nil, f.failure(errSwitched)
	}
	s, err := r.ask(ctx)
	if err != nil && !errors.Is(err, errSwitched) {
		f.mu.Lock()
		f.fruitless++
		policy := Retry{MinBackoff: minRoundPause, MaxBackoff: maxRoundPause}
		f.notBefore = time.Now().Add(policy.backoff(f.fruitless - 1))
		f.mu.Unlock()
	}
	return s, err
}

// connect dials the server announced at an address, which must say that it is a master, and makes it the one that is
// known. It fails with errSwitched if that has changed since it was the one with the number seq.
func (f *finder) connect(ctx context.Context, seq uint64, announced string, epoch int64) (*session, error) {
	cfg := f.cfg.server(announced)
	ctx, end, ok := f.untilSwitch(ctx, seq, cfg.Addr)
	defer end()
	if !ok {
		return nil, f.failure(errSwitched)
	}
	s, err := dialRole(ctx, cfg, true)
	if err != nil {
		return nil, err
	}
	if !f.believe(seq, announced, cfg.Addr, epoch) {
		_ = hangUp(s.nc)
		return nil, f.failure(errSwitched)
	}
	return s, nil
}

// untilSwitch returns a ctx that ends as soon as a server other than the one at addr becomes the master, and how to
// release it. It is not ok if the master is no longer the one with the number seq.
func (f *finder) untilSwitch(ctx context.Context, seq uint64, addr string) (_ context.Context, end func(), ok bool) {
	ctx, cancel := context.WithCancelCause(ctx)
	d := &search{addr: addr, cancel: cancel}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.searches[d] = struct{}{}
	return ctx, func() {
		cancel(nil)
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.searches, d)
	}, f.master.seq == seq
}

// believe makes a server that says it is a master the one that is known, unless that has changed since it had the
// number seq.
func (f *finder) believe(seq uint64, announced, addr string, epoch int64) bool {
	f.mu.Lock()
	from := f.master
	if from.seq != seq {
		f.mu.Unlock()
		return false
	}
	f.doubted, f.fruitless, f.notBefore = false, 0, time.Time{}
	f.master.announced = announced
	if epoch >= 0 {
		f.master.epoch = epoch
	}
	if from.seq > 0 && from.addr == addr {
		f.mu.Unlock()
		return true
	}
	f.master.addr = addr
	f.master.seq++
	to := f.master
	for d := range f.searches {
		if d.addr != addr {
			d.cancel(errSwitched)
		}
	}
	close(f.changed)
	f.changed = make(chan struct{})
	f.mu.Unlock()
	if f.moved != nil {
		f.moved(from.addr, to)
	}
	return true
}

// list returns the sentinels in the order to ask them in.
func (f *finder) list() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.sentinels)
}

// learn keeps the list of sentinels: those of the Config, the one that has answered, and those it tells of.
func (f *finder) learn(from string, a answer) {
	f.mu.Lock()
	defer f.mu.Unlock()
	keep := append([]string{from}, a.sentinels...)
	list := slices.DeleteFunc(f.sentinels, func(addr string) bool {
		return !slices.Contains(keep, addr) && !slices.Contains(f.cfg.Sentinel.Addrs, addr)
	})
	for _, addr := range keep {
		if len(list) < max(maxSentinels, len(f.cfg.Sentinel.Addrs)) && !slices.Contains(list, addr) {
			list = append(list, addr)
		}
	}
	f.sentinels = list
}

// demote has a sentinel that was of no use asked after the others.
func (f *finder) demote(addr string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if i := slices.Index(f.sentinels, addr); i >= 0 {
		f.sentinels = append(slices.Delete(f.sentinels, i, i+1), addr)
	}
}

func (f *finder) failure(err error) error {
	return &Error{Op: "dial", Addr: f.cfg.Sentinel.Master, Err: err}
}

// round is one search for the master.
type round struct {
	f       *finder
	known   master // when it began
	changed <-chan struct{}
	tried   []string // addresses that were dialled in vain
	err     error    // of the last of these
	silence error    // why a sentinel named no master
}

// over reports whether there is no sense in trying another server: what this one says about who we are the others will
// say as well.
func (r *round) over(ctx context.Context, err error) bool {
	return ctx.Err() != nil || errors.Is(err, errSwitched) || judge(err, false) == netfail.Final
}

// try dials a server, but none twice.
func (r *round) try(ctx context.Context, announced string, epoch int64) (*session, error) {
	addr := r.f.cfg.Sentinel.mapped(announced)
	if slices.Contains(r.tried, addr) {
		return nil, r.err
	}
	s, err := r.f.connect(ctx, r.known.seq, announced, epoch)
	if err != nil {
		r.tried, r.err = append(r.tried, addr), err
	}
	return s, err
}

// ask asks one sentinel after the other until one leads to the master. If none of them answers, the master may be where
// it was.
func (r *round) ask(ctx context.Context) (*session, error) {
	f := r.f
	var aside answer
	for _, addr := range f.list() {
		if err := f.asks.wait(ctx, r.changed); err != nil {
			return nil, f.failure(err)
		}
		a, err := f.question(ctx, addr)
		if ctx.Err() != nil {
			return nil, f.failure(ended(ctx))
		}
		switch {
		case err != nil:
			r.silenced(err)
		case a.older(r.known):
			aside = aside.newer(a)
		default:
			s, err := r.try(ctx, a.master, a.epoch)
			if err == nil || r.over(ctx, err) {
				return s, err
			}
		}
		f.demote(addr)
	}
	switch {
	case aside.master != "":
		return r.try(ctx, aside.master, aside.epoch)
	case r.err == nil && r.known.seq > 0:
		return r.try(ctx, r.known.announced, -1)
	case r.err == nil:
		return nil, f.failure(fmt.Errorf("asking the sentinels: %w", r.silence))
	}
	return nil, r.err
}

// silenced remembers why a sentinel named no master: of several reasons one that may go away.
func (r *round) silenced(err error) {
	if r.silence == nil || judge(r.silence, false) == netfail.Final {
		r.silence = err
	}
}
