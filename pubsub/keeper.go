package pubsub

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/netfail"
	"github.com/lockwire/lockwire/resp"
)

const (
	// silentAfter is the age of an unanswered PING at which a Router is first informed.
	silentAfter = time.Second

	// silentPeriod is the time between two reports to the Router while the server stays silent.
	silentPeriod = silentAfter / 2
)

var (
	errSilent = fmt.Errorf("pubsub: the server does not answer PING: %w", os.ErrDeadlineExceeded)
	errIdle   = errors.New("pubsub: no subscription left")
)

// keep is the keeper, the goroutine of a Subscriber with subscriptions. It connects and reconnects
// until ctx ends or no subscription is left.
//
// The pauses between dials grow until a connection has worked for MaxBackoff. A server that answers
// and then closes the connection because of a request therefore gets the same pauses as an
// unreachable server.
func (s *Subscriber) keep(ctx context.Context) {
	sleep := func() { _ = netfail.Sleep(ctx, time.Until(s.redial), nil, nil) }
	for sleep(); s.needed(); sleep() {
		stream, err := s.dialer.Stream(ctx)
		if err != nil {
			s.dialFailed(ctx, err)
		} else {
			begun := time.Now()
			var answered bool
			answered, err = s.serve(ctx, stream)
			if answered && time.Since(begun) >= s.cfg.MaxBackoff {
				s.failures = 0
			}
			if err == nil {
				continue
			}
		}
		s.failures++
		s.redial = time.Now().Add(netfail.Backoff(s.failures-1, s.cfg.MinBackoff, s.cfg.MaxBackoff, rand.Float64()))
	}
}

// needed reports whether a connection is needed. If not, the keeper ends; the next subscription
// starts a new keeper.
func (s *Subscriber) needed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.rerouteAllLocked()
	}
	if s.closed || s.count == 0 {
		s.running, s.lost, s.lostCause = false, false, nil
		s.stop()
		if s.root.parts[s.server] == s {
			delete(s.root.parts, s.server)
		}
		return false
	}
	return true
}

// dialFailed records a failed dial. If the failure is final, every waiting Subscribe fails, because
// another dial would fail alike.
func (s *Subscriber) dialFailed(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	s.mu.Lock()
	first := s.lostCause == nil
	s.lostCause = err
	if netfail.Dial(err) == netfail.Final || errors.Is(err, conn.ErrClosed) {
		s.eachLocked(func(sub *Subscription) {
			if sub.ready != nil {
				sub.failLocked(fmt.Errorf("pubsub: subscribe: %w", err))
			}
		})
	}
	s.mu.Unlock()
	if first {
		s.warn("no connection", "err", err)
	}
}

func (s *Subscriber) warn(text string, args ...any) {
	if s.cfg.Logger != nil {
		s.cfg.Logger.Warn("pubsub: "+text, args...)
	}
}

// serve carries the subscriptions over stream. It returns nil when the connection is no longer
// needed, and otherwise the reason for its loss. answered reports whether the server answered any
// request; if not, an immediate dial would not help.
func (s *Subscriber) serve(ctx context.Context, stream *conn.Stream) (answered bool, err error) {
	s.mu.Lock()
	again := s.lostCause != nil
	s.lostCause = nil
	s.connectLocked(time.Now())
	s.mu.Unlock()
	if again {
		s.warn("connected again", "addr", stream.Addr())
	}

	var cause error
	gone := make(chan struct{})
	var reader sync.WaitGroup
	reader.Go(func() {
		defer close(gone)
		cause = s.read(stream)
		_ = stream.Close() // also ends a blocked write
	})
	err = s.write(ctx, stream, gone)
	_ = stream.Close()
	reader.Wait()

	switch {
	case ctx.Err() != nil || err == errIdle:
		err = nil
	case err == nil || !errors.Is(cause, conn.ErrClosed):
		err = cause
	}
	s.mu.Lock()
	answered = s.hasAnswered
	s.lostCause = err
	s.disconnectLocked(err)
	s.mu.Unlock()
	if err != nil {
		s.warn("connection lost", "addr", stream.Addr(), "err", err)
	}
	return answered, err
}

// read is the reader, the goroutine that handles the server's values. It waits only for the stream.
func (s *Subscriber) read(stream *conn.Stream) error {
	for {
		v, err := stream.Read()
		if err != nil {
			return err
		}
		if err := s.dispatch(v); err != nil {
			return err
		}
	}
}

// write sends requests in the order of the decisions until the connection ends. It returns nil when
// gone is closed, because the reader knows the reason.
func (s *Subscriber) write(ctx context.Context, stream *conn.Stream, gone <-chan struct{}) error {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		cmds, wait, err := s.next(time.Now())
		if err != nil {
			return err
		}
		if len(cmds) > 0 {
			if err := s.send(ctx, stream, cmds); err != nil {
				return err
			}
			continue
		}
		timer.Reset(wait)
		select {
		case <-s.wake:
		case <-timer.C:
		case <-gone:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (s *Subscriber) send(ctx context.Context, stream *conn.Stream, cmds []resp.Command) error {
	if s.cfg.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.cfg.Timeout)
		defer cancel()
	}
	return stream.Write(ctx, cmds...)
}

// flood is the number of message bytes within Timeout that excuse a missing PONG, because the PONG
// may follow messages not read yet. A server that receives nothing from this process, not even TCP
// acknowledgements, cannot send so much for long.
const flood = 64 << 10

// next returns the commands to write now, or else the time to wait for the next deadline. An error
// ends the connection.
func (s *Subscriber) next(now time.Time) (cmds []resp.Command, wait time.Duration, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	due := now.Add(time.Hour)
	dueAt := func(t time.Time) bool {
		if t.Before(due) {
			due = t
		}
		return !t.After(now)
	}

	if s.count > 0 {
		s.idleSince = time.Time{}
	} else if s.idleSince.IsZero() {
		s.idleSince = now
	}
	if s.cfg.IdleTimeout > 0 && !s.idleSince.IsZero() && dueAt(s.idleSince.Add(s.cfg.IdleTimeout)) {
		return nil, 0, errIdle
	}
	for ch, at := range s.refused {
		if dueAt(at) {
			delete(s.refused, ch)
			ch.state = absent
			if !s.rerouteLocked(ch) {
				s.updateLocked(ch)
			}
		}
	}
	cmds = s.commandsLocked(nil)
	switch {
	case !s.pingSent.IsZero():
		if s.router != nil && dueAt(s.reportedAt.Add(silentPeriod)) {
			s.reportedAt = now
			s.router.Refused(s.server, errSilent)
		}
		if s.cfg.Timeout <= 0 || !dueAt(s.pingSent.Add(s.cfg.Timeout)) {
			break
		}
		if s.received < flood {
			return nil, 0, errSilent
		}
		s.pingSent, s.received = now, 0
		dueAt(now.Add(s.cfg.Timeout))
	case s.cfg.PingInterval > 0 && dueAt(s.lastAnswer.Add(s.cfg.PingInterval)):
		s.pingSent, s.received = now, 0
		s.reportedAt = now.Add(silentAfter - silentPeriod) // makes the first report due after silentAfter
		cmds = append(cmds, s.askLocked(ping, nil))
	}
	return cmds, due.Sub(now), nil
}
