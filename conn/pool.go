package conn

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockwire/lockwire/conn/internal/pipeline"
	"github.com/lockwire/lockwire/conn/internal/sentinel"
	"github.com/lockwire/lockwire/internal/callback"
	"github.com/lockwire/lockwire/resp"
)

// dialsAtOnce limits the concurrent dials of a Pool.
const dialsAtOnce = 2

// openAttempts is the default number of attempts of Open without sentinels. With sentinels an election may be in
// progress, and the budget alone limits Open.
const openAttempts = 4

// errRetired is the reason for closing a connection that the Pool no longer needs.
var errRetired = errors.New("conn: connection retired by its pool")

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
	// Constant after Open.
	cfg         Config
	sharedConns []*sharedConn
	pushes      *pushes
	dialTokens  chan struct{} // holds a token per dial in progress
	closing     chan struct{} // closed when Close begins

	wg      sync.WaitGroup // counts all goroutines
	retries atomic.Uint64
	losses  callback.List

	resolver *sentinel.Resolver // nil without sentinels; constant after Open

	mu           sync.Mutex // guards the following, and the fields so marked of sharedConn and member
	closed       bool
	cause        error                           // reason of closing, set once, before closing is closed
	links        map[*pipeline.Link]bool         // all links that have not failed; true if the server takes names
	pendingDials map[pipeline.Owner]*pendingDial // the dials in progress
	knownMaster
	health
	lending
}

// health is the record of the Pool's dials. After a failed dial, all dials wait until notBefore.
type health struct {
	failures  int       // failed dials in a row
	notBefore time.Time // earliest time of the next dial
	lastErr   error     // the cause of the last dial that failed
	lastAt    time.Time

	dials, dialErrors, lostLinks uint64
}

// underway is a dial in progress, or waiting for its turn.
type pendingDial struct {
	cancel context.CancelFunc
	dialState
}

// attempt is one dial of a shared connection, for all callers that wait for it.
type attempt struct {
	done    chan struct{}  // closed when the dial has ended
	waiting int            // number of waiting callers; guarded by the Pool's mu
	link    *pipeline.Link // constant after done is closed, like err
	err     error
}

// Open returns a Pool for the server at cfg.Addr, or for the master named by cfg.Sentinel. Open dials one connection,
// within the limits of ctx and cfg.Retry, and so reports a wrong address or password at once.
func Open(ctx context.Context, cfg Config) (*Pool, error) {
	p, err := New(cfg)
	if err != nil {
		return nil, err
	}
	policy := p.cfg.Retry
	if policy.Attempts == 0 && p.resolver == nil {
		policy.Attempts = openAttempts
	}
	a := attempts{policy: &policy}
	for {
		_, err := p.sharedConns[0].get(ctx, nil)
		if err == nil {
			return p, nil
		}
		if err := p.retryOrFail(ctx, &a, p.sharedConns[0], nil, request{}, err); err != nil {
			_ = p.Close()
			return nil, err
		}
	}
}

// New is like Open, but does not dial: the Pool connects on first use. New only returns errors about cfg.
func New(cfg Config) (*Pool, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	p := &Pool{
		cfg:          cfg,
		dialTokens:   make(chan struct{}, dialsAtOnce),
		closing:      make(chan struct{}),
		links:        make(map[*pipeline.Link]bool),
		pendingDials: make(map[pipeline.Owner]*pendingDial),
	}
	if cfg.Sentinel.used() {
		p.cfg.Addr = cfg.Sentinel.Master // the address in errors without a connection
		p.resolver = newResolver(&p.cfg, p.switched)
	}
	p.cfg.titles = new(titles)
	p.pushes = newPushes(cfg.OnPush, &p.wg)
	for range cfg.Conns {
		p.sharedConns = append(p.sharedConns, &sharedConn{p: p})
	}
	return p, nil
}

// Do sends a command, given as name and arguments, and returns the reply. Arguments are strings, []byte, bools,
// integers and floats, as for resp.Cmd; Do keeps none of them. An error reply is returned as a resp.Error; a null
// reply is a value.
func (p *Pool) Do(ctx context.Context, args ...any) (resp.Value, error) {
	var buf [512]byte
	q, x, r, err := encode(buf[:0], args)
	if err == nil {
		err = r.refuse(shared)
	}
	if err != nil {
		return resp.Value{}, refusal(p.cfg.Addr, q, err)
	}
	return p.send(ctx, p.sharedFor("", false), q, x)
}

