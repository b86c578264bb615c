package conn

import (
	"container/list"
	"context"
	"hash/maphash"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockwire/lockwire/conn/internal/pipeline"
	"github.com/lockwire/lockwire/conn/internal/sentinel"
	"github.com/lockwire/lockwire/internal/callback"
	"github.com/lockwire/lockwire/internal/netfail"
)

// Pool is a client of one server, or of the current master named by sentinels. A Pool has connections shared by all
// callers, and exclusive connections lent to one caller at a time. Many goroutines may use a Pool at once.
// Connections are opened on demand and replaced after a failure. Close a Pool after use.
//
// A Pool repeats commands that certainly did not run, within the limits of Config.Retry, and no other command. An
// error that matches ErrUncertain means that a command may have run.
//
// A ctx bounds the wait of a call and does not undo a command already sent. The end of one caller's ctx does not
// affect other callers on the connection. A shared connection refuses commands that would block or change the
// connection's state; the error names the alternative.
type Pool struct {
	// Constant after New.
	cfg         Config
	sharedConns []*sharedConn
	seed        maphash.Seed // of the hash that spreads routing keys over sharedConns
	pushes      *pushes
	dialTokens  chan struct{} // holds a token per dial in progress

	lifetime
	retries atomic.Uint64
	losses  callback.List

	resolver *sentinel.Resolver // nil without sentinels; constant after New

	mu           sync.Mutex                  // guards the following, and the fields so marked of sharedConn and member
	links        map[*pipeline.Link]struct{} // all links that have not failed
	titles       []*string                   // names added by Introduce
	pendingDials map[*dialState]struct{}     // the dials in progress, or waiting for their turn
	knownMaster
	health
	lending
}

// lifetime is the time from New to Close, which ends it under the Pool's mu, once. The invariant: only a holder of mu adds a
// link or a call of Stream, and only before the end; after the end, only these and counted goroutines start goroutines.
// So Close, which ends the links and waits for wg, leaves nothing behind.
type lifetime struct {
	life context.Context // of dials, and of the goroutines of the resolver
	end  context.CancelCauseFunc
	wg   sync.WaitGroup // counts all goroutines, and calls of Stream
}

func (t *lifetime) isClosed() bool { return t.life.Err() != nil }

// cause returns the first cause given to CloseFor, or nil before the end.
func (t *lifetime) cause() error { return context.Cause(t.life) }

// over returns the reason if ctx or the Pool has ended, and nil otherwise.
func (t *lifetime) over(ctx context.Context) error {
	if ctx.Err() != nil && !t.isClosed() {
		return netfail.Ended(ctx)
	}
	return t.cause()
}

// sleep waits for d. If ctx or the Pool ends first, sleep returns the cause.
func (t *lifetime) sleep(ctx context.Context, d time.Duration) error {
	err := netfail.SleepUnless(ctx, d, t.life.Done(), ErrClosed)
	if err == ErrClosed {
		return t.cause()
	}
	return err
}

// health is the record of the Pool's dials. After a failed dial, all dials wait until notBefore.
type health struct {
	failures  int       // failed dials in a row
	notBefore time.Time // earliest time of the next dial
	lastErr   error     // the cause of the last dial that failed
	lastAt    time.Time

	dials, dialErrors, lostLinks uint64
}

// sharedDial is one dial of a shared connection, for all callers that wait for it.
type sharedDial struct {
	done    chan struct{}  // closed when the dial has ended
	waiting int            // number of waiting callers, and of calls of dialAnywayLocked; guarded by the Pool's mu
	link    *pipeline.Link // constant after done is closed, like err
	err     error
}

// sharedConn is one shared connection of a Pool. It owns the links that serve it one after the other.
type sharedConn struct {
	p       *Pool
	current atomic.Pointer[pipeline.Link] // stores hold the Pool's mu

	// Guarded by the Pool's mu.
	pending *sharedDial // the dial in progress, or nil
	misrouted
}

// misrouted records READONLY and NOAUTH replies on a shared connection: its address may lead to the wrong server. The
// invariant: suspect is the last of links in a row with such a reply, the first on each within rejectionMemory of the
// first on the link before. Until recheck, further replies on suspect cause no dial.
type misrouted struct {
	suspect *pipeline.Link
	links   int
	last    time.Time // time of the first such reply on suspect
	recheck time.Time // end of the time for which replies on suspect are believed
}

const (
	rejectionMemory = 10 * time.Second
	recheckAfter    = time.Second
)

// refused notes such a reply on l, the current link. again reports whether to dial in place of l: after the first reply on
// each of the first most links in a row, and from recheck on. Otherwise the reply is believed. first reports whether the
// reply begins a row.
func (m *misrouted) refused(l *pipeline.Link, now time.Time, most int) (again, first bool) {
	fresh := m.suspect != l
	switch {
	case !fresh && now.Before(m.recheck):
		return false, false
	case fresh && now.Sub(m.last) > rejectionMemory:
		m.suspect, m.last, m.links = l, now, 1
	case fresh:
		m.suspect, m.last, m.links = l, now, m.links+1
	}
	m.recheck = now.Add(recheckAfter)
	again = !fresh || m.links <= most
	return again, again && fresh && m.links == 1
}

