package sentinel

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/lockwire/lockwire/conn/internal/pipeline"
	"github.com/lockwire/lockwire/internal/netfail"
	"github.com/lockwire/lockwire/resp"
)

const (
	// maxSentinels limits the number of known sentinels.
	maxSentinels = 64

	// maxRestarts is how often one dial starts again after a change of the master.
	maxRestarts = 4

	// The pause after an unsuccessful round of questions doubles from minRoundPause to maxRoundPause.
	minRoundPause, maxRoundPause = 50 * time.Millisecond, 500 * time.Millisecond
)

var (
	// ErrSwitched: a dial led to a server that is not the master any more.
	ErrSwitched      = errors.New("conn: another server has become the master")
	errUnknownMaster = errors.New("the sentinel knows no master of this name")
)

// Config says where the sentinels are, and how to connect. OnSwitch may be nil, and so may Go in a Resolver
// whose Succession is not called. Several goroutines may call a function at once.
type Config struct {
	Master       string        // name of the master in the sentinels' configuration
	Addrs        []string      // addresses of sentinels to dial
	Timeout      time.Duration // limit of the connection to a sentinel and of its answer
	PollInterval time.Duration // time between questions of Watch; not above 0 for none
	PingInterval time.Duration // silence after which Follow checks its sentinel; not above 0 for none

	// Map returns the address to dial for an announced address.
	Map func(announced string) string

	// Dial connects to the server announced at an address, and requires the role of a master.
	Dial func(ctx context.Context, announced string) (*pipeline.Session, error)

	// Ask connects to the sentinel at addr. announced is its address before Map; a sentinel of Addrs has announced == addr.
	Ask func(ctx context.Context, announced, addr string) (Stream, error)

	// Failure makes the error for a caller: a dial of addr, or of the master by its name, has failed with err.
	Failure func(addr string, err error) error

	// Go calls run in a goroutine, with a context that ends with the owner of the Resolver. After that end, Go only returns an
	// error.
	Go func(run func(ctx context.Context)) error

	// Warn logs a change of state.
	Warn func(text string, args ...any)

	// OnSwitch, if set, is called after each change of the master. seq is the number of the change, from 1; the calls may
	// come out of order. The first change, to the first master, has from == "".
	OnSwitch func(from, to string, seq uint64)

	// Checked is called after a connection to a master that a sentinel announced. s is nil with an error.
	Checked func(begin time.Time, addr string, s *pipeline.Session, err error)
}

// Stream is a connection to a sentinel. One goroutine at a time calls Read; Close ends a Read or Write under way.
type Stream interface {
	Read() (resp.Value, error)
	Write(ctx context.Context, cmds ...resp.Command) error
	Close() error
}

// Resolver finds and dials the master: the server named by the sentinels that also reports the role of a master itself.
//
// An answer may be old. A sentinel cut off from the others still names the former master, which may not know of its
// replacement. The epoch of the sentinels' configuration counts the failovers, so the Resolver sets aside an answer
// with an older epoch than the known one, and uses it only if no other answer leads to a master.
//
// Many goroutines may call the methods at once.
type Resolver struct {
	cfg           Config            // constant, like the following
	pollNow       chan sentinelAddr // wakes Watch; the sentinel to ask first
	checkListener chan struct{}     // makes Follow check the sentinel it listens to
	asks          rateLimiter       // limits connections to sentinels
	checks        rateLimiter       // limits connections that check an announced master
	asking        chan struct{}     // holds a token while a caller asks the sentinels

	mu          sync.Mutex     // guards the following
	sentinels   []sentinelAddr // in the order of asking
	master      master
	endTerm     context.CancelCauseFunc // ends the term of master
	rounds      pause                   // between unsuccessful rounds of questions
	ofOne       inquiries               // about the replicas, answered by one sentinel
	ofEvery     inquiries               // about the replicas, with all sentinels asked
	firstMaster string                  // the master in the first answer of an inquiry
	hadReplica  bool                    // any inquiry has found a replica
}

// master is a server that has confirmed the role of a master.
type master struct {
	seq       uint64          // number of the change; 0 without a master
	announced string          // address announced by the sentinels
	addr      string          // address dialed
	epoch     int64           // epoch of the sentinels' configuration; below 0 if unknown
	term      context.Context // ends when another server becomes the master, with the cause ErrSwitched
	suspected bool            // it has failed since, or denies the role
}