// Send sends one command and returns its reply, like Do. The routing key of cmd, if any, selects the shared
// connection.
func (p *Pool) Send(ctx context.Context, cmd resp.Command) (resp.Value, error) {
	err, r := cmd.Err(), plain
	if err == nil {
		r = ruleOfCommand(&cmd)
		err = r.refuse(shared)
	}
	if err != nil {
		return resp.Value{}, refusal(p.cfg.Addr, request{Commands: []resp.Command{cmd}}, err)
	}
	return p.send(ctx, p.sharedFor(cmd.Key()), request{Commands: []resp.Command{cmd}}, wholeText(&cmd, r))
}

// SendBatch sends commands over one connection, in order and without commands of other callers in between, and
// returns the replies in the same order. The routing key of the first command selects the connection. Error replies
// are values.
//
// SendBatch repeats commands at the end of the batch that the server did not execute, within the limits of
// Config.Retry, and never changes the order. A refused command before an executed command is not repeated; the
// refusal is its reply. If the connection fails, SendBatch returns the error and the known replies of the first
// commands.
//
// A batch that ends in WAIT or WAITAOF borrows an exclusive connection, like With. SendBatch then repeats the batch
// as a whole, and only if the server executed none of the commands before the WAIT. A batch whose answer would come too
// late may not be sent at all: see [Leaves].
func (p *Pool) SendBatch(ctx context.Context, cmds []resp.Command) ([]resp.Value, error) {
	if len(cmds) == 0 {
		return nil, nil
	}
	if i, err := refuseAny(cmds, sharedBatch); err != nil {
		return nil, refusal(p.cfg.Addr, request{Commands: cmds[i:]}, err)
	}
	if endsInWait(cmds) {
		return p.sendAcked(ctx, cmds)
	}
	ctx, traced := p.cfg.Trace.enter(ctx, request{Commands: cmds})
	values, err := p.sendBatch(ctx, p.sharedFor(cmds[0].Key()), cmds, traced)
	traced.done(ctx, err)
	return values, err
}

// sharedFor returns the shared connection for a routing key: always the same connection for the same key, and a
// random connection without a key.
func (p *Pool) sharedFor(key string, keyed bool) *sharedConn {
	n := uint32(len(p.sharedConns))
	switch {
	case n == 1:
		return p.sharedConns[0]
	case keyed:
		return p.sharedConns[hash(key)%n]
	}
	return p.sharedConns[rand.Uint32N(n)]
}

// hash returns the 32-bit FNV-1a hash of key.
func hash(key string) uint32 {
	h := uint32(2166136261)
	for i := range len(key) {
		h = (h ^ uint32(key[i])) * 16777619
	}
	return h
}

// Stream opens a separate connection for protocols without one reply per command, such as subscriptions and MONITOR.
// The connection does not count for the Pool's statistics and limits. Stream dials once. The caller closes the
// Stream; closing the Pool does not.
func (p *Pool) Stream(ctx context.Context) (*Stream, error) {
	p.mu.Lock()
	closed := p.closed
	p.mu.Unlock()
	if closed {
		return nil, &Error{Op: "dial", Addr: p.cfg.Addr, Err: p.cause}
	}
	begin := time.Now()
	s, err := p.connect(ctx)
	p.cfg.Trace.dial(begin, p.dialAddr(s, err), true, protocol(s), err)
	if err != nil {
		return nil, err
	}
	return p.enlist(newStream(s, &p.cfg))
}

// Replicated reports whether replicas may take the server's place, which is the case with Config.Sentinel.
func (p *Pool) Replicated() bool { return p.resolver != nil }

// Close closes all connections. Calls that wait for a connection, a reply or the next attempt fail with ErrClosed.
// Close returns after all goroutines of the Pool have ended, but does not wait for functions given to With. Close may
// be called more than once. A callback in Config must not call Close, which waits for callbacks.
func (p *Pool) Close() error { return p.CloseFor(ErrClosed) }

// CloseFor is like Close, with a cause other than ErrClosed: for a Pool that ends without a Close by its user, for
// example when the server has left a cluster. The first cause stays.
func (p *Pool) CloseFor(cause error) error {
	p.mu.Lock()
	if !p.closed {
		p.closed, p.cause = true, cause
		close(p.closing)
	}
	for _, d := range p.pendingDials {
		d.cancel()
	}
	p.refuseBorrowersLocked(p.cause)
	stop := p.unfollow
	links := make([]*pipeline.Link, 0, len(p.links))
	for l := range p.links {
		links = append(links, l)
	}
	cause = p.cause
	p.mu.Unlock()
	if stop != nil {
		stop()
	}
	for _, l := range links {
		l.Fail(cause)
	}
	p.pushes.close()
	p.wg.Wait()
	return nil
}

