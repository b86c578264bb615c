package conn

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockwire/lockwire/conn/internal/pipeline"
	"github.com/lockwire/lockwire/internal/netfail"
)

// dial connects and completes the handshake, within ctx and DialTimeout. It connects again only for another variant of
// the handshake. cfg must be valid and have its defaults. If master is set, the server must report the role of a master.
// After dial returns, no goroutine of dial uses the connection.
func dial(ctx context.Context, cfg *Config, master bool) (*pipeline.Session, error) {
	if cfg.DialTimeout > 0 {
		cause := fmt.Errorf("not done within %v (DialTimeout): %w", cfg.DialTimeout, context.DeadlineExceeded)
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, cfg.DialTimeout, cause)
		defer cancel()
	}
	stop := cfg.whileDialing()
	defer stop()
	d := dialRun{cfg: cfg, master: master, variant: variant{hello: cfg.Protocol != 2, identity: !cfg.NoIdentity}}
	if d.dialState, _ = ctx.Value(dialStateKey{}).(*dialState); d.dialState == nil {
		d.dialState = &dialState{}
	}
	s, err := d.run(ctx)
	if err != nil {
		return nil, &Error{Op: "dial", Addr: cfg.Addr, Err: fmt.Errorf("%s: %w", d.at.Load().phase, err)}
	}
	return s, nil
}

// dialRun is the state of one dial.
type dialRun struct {
	cfg            *Config
	master         bool // require the role of a master
	answered       bool // the server has replied to a command, though the handshake failed
	user, password string
	variant
	*dialState
}

// variant selects the commands of a handshake.
type variant struct {
	hello    bool // try HELLO 3 first
	identity bool // send CLIENT SETINFO and ClientName
}

// dialStateKey is the context key of a dial's *dialState.
type dialStateKey struct{}

// dialState is the current step of a dial, for its error and for those of waiting callers.
type dialState struct{ at atomic.Pointer[stage] }

type stage struct {
	phase string
	addr  string
	since time.Time
}

// enter records the current step of the dial.
func (d *dialRun) enter(phase string) {
	d.at.Store(&stage{phase, d.cfg.Addr, time.Now()})
}

// String describes the current step and its duration.
func (p *dialState) String() string {
	s := p.at.Load()
	if s == nil {
		return "not begun"
	}
	text := fmt.Sprintf("%s of %s for %v", s.phase, s.addr, time.Since(s.since).Round(time.Millisecond))
	if s.phase == tlsHandshake {
		text += " (the server may not expect TLS)"
	}
	return text
}

const tlsHandshake = "TLS handshake"

func (d *dialRun) run(ctx context.Context) (*pipeline.Session, error) {
	d.enter("credentials")
	d.user, d.password = d.cfg.Username, d.cfg.Password
	if d.cfg.Credentials != nil {
		var err error
		if d.user, d.password, err = d.cfg.Credentials(ctx); err != nil {
			return nil, orEnded(ctx, err)
		}
	}
	d.user = cmp.Or(d.user, "default")
	before := d.variant
	s, err := d.attempt(ctx)
	if d.variant != before && mayRetry(ctx, err) {
		s, err = d.attempt(ctx)
	}
	if d.cfg.TLS == nil && !d.answered && mayRetry(ctx, err) && d.expectsTLS(ctx) {
		err = fmt.Errorf("%w: %w", netfail.ErrExpectsTLS, err)
	}
	return s, err
}

// mayRetry reports whether the server has closed the connection of an attempt between two replies, and time is left.
func mayRetry(ctx context.Context, err error) bool {
	return ctx.Err() == nil && (errors.Is(err, io.EOF) || errors.Is(err, io.ErrClosedPipe) || isReset(err))
}

