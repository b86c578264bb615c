package conn

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockwire/lockwire/internal/callback"
	"github.com/lockwire/lockwire/resp"
)

// dialsAtOnce is how many dials of one Pool are in progress at most.
const dialsAtOnce = 2

// openAttempts is how often Open tries by default, unless there are sentinels, which may be electing a master.
const openAttempts = 4

// errRetired is why links end that the Pool has no more use for.
var errRetired = errors.New("conn: connection given up by its pool")

// Pool is a client of one server, or of whichever server sentinels say is the master: connections shared by all callers, and exclusive ones lent to one caller at a time.
// It is safe for use by many goroutines at once. Connections are opened when they are needed and replaced when they
// fail. Close it when it is no longer needed.
//
// What certainly did not run is repeated within the limits of Config.Retry, and nothing else: an error for which
// errors.Is finds ErrUncertain says that a command may have run.
//
// A ctx bounds how long a call waits, and does not undo what was sent. A caller that leaves does no harm to others on
// the same connection. On shared connections a command that would block, or that changes the state of its connection,
// is refused with an error that says what to use instead.
type Pool struct {
	// Constant after Open.
	cfg     Config
	slots   []*slot
	pushes  *pushes
	turns   chan struct{} // one for each dial in progress
	closing chan struct{} // closed when Close begins

	wg      sync.WaitGroup // joins all goroutines
	retries atomic.Uint64
	losses  callback.List

	finder *finder // of the server, by sentinels; constant after Open, nil if Config.Addr says where it is

	mu       sync.Mutex // guards the following, and what slots and members say it does
	closed   bool
	cause    error               // why it is closed, set once and before closing is closed
	links    map[*link]struct{}  // all that have not failed
	dialling map[owner]*underway // the dials in progress
	target
	health
	lending
}

// health is what the Pool knows of the server by its dials. It makes all dials wait after one that has failed.
type health struct {
	failures  int       // dials in a row
	notBefore time.Time // the next dial
	lastErr   error     // the cause of the last dial that failed
	lastAt    time.Time

	dials, dialErrors, lostLinks uint64
}

// underway is a dial that is made, or waits for its turn.
type underway struct {
	cancel context.CancelFunc
	dialState
}

// attempt is what those share who wait for the same dial.
type attempt struct {
	done    chan struct{} // closed when it has ended
	waiting int           // callers; guarded by the Pool's mu
	link    *link         // constant when done is closed, as is err
	err     error
}

// Open returns a Pool on the server at cfg.Addr, or the one that the sentinels in cfg name. It dials one connection within the limits of ctx and cfg.Retry, so
// that a wrong address or password shows at once.
func Open(ctx context.Context, cfg Config) (*Pool, error) {
	p, err := New(cfg)
	if err != nil {
		return nil, err
	}
	policy := p.cfg.Retry
	if policy.Attempts == 0 && p.finder == nil {
		policy.Attempts = openAttempts
	}
	a := attempts{policy: &policy}
	for {
		_, err := p.slots[0].get(ctx, nil)
		if err == nil {
			return p, nil
		}
		if err := p.persist(ctx, &a, p.slots[0], nil, request{}, err); err != nil {
			_ = p.Close()
			return nil, err
		}
	}
}

// New is Open without the dial: the Pool connects when it is first used. Its errors are those of cfg.
func New(cfg Config) (*Pool, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	p := &Pool{
		cfg:      cfg,
		turns:    make(chan struct{}, dialsAtOnce),
		closing:  make(chan struct{}),
		links:    make(map[*link]struct{}),
		dialling: make(map[owner]*underway),
	}
	if cfg.Sentinel.used() {
		p.cfg.Addr = cfg.Sentinel.Master // for errors where there is no connection
		p.finder = newFinder(&p.cfg, p.switched)
	}
	p.pushes = newPushes(cfg.OnPush, &p.wg)
	for range cfg.Conns {
		p.slots = append(p.slots, &slot{p: p})
	}
	return p, nil
}

// Do sends a command, given as its name and arguments, and returns its reply. Arguments are strings, []byte, bools,
// integers and floats, as for resp.Cmd; none is kept. An error reply is returned as an error, a resp.Error; a null is
// a value.
func (p *Pool) Do(ctx context.Context, args ...any) (resp.Value, error) {
	var buf [512]byte
	b, err := resp.AppendCommand(buf[:0], args...)
	if err == nil {
		err = ruleOfEncoded(b).refuse(shared)
	}
	if err != nil {
		return resp.Value{}, refusal(p.cfg.Addr, request{encoded: b}, err)
	}
	return p.send(ctx, p.slotFor("", false), request{encoded: b})
}