// New returns a Resolver that knows no master yet.
func New(cfg Config) *Resolver {
	r := &Resolver{
		cfg:           cfg,
		pollNow:       make(chan sentinelAddr, 1),
		checkListener: make(chan struct{}, 1),
		asking:        make(chan struct{}, 1),
		master:        master{epoch: -1},
	}
	r.ofOne.ask, r.ofEvery.ask = r.replicasInTurn, r.replicasFromAll
	r.master.term, r.endTerm = context.WithCancelCause(context.Background())
	for _, addr := range cfg.Addrs {
		r.sentinels = append(r.sentinels, sentinelAddr{addr, addr})
	}
	return r
}

// Known returns the address of the known master as dialed, or "" before the first.
func (r *Resolver) Known() string { return r.current().addr }

// current returns the known master.
func (r *Resolver) current() master {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.master
}

// Suspect makes the next dial ask the sentinels, if addr is the master's address. It also makes Follow check its
// sentinel, so that the next announcement is not missed.
func (r *Resolver) Suspect(addr string) {
	netfail.Signal(r.checkListener)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.master.addr == addr {
		r.master.suspected = true
	}
}

// Dial connects to the master. If the master changes meanwhile, Dial starts again. ctx bounds the dial. The caller owns
// the Session.
func (r *Resolver) Dial(ctx context.Context) (*pipeline.Session, error) {
	for n := 1; ; n++ {
		s, err := r.dialOnce(ctx)
		if n == maxRestarts || ctx.Err() != nil || !errors.Is(err, ErrSwitched) {
			return s, err
		}
	}
}

// dialOnce connects to the known master, and after a failure to the master named by the sentinels.
func (r *Resolver) dialOnce(ctx context.Context) (*pipeline.Session, error) {
	m := r.current()
	search := round{resolver: r, known: m}
	if m.seq > 0 && !m.suspected {
		s, err := search.try(ctx, m.announced, -1)
		if err == nil || ctx.Err() != nil || errors.Is(err, ErrSwitched) {
			return s, err
		}
		r.Suspect(m.addr) // also after a final error, which says nothing about a successor
	}
	ctx, end := netfail.Within(ctx, m.term)
	defer end()
	select {
	case r.asking <- struct{}{}:
		defer func() { <-r.asking }()
	case <-ctx.Done():
		return nil, r.failure(netfail.Ended(ctx))
	}
	r.mu.Lock()
	until := r.rounds.until
	r.mu.Unlock()
	if err := netfail.Sleep(ctx, time.Until(until)); err != nil {
		return nil, r.failure(err)
	}
	s, err := search.ask(ctx)
	if err != nil && !errors.Is(err, ErrSwitched) {
		r.mu.Lock()
		r.rounds.extend()
		r.mu.Unlock()
	}
	return s, err
}

// connect dials the announced server, requires the role of a master and records it as the known master. After the term of m,
// connect fails with ErrSwitched.
func (r *Resolver) connect(ctx context.Context, m master, announced string, epoch int64) (*pipeline.Session, error) {
	if m.term.Err() != nil {
		return nil, r.failure(ErrSwitched)
	}
	ctx, end := netfail.Within(ctx, m.term)
	defer end()
	s, err := r.cfg.Dial(ctx, announced)
	if err != nil {
		return nil, err
	}
	if !r.adopt(m, announced, epoch) {
		s.HangUp()
		return nil, r.failure(ErrSwitched)
	}
	return s, nil
}

// adopt records a server with the role of a master as the known master. It returns false if from is not the known master
// any more.
func (r *Resolver) adopt(from master, announced string, epoch int64) bool {
	addr := r.cfg.Map(announced)
	r.mu.Lock()
	if from.term.Err() != nil {
		r.mu.Unlock()
		return false
	}
	r.rounds = pause{}
	r.master.suspected, r.master.announced = false, announced
	if epoch >= 0 {
		r.master.epoch = epoch
	}
	switched := from.seq == 0 || from.addr != addr
	if switched {
		r.master.seq++
		r.master.addr = addr
		r.ofOne.pause, r.ofEvery.pause = pause{}, pause{}
		r.endTerm(ErrSwitched)
		r.master.term, r.endTerm = context.WithCancelCause(context.Background())
	}
	r.mu.Unlock()
	if switched && r.cfg.OnSwitch != nil {
		r.cfg.OnSwitch(from.addr, addr, from.seq+1)
	}
	return true
}

