package conn

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync/atomic"
	"time"

	"github.com/lockwire/lockwire/internal/netfail"
	"github.com/lockwire/lockwire/resp"
)

// session is a connection after its handshake, owned by whoever asked for it.
type session struct {
	nc     net.Conn
	r      *resp.Reader
	from   *source      // of r
	proto  int          // 2 or 3
	addr   string       // as in Config.Addr
	pushes []resp.Value // arrived during the handshake, to be delivered aside
}

// dial connects and leads the handshake, all under one limit: ctx and DialTimeout, whichever ends first. It tries
// once. cfg has its defaults and is valid. Nothing that dial started touches the connection once it has returned.
func dial(ctx context.Context, cfg *Config) (*session, error) { return dialRole(ctx, cfg, false) }

// dialRole is dial of a server that must say, if master is set, that it is one.
func dialRole(ctx context.Context, cfg *Config, master bool) (*session, error) {
	if cfg.DialTimeout > 0 {
		cause := fmt.Errorf("not done within %v (DialTimeout): %w", cfg.DialTimeout, context.DeadlineExceeded)
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, cfg.DialTimeout, cause)
		defer cancel()
	}
	stop := cfg.whileDialling()
	defer stop()
	d := dialing{cfg: cfg, master: master, manner: manner{hello: cfg.Protocol != 2, identity: !cfg.NoIdentity}}
	d.dialState, _ = ctx.Value(dialStateKey{}).(*dialState)
	s, err := d.run(ctx)
	if err != nil {
		return nil, &Error{Op: "dial", Addr: cfg.Addr, Err: fmt.Errorf("%s: %w", d.phase, err)}
	}
	return s, nil
}

// dialing is one run of dial.
type dialing struct {
	cfg            *Config
	master         bool   // the server must say that it is one
	phase          string // what is being done, for the error
	user, password string
	manner
	*dialState // nil: nobody wants to know
}

// manner is how a handshake is led.
type manner struct {
	hello    bool // by HELLO 3 at first
	identity bool // with the names of the client and this library
}

// dialStateKey is the key of a *dialState in the ctx of a dial.
type dialStateKey struct{}

// dialState is what a dial is doing, for those who wait for it.
type dialState struct{ at atomic.Pointer[stage] }

type stage struct {
	phase string
	addr  string
	since time.Time
}

// enter notes what the dial does from now on.
func (d *dialing) enter(phase string) {
	d.phase = phase
	if d.dialState != nil {
		d.at.Store(&stage{phase, d.cfg.Addr, time.Now()})
	}
}

// String says what is being done, and for how long.
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

func (d *dialing) run(ctx context.Context) (*session, error) {
	d.enter("credentials")
	if err := d.identify(ctx); err != nil {
		return nil, orEnded(ctx, err)
	}
	before := d.manner
	s, err := d.attempt(ctx)
	if err != nil && d.manner != before && ctx.Err() == nil && hungUp(err) {
		s, err = d.attempt(ctx)
	}
	return s, err
}

// attempt makes one connection. If the server hangs up during the handshake, the manner is the one to try next.
func (d *dialing) attempt(ctx context.Context) (*session, error) {
	d.enter("connect")
	nc, err := d.connect(ctx)
	if err != nil {
		return nil, orEnded(ctx, err)
	}
	// Closing is the one interruption that every net.Conn obeys, and it leaves no deadline behind.
	closed := make(chan struct{})
	release := context.AfterFunc(ctx, func() {
		defer close(closed)
		_ = nc.Close()
	})
	s, err := d.open(ctx, nc)
	if !release() {
		<-closed
		return nil, d.hint(ended(ctx))
	}
	if err != nil {
		_ = nc.Close()
		return nil, d.hint(err)
	}
	return s, nil
}

// hungUp reports whether the peer has closed the connection between two replies.
func hungUp(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrClosedPipe) || isReset(err)
}

func isReset(err error) bool {
	return slices.ContainsFunc(hangUps, func(reason error) bool { return errors.Is(err, reason) })
}

// identify asks for the credentials of this dial.
func (d *dialing) identify(ctx context.Context) (err error) {
	d.user, d.password = d.cfg.Username, d.cfg.Password
	if d.cfg.Credentials != nil {
		d.user, d.password, err = d.cfg.Credentials(ctx)
	}
	return err
}

func (d *dialing) connect(ctx context.Context) (net.Conn, error) {
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

// secured is a connection under TLS.
type secured interface {
	net.Conn
	HandshakeContext(ctx context.Context) error
}

// open makes a session of a bare connection. It does not close it.
func (d *dialing) open(ctx context.Context, nc net.Conn) (*session, error) {
	if d.cfg.TLS != nil {
		d.enter(tlsHandshake)
		t := d.cfg.TLS.Clone()
		if t.ServerName == "" {
			t.ServerName = d.cfg.serverName()
		}
		tc := tlsClient(nc, t)
		stop := d.whileTLS(ctx, nc)
		err := tc.HandshakeContext(ctx)
		if stop() {
			err = errPlain
		}
		if err != nil {
			return nil, err
		}
		nc = tc
	}
	d.enter("handshake")
	from := &source{nc: nc}
	h := handshake{
		nc:       nc,
		r:        resp.NewReader(from, d.cfg.Limits),
		cfg:      d.cfg,
		master:   d.master,
		user:     d.user,
		password: d.password,
		manner:   d.manner,
	}
	proto, err := h.run()
	if err != nil {
		d.manner = h.plainer()
		return nil, err
	}
	return &session{nc: nc, r: h.r, from: from, proto: proto, addr: d.cfg.Addr, pushes: h.pushes}, nil
}

// dialServer is dial, of the server that the sentinels name if cfg says to ask them.
func dialServer(ctx context.Context, cfg *Config) (*session, error) {
	if cfg.Sentinel.used() {
		return newFinder(cfg, nil).dial(ctx)
	}
	return dial(ctx, cfg)
}

// hint adds to an error of the TLS handshake its likely cause where that is a server that expects none.
func (d *dialing) hint(err error) error {
	if d.phase != tlsHandshake {
		return err
	}
	if netfail.NotTLS(err) || errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%w (the server may not expect TLS)", err)
	}
	return err
}

// orEnded returns why ctx is over if that is the reason of err, and else err. The net package may notice that the
// deadline of ctx has passed a moment before ctx itself does.
func orEnded(ctx context.Context, err error) error {
	if deadline, ok := ctx.Deadline(); ok && !time.Now().Before(deadline) {
		<-ctx.Done()
	}
	if ctx.Err() != nil {
		return ended(ctx)
	}
	return err
}

// hangUp closes nc at once. A TLS connection is closed below TLS: its farewell may wait for seconds on a peer that
// has stopped reading, and no server needs it.
func hangUp(nc net.Conn) error {
	return beneath(nc).Close()
}
