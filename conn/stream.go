package conn

import (
	"context"
	"sync"
	"time"

	"github.com/lockwire/lockwire/conn/internal/pipeline"
	"github.com/lockwire/lockwire/internal/netfail"
	"github.com/lockwire/lockwire/resp"
)

// Stream is one connection for pub/sub, MONITOR and similar protocols: it does not match replies to commands. A
// Stream has no goroutine and never sends anything by itself, not even a PING. One goroutine at a time may call Read; many goroutines
// may call the other methods at once.
type Stream struct {
	// Constant after DialStream.
	session *pipeline.Session // its Reader and Pushes are owned by Read
	timeout time.Duration
	onEnd   func() // called after closing; may be nil

	writing chan struct{} // holds a token while a Write is active

	mu  sync.Mutex // guards the following
	err error      // reason of closing
}

// DialStream dials a connection, in one attempt, bounded as in Dial. The Stream uses the fields of cfg for dialing,
// Limits, and Timeout, which bounds each write. The caller closes the Stream.
func DialStream(ctx context.Context, cfg Config) (*Stream, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	s, err := dialServer(ctx, &cfg)
	if err != nil {
		return nil, err
	}
	return newStream(s, &cfg), nil
}

func newStream(s *pipeline.Session, cfg *Config) *Stream {
	return &Stream{session: s, timeout: cfg.Timeout, writing: make(chan struct{}, 1)}
}

// Protocol returns the RESP version of the connection, 2 or 3.
func (s *Stream) Protocol() int { return s.session.Proto }

// Addr returns the dialed address.
func (s *Stream) Addr() string { return s.session.Addr }

// Read returns the next value: a push, a reply, or an error reply, which is a value here. Read blocks until a value
// arrives or the connection is closed. To detect a dead peer, send a PING and close the Stream if no value arrives.
//
// Every error closes the connection and is final. The error is an *Error with the cause, which is ErrClosed after
// Close.
func (s *Stream) Read() (resp.Value, error) {
	if early := s.session.Pushes; len(early) > 0 {
		s.session.Pushes = early[1:]
		return early[0], nil
	}
	v, err := s.session.Reader.Read()
	if err != nil {
		return resp.Value{}, &Error{Op: "read", Addr: s.Addr(), Sent: true, Err: s.fail(err)}
	}
	return v, nil
}

// Write sends the commands in one write, without commands of other callers in between. Write waits for other writers
// until ctx ends, and for the network until ctx or Config.Timeout ends, whichever is first. Only the values returned
// by Read tell whether a command had an effect.
//
// If a command cannot be encoded, or ctx ends before the write begins, the error is ErrNotSent and the Stream stays
// usable. If the write fails, part of a command may have been sent; the connection is closed, and Read returns the
// same cause.
func (s *Stream) Write(ctx context.Context, cmds ...resp.Command) error {
	var b []byte
	for _, cmd := range cmds {
		if err := cmd.Err(); err != nil {
			return s.notSent(err)
		}
		b = cmd.AppendTo(b)
	}
	if len(b) == 0 {
		return nil
	}
	if ctx.Err() != nil {
		return s.notSent(netfail.Ended(ctx))
	}
	select {
	case s.writing <- struct{}{}:
	case <-ctx.Done():
		return s.notSent(netfail.Ended(ctx))
	}
	defer func() { <-s.writing }()
	if err := s.Err(); err != nil {
		return s.notSent(err)
	}
	return s.write(ctx, b)
}

// write must be called by one goroutine at a time.
func (s *Stream) write(ctx context.Context, b []byte) error {
	var limit time.Time
	if s.timeout > 0 {
		limit = time.Now().Add(s.timeout)
	}
	// Set before each write, since the previous write may have left a past deadline.
	if err := s.session.Conn.SetWriteDeadline(limit); err != nil {
		return s.notSent(s.fail(err))
	}
	stop := netfail.OnEnd(ctx, func() { _ = s.session.Conn.SetWriteDeadline(time.Unix(1, 0)) })
	n, err := s.session.Conn.Write(b)
	if stop() && err != nil {
		err = netfail.Ended(ctx)
	}
	if err != nil {
		return &Error{Op: "write", Addr: s.Addr(), Sent: n > 0, Err: s.fail(err)}
	}
	return nil
}

func (s *Stream) notSent(err error) error { return &Error{Op: "write", Addr: s.Addr(), Err: err} }

// Close closes the connection and ends a blocked Read or Write. Close does not block. A second Close does nothing.
func (s *Stream) Close() error { return s.CloseFor(ErrClosed) }

// CloseFor is like Close, with a cause other than ErrClosed: for a Stream that ends without a Close by its user.
func (s *Stream) CloseFor(cause error) error {
	_ = s.fail(cause)
	return nil
}

// Err returns the reason why the connection was closed, ErrClosed after Close, and nil while the connection is open
// as far as known.
func (s *Stream) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// fail closes the connection and returns the cause given by the first call.
func (s *Stream) fail(err error) error {
	s.mu.Lock()
	first := s.err == nil
	if first {
		s.err = err
	}
	err = s.err
	s.mu.Unlock()
	if first {
		s.session.HangUp()
		if s.onEnd != nil {
			s.onEnd()
		}
	}
	return err
}