func (r *Resolver) list() []sentinelAddr {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.sentinels)
}

// learn updates the list of sentinels by an answer. The list then has the sentinels in the Config, the one that answered,
// and the ones named in the answer.
func (r *Resolver) learn(from sentinelAddr, a answer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	configured := func(p sentinelAddr) bool { return slices.Contains(r.cfg.Addrs, p.addr) }
	keep := append([]sentinelAddr{from}, slices.DeleteFunc(a.sentinels, configured)...)
	list := slices.DeleteFunc(r.sentinels, func(p sentinelAddr) bool { return !slices.Contains(keep, p) && !configured(p) })
	for _, p := range keep {
		if len(list) < max(maxSentinels, len(r.cfg.Addrs)) && !slices.Contains(list, p) {
			list = append(list, p)
		}
	}
	r.sentinels = list
}

// demote moves an unhelpful sentinel to the end of the list.
func (r *Resolver) demote(p sentinelAddr) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if i := slices.Index(r.sentinels, p); i >= 0 {
		r.sentinels = append(slices.Delete(r.sentinels, i, i+1), p)
	}
}

func (r *Resolver) failure(err error) error {
	return r.cfg.Failure(r.cfg.Master, err)
}

// round is one search for the master.
type round struct {
	resolver *Resolver
	known    master   // the master at the begin of the round
	tried    []string // addresses of failed dials
	err      error    // error of the last failed dial
}

// isFinal reports whether err ends the round: ctx has ended, the master has changed, or every server would reply the
// same, for example about a wrong password.
func isFinal(ctx context.Context, err error) bool {
	return ctx.Err() != nil || errors.Is(err, ErrSwitched) || netfail.Dial(err) == netfail.Final
}

// try dials a server. If a dial of the server has failed in this round, try returns the last error.
func (r *round) try(ctx context.Context, announced string, epoch int64) (*pipeline.Session, error) {
	if r.hasTried(announced) {
		return nil, r.err
	}
	s, err := r.resolver.connect(ctx, r.known, announced, epoch)
	if err != nil {
		r.tried, r.err = append(r.tried, r.resolver.cfg.Map(announced)), err
	}
	return s, err
}

func (r *round) hasTried(announced string) bool {
	return slices.Contains(r.tried, r.resolver.cfg.Map(announced))
}

// ask dials the masters named by the sentinels, until a dial succeeds. If no sentinel names a master, ask dials the known
// master.
func (r *round) ask(ctx context.Context) (s *pipeline.Session, err error) {
	silence, ended := r.resolver.eachAnswer(ctx, r.resolver.list(), r.known, func(a answer) bool {
		again := r.hasTried(a.master) // the next sentinel may know better
		s, err = r.try(ctx, a.master, a.epoch)
		return err == nil || !again && isFinal(ctx, err)
	})
	switch {
	case ended != nil:
		return nil, r.resolver.failure(ended)
	case s != nil || err != nil:
		return s, err
	case r.err != nil:
		return nil, r.err
	case r.known.seq > 0:
		return r.try(ctx, r.known.announced, -1)
	}
	return nil, r.resolver.failure(fmt.Errorf("asking the sentinels: %w", silence))
}

// eachAnswer asks the sentinels of list in turn, and calls use with each answer until use is done. An answer from before
// the failover to known comes last, and only if known has failed, or if all sentinels have answered. silence is the error of a
// sentinel if no answer was used; ended is the error if ctx has ended.
func (r *Resolver) eachAnswer(ctx context.Context, list []sentinelAddr, known master, use func(answer) (done bool)) (silence, ended error) {
	var aside answer
	for _, at := range list {
		if err := r.asks.wait(ctx); err != nil {
			return nil, err
		}
		a, err := r.askMaster(ctx, at)
		switch {
		case ctx.Err() != nil:
			return nil, netfail.Ended(ctx)
		case err != nil:
			if silence == nil || netfail.Dial(silence) == netfail.Final { // a temporary reason is preferred
				silence = err
			}
		case a.older(known):
			if aside.master == "" || aside.epoch < a.epoch {
				aside = a
			}
		case use(a):
			return nil, nil
		}
		r.demote(at)
	}
	if aside.master != "" && (silence == nil || r.current().suspected) {
		use(aside)
		return nil, nil
	}
	return silence, nil
}