// Send sends one command and returns its reply, as Do does. The connection is chosen by the routing key of cmd, if it
// has one.
func (p *Pool) Send(ctx context.Context, cmd resp.Command) (resp.Value, error) {
	err := cmd.Err()
	if err == nil {
		err = ruleOfCommand(&cmd).refuse(shared)
	}
	if err != nil {
		return resp.Value{}, refusal(p.cfg.Addr, request{cmds: []resp.Command{cmd}}, err)
	}
	return p.send(ctx, p.slotFor(cmd.Key()), request{cmds: []resp.Command{cmd}})
}

// SendBatch sends commands over one connection, next to each other and in order, and returns their replies in the same
// order. The connection is chosen by the routing key of the first. Error replies are values.
//
// A batch that ends in WAIT or WAITAOF takes an exclusive connection for its length, as With does. What such a WAIT counts is
// who has the commands in front of it: they are repeated together, if none of them was executed, or not at all.
//
// The order is never changed. Otherwise commands at the end of the batch that the server has not executed, by their replies, are
// repeated within the limits of Config.Retry. A refused command with an executed one behind it is not: its refusal is its
// reply, and the caller decides. With an error, the replies are those of the first commands whose outcome is known.
func (p *Pool) SendBatch(ctx context.Context, cmds []resp.Command) ([]resp.Value, error) {
	if len(cmds) == 0 {
		return nil, nil
	}
	if i, err := refuseAny(cmds, sharedBatch); err != nil {
		return nil, refusal(p.cfg.Addr, request{cmds: cmds[i:]}, err)
	}
	if waits(cmds) {
		return p.sendAcked(ctx, cmds)
	}
	start := p.cfg.Trace.begin()
	values, err := p.sendBatch(ctx, p.slotFor(cmds[0].Key()), cmds)
	p.cfg.Trace.command(start, p.cfg.Addr, request{cmds: cmds}, err)
	return values, err
}

// slotFor returns the shared connection for a command: always the same for a key, any without.
func (p *Pool) slotFor(key string, keyed bool) *slot {
	n := uint32(len(p.slots))
	switch {
	case n == 1:
		return p.slots[0]
	case keyed:
		return p.slots[hash(key)%n]
	}
	return p.slots[rand.Uint32N(n)]
}

// hash is FNV-1a.
func hash(key string) uint32 {
	h := uint32(2166136261)
	for i := range len(key) {
		h = (h ^ uint32(key[i])) * 16777619
	}
	return h
}

// Stream opens a connection of its own, outside of the Pool's counts and limits, for what is not one reply to one
// command: subscriptions, MONITOR. The caller closes it; Close of the Pool does not. It dials once.
func (p *Pool) Stream(ctx context.Context) (*Stream, error) {
	p.mu.Lock()
	closed := p.closed
	p.mu.Unlock()
	if closed {
		return nil, &Error{Op: "dial", Addr: p.cfg.Addr, Err: p.cause}
	}
	begin := time.Now()
	s, err := p.connect(ctx)
	p.cfg.Trace.dial(begin, p.dialled(s, err), true, s.protocol(), err)
	if err != nil {
		return nil, err
	}
	return p.enlist(newStream(s, &p.cfg))
}

// Replicated reports whether the server may have replicas that take its place: whether sentinels say where it is.
func (p *Pool) Replicated() bool { return p.finder != nil }

// Close closes all connections. Calls that wait, for a connection, a reply or the next attempt, fail with ErrClosed.
// When it returns, no goroutine of the Pool runs any more. It may be called more than once, but not by a callback in
// Config, as it waits for these; it does not wait for the functions given to With.
func (p *Pool) Close() error { return p.CloseFor(ErrClosed) }

// CloseFor is Close with another cause than ErrClosed, for a Pool that ends although its user has not closed it: its server
// has left a cluster, for example. A Pool that is closed already keeps its cause.
func (p *Pool) CloseFor(cause error) error {
	p.mu.Lock()
	if !p.closed {
		p.closed, p.cause = true, cause
		close(p.closing)
	}
	for _, d := range p.dialling {
		d.cancel()
	}
	p.refuseWaitersLocked(p.cause)
	stop := p.unfollow
	links := make([]*link, 0, len(p.links))
	for l := range p.links {
		links = append(links, l)
	}
	cause = p.cause
	p.mu.Unlock()
	if stop != nil {
		stop()
	}
	for _, l := range links {
		l.fail(cause)
	}
	p.pushes.close()
	p.wg.Wait()
	return nil
}