// ready returns the current link, or nil if it has failed or is missing.
func (s *sharedConn) ready() *pipeline.Link {
	if l := s.current.Load(); l != nil && !l.Failed() {
		return l
	}
	return nil
}

// knownMaster is the server of a Pool with sentinels. The Pool's mu guards it.
type knownMaster struct {
	seq      uint64               // number of the known master; 0 without one
	addr     string               // address dialed
	changed  chan struct{}        // closed when the master changes; nil without sentinels
	streams  map[*Stream]struct{} // open streams; nil without sentinels
	switches uint64
}

// lending is the part of a Pool that lends exclusive connections, guarded by the Pool's mu. Two invariants hold:
//
//   - open never exceeds Config.MaxConns.
//   - No connection is idle while a caller waits.
type lending struct {
	open    int       // connections and dials: idle, dialing, and lent, which includes connections being drained or closed
	idle    []*member // the most recently used at the end, lent first
	dialing int
	queue   list.List     // of *borrower, first come first served
	ackTime time.Duration // typical time of a batch with WAIT
}

// member is an exclusive connection, and the owner of its link. The Pool's mu guards all fields except l.
type member struct {
	p     *Pool
	l     *pipeline.Link
	state memberState
	aged  time.Time // time of reaching MaxAge; zero for never
	due   time.Time // time at which it is idle for too long or aged, or returned for too long; zero for never
}

// memberState is the state of a member.
type memberState uint8

const (
	isLent     memberState = iota // or new, or unfit for a further loan
	isReturned                    // given back with replies outstanding; counted as lent
	isIdle
	isGone // its connection is closed, and no longer counted
)

// borrower is a caller waiting for a connection. The Pool's mu guards its fields until ready is closed; afterwards
// they are constant.
type borrower struct {
	ready  chan struct{} // closed after setting m or err
	m      *member
	err    error
	budget retryBudget
}

// settle gives the borrower at e its outcome.
func (p *lending) settle(e *list.Element, m *member, err error) {
	b := p.queue.Remove(e).(*borrower)
	b.m, b.err = m, err
	close(b.ready)
}

func (p *lending) lent() int { return p.open - len(p.idle) - p.dialing }

// outdatedLocked reports whether addr is not the address of the known master.
func (p *Pool) outdatedLocked(addr string) bool {
	return p.resolver != nil && p.seq > 0 && addr != p.addr
}

// suspectMaster makes the resolver ask the sentinels whether the server of l, which replied READONLY, is still the
// master.
func (p *Pool) suspectMaster(l *pipeline.Link) {
	if p.resolver != nil {
		p.resolver.Suspect(l.Addr)
	}
}

// name returns the name for connections in CLIENT LIST.
func (p *Pool) name() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.nameLocked()
}

func (p *Pool) nameLocked() string {
	names := []string{p.cfg.ClientName}
	for _, title := range p.titles {
		names = append(names, *title)
	}
	return strings.TrimPrefix(strings.Join(names, ","), ",") // without a ClientName
}

// Stats holds the state of a Pool at one moment, and its counters since Open.
type Stats struct {
	Shared   int // open shared connections
	InFlight int // calls without an answer on all connections, including abandoned calls

	// Exclusive connections: Open = Idle + Lent + Dialing, at most Config.MaxConns. A returned connection with
	// replies outstanding counts as lent, and so does a connection until it is closed.
	Open, Idle, Lent, Dialing int

	Waiting int // callers waiting for an exclusive connection

	Dials      uint64 // dials of shared and exclusive connections
	DialErrors uint64
	Lost       uint64 // failed connections
	Switches   uint64 // changes of the master, named by sentinels
	Retries    uint64 // attempts after the first of a call
	PushesLost uint64 // pushes dropped because OnPush was too slow
}

// Stats returns the current numbers. It is cheap enough for a call per second.
func (p *Pool) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.countLocked()
}

func (p *Pool) countLocked() Stats {
	s := Stats{
		Open:       p.open,
		Idle:       len(p.idle),
		Lent:       p.lent(),
		Dialing:    p.dialing,
		Waiting:    p.queue.Len(),
		Dials:      p.dials,
		DialErrors: p.dialErrors,
		Lost:       p.lostLinks,
		Switches:   p.switches,
		Retries:    p.retries.Load(),
		PushesLost: p.pushes.dropped.Load(),
	}
	for _, c := range p.sharedConns {
		if c.ready() != nil {
			s.Shared++
		}
	}
	for l := range p.links {
		s.InFlight += l.Outstanding()
	}
	return s
}

// DB returns the database number of the Pool.
func (p *Pool) DB() int { return p.cfg.DB }

// Target identifies the Pool's data by network, address and database number: Pools with the same Target use the same
// data. With Config.Sentinel, the master's name and the sentinels' addresses replace the address. Target returns ""
// if Config.Dial is set, since the function alone decides where connections lead.
func (p *Pool) Target() string {
	if p.cfg.Dial != nil {
		return ""
	}
	addr := p.cfg.Addr
	if s := &p.cfg.Sentinel; s.used() {
		addr = s.Master + "@" + strings.Join(slices.Sorted(slices.Values(s.Addrs)), ",")
	}
	return p.cfg.Network + " " + addr + "/" + strconv.Itoa(p.cfg.DB)
}