// attempt makes one connection. If the handshake fails, attempt sets d.variant to the variant that is left to try.
func (d *dialRun) attempt(ctx context.Context) (*pipeline.Session, error) {
	d.enter("connect")
	nc, err := d.connect(ctx)
	if err != nil {
		return nil, orEnded(ctx, err)
	}
	// Close, unlike a deadline, works with every net.Conn, and leaves nothing behind that a Link would have to undo.
	stop := netfail.OnEnd(ctx, func() { _ = nc.Close() })
	s, err := d.open(ctx, nc)
	if stop() {
		return nil, d.hint(netfail.Ended(ctx))
	}
	if err != nil {
		_ = nc.Close()
		return nil, d.hint(orEnded(ctx, err)) // the TLS handshake may end with ctx before stop is called
	}
	return s, nil
}

func isReset(err error) bool {
	return slices.ContainsFunc(hangUps, func(reason error) bool { return errors.Is(err, reason) })
}

func (d *dialRun) connect(ctx context.Context) (net.Conn, error) {
	cfg := d.cfg
	if cfg.Dial == nil {
		nd := net.Dialer{Control: cfg.control}
		return nd.DialContext(ctx, cfg.Network, cfg.Addr)
	}
	nc, err := cfg.Dial(ctx, cfg.Network, cfg.Addr)
	if err == nil && nc == nil {
		return nil, errors.New("Config.Dial returned neither a connection nor an error")
	}
	return nc, err
}

// open completes TLS and handshake on a new connection. After an error the caller closes nc.
func (d *dialRun) open(ctx context.Context, nc net.Conn) (*pipeline.Session, error) {
	raw := nc
	if d.cfg.TLS != nil {
		d.enter(tlsHandshake)
		t := d.cfg.TLS.Clone()
		if t.ServerName == "" {
			t.ServerName = d.cfg.serverName()
		}
		stop := d.whileTLS(ctx, nc)
		below := pipeline.NewBeneath(nc)
		tc, err := secure(ctx, below, t)
		if stop() {
			err = errPlain
		}
		if err != nil {
			return nil, err
		}
		nc, raw = tc, below
	}
	d.enter("handshake")
	s := pipeline.NewSession(nc, raw, d.cfg.Limits)
	h := handshake{dialRun: d, s: s}
	proto, err := h.negotiate()
	if err != nil {
		d.variant, d.answered = h.fallback(), d.answered || h.received > 0
		return nil, err
	}
	s.Addr, s.Proto, s.Named, s.Name = d.cfg.Addr, proto, h.identity, h.name
	return s, nil
}

// hint adds the likely cause to an error of the TLS handshake with a server that does not expect TLS.
func (d *dialRun) hint(err error) error {
	if d.at.Load().phase == tlsHandshake && (netfail.NotTLS(err) || errors.Is(err, context.DeadlineExceeded)) {
		return fmt.Errorf("%w (the server may not expect TLS)", err)
	}
	return err
}

// orEnded returns the cause of ctx if ctx has ended, and err otherwise. Package net may report a passed deadline
// shortly before ctx ends; orEnded then waits for ctx.
func orEnded(ctx context.Context, err error) error {
	if deadline, ok := ctx.Deadline(); ok && !time.Now().Before(deadline) {
		<-ctx.Done()
	}
	if ctx.Err() != nil {
		return netfail.Ended(ctx)
	}
	return err
}

// whileDialing calls OnSilent during a slow dial, until stop. stop waits for OnSilent to return.
func (cfg *Config) whileDialing() (stop func()) {
	if cfg.OnSilent == nil {
		return func() {}
	}
	return meanwhile(context.Background(), func(ctx context.Context) {
		for after := pipeline.SilentAfter; netfail.Sleep(ctx, after) == nil; after = pipeline.SilentPeriod {
			cfg.OnSilent(cfg.Addr)
		}
	})
}

// meanwhile runs fn in a goroutine. stop ends the ctx of fn, and waits for fn to return.
func meanwhile(ctx context.Context, fn func(ctx context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { fn(ctx) })
	return func() {
		cancel()
		wg.Wait()
	}
}
