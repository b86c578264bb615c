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
	// silentAfter is how long a PING may be without an answer before a Router is told, for the first time.
	silentAfter = time.Second

	// silentPeriod is how often it is told while the silence lasts.
	silentPeriod = silentAfter / 2
)

var (
	errMute = fmt.Errorf("pubsub: the server does not answer PING: %w", os.ErrDeadlineExceeded)
	errIdle = errors.New("pubsub: no subscription left")
)

// keep is the goroutine of a Subscriber that has something to do: it has a connection made, and made again when it is
// lost, until ctx ends or no subscription is left.
//
// The pauses between the dials grow until a connection has been of use for as long as the longest of them: a server that
// answers, and then hangs up on something it is asked for, is as bad as one that is not there.
func (s *Subscriber) keep(ctx context.Context) {
	for pause(ctx, s.redial); s.needed(); pause(ctx, s.redial) {
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

// needed reports whether there is a reason to have a connection. If not the keeper ends; the next subscription starts
// another one.
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

// dialFailed ends the Subscribes that wait if the server has said no: asking again would change nothing.
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

// pause waits until t.
func pause(ctx context.Context, t time.Time) {
	d := time.Until(t)
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// serve carries the subscriptions over stream until it is lost, which is the error, or not needed any more. It reports
// whether the server has answered anything: if it has not, dialling again at once would help nobody.
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
		_ = stream.Close() // which also ends a write that waits for the network
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
	answered = s.answers
	s.lostCause = err
	s.disconnectLocked(err)
	s.mu.Unlock()
	if err != nil {
		s.warn("connection lost", "addr", stream.Addr(), "err", err)
	}
	return answered, err
}

// read is the goroutine that reads what the server sends. It waits for nothing else.
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

// write sends what is to be said to the server, in the order of the decisions, until the connection ends. It returns nil
// when gone is closed, as the reader knows why.
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

// flood is how many bytes of messages within Timeout excuse that there is no PONG: it may stand behind others that have not been
// read. So much does not come for long from a server that gets nothing from here, not even that it has arrived.
const flood = 64 << 10

// next returns what to write now, or if there is nothing how long to wait for the next thing that is due. An error means
// that the connection is not to be used any more.
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
		s.idle = time.Time{}
	} else if s.idle.IsZero() {
		s.idle = now
	}
	if s.cfg.IdleTimeout > 0 && !s.idle.IsZero() && dueAt(s.idle.Add(s.cfg.IdleTimeout)) {
		return nil, 0, errIdle
	}
	for ch, at := range s.refused {
		if dueAt(at) {
			delete(s.refused, ch)
			ch.state = absent
			if !s.rerouteLocked(ch) {
				s.touchLocked(ch)
			}
		}
	}
	cmds = s.commandsLocked(nil)
	switch {
	case !s.pinged.IsZero():
		if s.router != nil && dueAt(s.doubted.Add(silentPeriod)) {
			s.doubted = now
			s.router.Refused(s.server, errMute)
		}
		if s.cfg.Timeout <= 0 || !dueAt(s.pinged.Add(s.cfg.Timeout)) {
			break
		}
		if s.received < flood {
			return nil, 0, errMute
		}
		s.pinged, s.received = now, 0
		dueAt(now.Add(s.cfg.Timeout))
	case s.cfg.PingInterval > 0 && dueAt(s.answered.Add(s.cfg.PingInterval)):
		s.pinged, s.received = now, 0
		s.doubted = now.Add(silentAfter - silentPeriod)
		cmds = append(cmds, s.askLocked(ping, nil))
	}
	return cmds, due.Sub(now), nil
}
