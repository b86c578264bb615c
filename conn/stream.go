package conn

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/lockwire/lockwire/resp"
)

// Stream is one connection after its handshake on which commands and what the server sends are not matched to each
// other: for pub/sub and the like. It has no goroutine and sends nothing of its own accord. One goroutine may call
// Read, and any number the other methods.
type Stream struct {
	// Constant after DialStream.
	nc      net.Conn
	r       *resp.Reader
	proto   int
	addr    string
	timeout time.Duration
	onEnd   func() // called once the connection is closed; may be nil

	early []resp.Value // of the handshake, owned by Read

	writing chan struct{} // holds one token while there is a writer

	mu  sync.Mutex // guards the following
	err error      // why the connection is no more
}

// DialStream dials a connection. It tries once, under ctx and cfg.DialTimeout. Of cfg only what concerns the dial
// matters, Limits, and Timeout, which bounds each write. The caller closes the Stream.
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

func newStream(s *session, cfg *Config) *Stream {
	return &Stream{
		nc:      s.nc,
		r:       s.r,
		proto:   s.proto,
		addr:    s.addr,
		timeout: cfg.Timeout,
		early:   s.pushes,
		writing: make(chan struct{}, 1),
	}
}

// Protocol returns the version of RESP that is spoken, 2 or 3.
func (s *Stream) Protocol() int { return s.proto }

// Addr returns the address that was dialled.
func (s *Stream) Addr() string { return s.addr }

// Read returns the next value, in order: a push, a reply, and an error reply too, which is a value here. It blocks
// until there is one or the Stream is closed, and bounds no wait: who needs to know whether the peer is alive sends
// a PING and closes the Stream if nothing comes. Every error is final and closes the connection; it is an *Error
// with the cause in it, which after Close is ErrClosed.
func (s *Stream) Read() (resp.Value, error) {
	if len(s.early) > 0 {
		v := s.early[0]
		s.early = s.early[1:]
		return v, nil
	}
	v, err := s.r.Read()
	if err != nil {
		return resp.Value{}, &Error{Op: "read", Addr: s.addr, Sent: true, Err: s.fail(err)}
	}
	return v, nil
}

// Write sends the commands, of which there may be none, in one write, so that no other comes between them. It waits for
// other writers under ctx, and for the network under ctx and Config.Timeout, whichever ends first. Whether a command
// had an effect only what Read returns can tell.
//
// A command that cannot be encoded, and a ctx that ends before the write begins, leave the Stream as it was: the
// error then is ErrNotSent. Where the write itself fails, the connection is closed, as part of a command may have
// left; Read then returns the same cause.
func (s *Stream) Write(ctx context.Context, cmds ...resp.Command) error {
	size := 0
	for _, cmd := range cmds {
		if err := cmd.Err(); err != nil {
			return s.notSent(err)
		}
		size += cmd.Size()
	}
	if size == 0 {
		return nil
	}
	b := make([]byte, 0, size)
	for _, cmd := range cmds {
		b = cmd.AppendTo(b)
	}
	if ctx.Err() != nil {
		return s.notSent(ended(ctx))
	}
	select {
	case s.writing <- struct{}{}:
	case <-ctx.Done():
		return s.notSent(ended(ctx))
	}
	defer func() { <-s.writing }()
	if err := s.failure(); err != nil {
		return s.notSent(err)
	}
	return s.write(ctx, b)
}

// write is called by one goroutine at a time.
func (s *Stream) write(ctx context.Context, b []byte) error {
	var limit time.Time
	if s.timeout > 0 {
		limit = time.Now().Add(s.timeout)
	}
	// Set at each write, as the one before may have left a deadline in the past.
	if err := s.nc.SetWriteDeadline(limit); err != nil {
		return s.notSent(s.fail(err))
	}
	interrupted := make(chan struct{})
	release := context.AfterFunc(ctx, func() {
		defer close(interrupted)
		_ = s.nc.SetWriteDeadline(time.Unix(1, 0))
	})
	n, err := s.nc.Write(b)
	if !release() {
		<-interrupted
		if err != nil {
			err = ended(ctx)
		}
	}
	if err != nil {
		return &Error{Op: "write", Addr: s.addr, Sent: n > 0, Err: s.fail(err)}
	}
	return nil
}

func (s *Stream) notSent(err error) error { return &Error{Op: "write", Addr: s.addr, Err: err} }

// Close closes the connection and ends a Read or Write that blocks. It does not block itself, and does nothing the
// second time.
func (s *Stream) Close() error { return s.CloseFor(ErrClosed) }

// CloseFor is Close with another cause than ErrClosed, for a Stream that ends although its user has not closed it.
func (s *Stream) CloseFor(cause error) error {
	_ = s.fail(cause)
	return nil
}

// Err returns why the connection is closed, ErrClosed if by Close, and nil as long as it stands as far as is known.
func (s *Stream) Err() error { return s.failure() }

// fail closes the connection and returns the cause, which is that of the first call.
func (s *Stream) fail(err error) error {
	s.mu.Lock()
	first := s.err == nil
	if first {
		s.err = err
	}
	err = s.err
	s.mu.Unlock()
	if first {
		_ = hangUp(s.nc)
		if s.onEnd != nil {
			s.onEnd()
		}
	}
	return err
}

func (s *Stream) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}