// dial makes a link for an owner, in a goroutine that p.wg joins. It waits for its turn and, after dials that failed,
// for the backoff to pass. It returns nil and no error if then nobody wants the link any more, which wanted tells
// under mu.
func (p *Pool) dial(o owner, exclusive bool, wanted func() bool) (*link, error) {
	d := &underway{}
	ctx, cancel := context.WithCancel(context.WithValue(context.Background(), dialStateKey{}, &d.dialState))
	defer cancel()
	d.cancel = cancel
	p.mu.Lock()
	p.dialling[o] = d
	closed := p.closed
	p.mu.Unlock()
	if closed {
		return nil, p.cause
	}
	s, err := p.dialInTurn(ctx, exclusive, wanted)
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.dialling, o)
	switch {
	case p.closed:
		if s != nil {
			_ = hangUp(s.nc)
		}
		return nil, p.cause
	case s == nil:
		return nil, err
	case p.outdatedLocked(s.addr):
		_ = hangUp(s.nc)
		return nil, &Error{Op: "dial", Addr: s.addr, Err: errSwitched}
	}
	l := newLink(s, &p.cfg, !exclusive, o, &p.wg)
	p.links[l] = struct{}{}
	return l, nil
}

// dialInTurn returns a session, or nil if it is not wanted any more.
func (p *Pool) dialInTurn(ctx context.Context, exclusive bool, wanted func() bool) (*session, error) {
	select {
	case p.turns <- struct{}{}:
		defer func() { <-p.turns }()
	case <-ctx.Done():
		return nil, p.cause
	}
	p.mu.Lock()
	pause, switched := time.Until(p.notBefore), p.changed
	p.mu.Unlock()
	if pause > 0 && await(ctx, switched, pause) != nil && ctx.Err() != nil {
		return nil, p.cause
	}
	p.mu.Lock()
	stop := !wanted()
	if !stop {
		p.dials++
	}
	p.mu.Unlock()
	if stop {
		return nil, nil
	}
	begin := time.Now()
	s, err := p.connect(ctx)
	p.dialed(begin, exclusive, s, err)
	return s, err
}

// dialed takes note of the outcome of a dial, and tells of it.
func (p *Pool) dialed(begin time.Time, exclusive bool, s *session, err error) {
	now := time.Now()
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return
	}
	before := p.failures
	if err != nil {
		p.dialErrors++
		p.lastErr, p.lastAt = errors.Unwrap(err), now
		p.notBefore = now.Add(p.cfg.Retry.dialPause(p.failures))
		p.failures++
	} else {
		p.failures = 0
	}
	p.mu.Unlock()
	p.cfg.Trace.dial(begin, p.dialled(s, err), exclusive, s.protocol(), err)
	switch {
	case err != nil && before == 0:
		warn(&p.cfg, "server not reachable", "error", err)
	case err == nil && before > 0:
		warn(&p.cfg, "server reachable again", "dials", before+1)
	}
}

// reportLocked tells of a link that has failed, in a goroutine of its own as the caller may be readLoop.
func (p *Pool) reportLocked(l *link, exclusive bool, outstanding int, err error) {
	if p.closed || onPurpose(err) {
		return
	}
	p.lostLinks++
	p.losses.Call()
	info := LostInfo{Addr: l.addr, Exclusive: exclusive, Age: time.Since(l.start), InFlight: outstanding, Err: err}
	p.wg.Go(func() { report(&p.cfg, info) })
}

// onPurpose reports whether a link that failed with err was closed by this program.
func onPurpose(err error) bool {
	return errors.Is(err, ErrClosed) || errors.Is(err, errRetired) || errors.Is(err, errSwitched)
}

// report tells the callbacks of a link that has failed.
func report(cfg *Config, info LostInfo) {
	if cfg.Trace != nil && cfg.Trace.Lost != nil {
		cfg.Trace.Lost(info)
	}
	warn(cfg, "connection lost", "error", info.Err, "unanswered", info.InFlight)
}

// warn logs a change of state.
func warn(cfg *Config, text string, args ...any) {
	if cfg.Logger != nil {
		cfg.Logger.Warn("conn: "+text, append([]any{"addr", cfg.Addr}, args...)...)
	}
}

// waitErrorLocked returns the error of a caller whose ctx ended while it waited for a connection.
func (p *Pool) waitErrorLocked(ctx context.Context) error {
	n := p.countLocked()
	text := fmt.Sprintf("waiting for a connection (%d shared; exclusive: %d open, %d idle, %d lent, %d being dialled, "+
		"%d waiting)", n.Shared, n.Open, n.Idle, n.Lent, n.Dialing, n.Waiting)
	for _, d := range p.dialling {
		text += "; a dial under way: " + d.String()
	}
	if p.failures == 0 || p.lastErr == nil {
		return fmt.Errorf("%s: %w", text, ended(ctx))
	}
	ago := time.Since(p.lastAt).Round(time.Millisecond)
	return fmt.Errorf("%s: %w; last dial, %v ago: %w", text, ended(ctx), ago, p.lastErr)
}

// OnLoss has fn called each time that the Pool loses a connection, or turns to another server, until stop is called: the server
// may have been restarted, or replaced, since it was last heard of. fn must not block and must not use the Pool.
func (p *Pool) OnLoss(fn func()) (stop func()) { return p.losses.Add(fn) }