// dial makes a link for an owner, in a goroutine counted by p.wg. It waits for its turn and, after failed dials, for
// the backoff. It returns nil and no error if wanted, called with mu held, then reports that no caller needs the link
// any more.
func (p *Pool) dial(o pipeline.Owner, exclusive bool, wanted func() bool) (*pipeline.Link, error) {
	d := &pendingDial{}
	ctx, cancel := context.WithCancel(context.WithValue(context.Background(), dialStateKey{}, &d.dialState))
	defer cancel()
	d.cancel = cancel
	p.mu.Lock()
	p.pendingDials[o] = d
	closed := p.closed
	p.mu.Unlock()
	if closed {
		return nil, p.cause
	}
	s, err := p.dialInTurn(ctx, exclusive, wanted)
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.pendingDials, o)
	switch {
	case p.closed:
		if s != nil {
			s.HangUp()
		}
		return nil, p.cause
	case s == nil:
		return nil, err
	case p.outdatedLocked(s.Addr):
		s.HangUp()
		return nil, &Error{Op: "dial", Addr: s.Addr, Err: sentinel.ErrSwitched}
	}
	l := pipeline.New(s, p.cfg.link(!exclusive), o, &p.wg)
	p.links[l] = s.Named
	if !exclusive && p.name() != s.Name { // changed since the handshake
		p.renameLocked(l)
	}
	return l, nil
}

// dialInTurn returns a session, or nil if no caller needs one any more.
func (p *Pool) dialInTurn(ctx context.Context, exclusive bool, wanted func() bool) (*pipeline.Session, error) {
	select {
	case p.dialTokens <- struct{}{}:
		defer func() { <-p.dialTokens }()
	case <-ctx.Done():
		return nil, p.cause
	}
	p.mu.Lock()
	pause, switched := time.Until(p.notBefore), p.changed
	p.mu.Unlock()
	if pause > 0 && sentinel.Await(ctx, switched, pause) != nil && ctx.Err() != nil {
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
	p.noteDial(begin, exclusive, s, err)
	return s, err
}

// noteDial records the outcome of a dial and reports it to Trace and Logger.
func (p *Pool) noteDial(begin time.Time, exclusive bool, s *pipeline.Session, err error) {
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
	p.cfg.Trace.dial(begin, p.dialAddr(s, err), exclusive, protocol(s), err)
	switch {
	case err != nil && before == 0:
		warn(&p.cfg, "server not reachable", "error", err)
	case err == nil && before > 0:
		warn(&p.cfg, "server reachable again", "dials", before+1)
	}
}

// reportLocked reports a failed link. The callbacks run in a goroutine of their own because the caller may be
// readLoop.
func (p *Pool) reportLocked(l *pipeline.Link, exclusive bool, outstanding int, err error) {
	if p.closed || onPurpose(err) {
		return
	}
	p.lostLinks++
	p.losses.Call()
	info := LostInfo{Addr: l.Addr, Exclusive: exclusive, Age: time.Since(l.Start), InFlight: outstanding, Err: err}
	p.wg.Go(func() { report(&p.cfg, info) })
}

// onPurpose reports whether this program closed a link that failed with err.
func onPurpose(err error) bool {
	return errors.Is(err, ErrClosed) || errors.Is(err, errRetired) || errors.Is(err, sentinel.ErrSwitched)
}

// report calls the callbacks for a failed link.
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

// waitErrorLocked returns the error for a caller whose ctx ended while waiting for a connection.
func (p *Pool) waitErrorLocked(ctx context.Context) error {
	n := p.countLocked()
	text := fmt.Sprintf("waiting for a connection (%d shared; exclusive: %d open, %d idle, %d lent, %d being dialled, "+
		"%d waiting)", n.Shared, n.Open, n.Idle, n.Lent, n.Dialing, n.Waiting)
	for _, d := range p.pendingDials {
		text += "; a dial under way: " + d.String()
	}
	if p.failures == 0 || p.lastErr == nil {
		return fmt.Errorf("%s: %w", text, ended(ctx))
	}
	ago := time.Since(p.lastAt).Round(time.Millisecond)
	return fmt.Errorf("%s: %w; last dial, %v ago: %w", text, ended(ctx), ago, p.lastErr)
}

// OnLoss registers fn to be called each time that the Pool loses a connection or turns to another master, until stop
// is called. After a loss the server may have restarted or been replaced. fn must not block and must not use the
// Pool.
func (p *Pool) OnLoss(fn func()) (stop func()) { return p.losses.Add(fn) }
