package pubsub

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/resp"
)

var (
	errMute = errors.New("pubsub: the server does not answer PING")
	errIdle = errors.New("pubsub: no subscription left")
)

// keep is the goroutine of a Subscriber that has something to do: it has a connection made, and made again when it is
// lost, until ctx ends or no subscription is left.
func (s *Subscriber) keep(ctx context.Context) {
	for attempt := 0; s.needed(); {
		stream, err := s.dialer.Stream(ctx)
		if err != nil {
			s.dialFailed(ctx, err)
		} else {
			var answered bool
			if answered, err = s.serve(ctx, stream); err == nil {
				continue
			}
			if answered {
				attempt = 0
			}
		}
		attempt++
		pause(ctx, backoff(attempt, s.cfg.MinBackoff, s.cfg.MaxBackoff))
	}
}

// needed reports whether there is a reason to have a connection. If not the keeper ends; the next subscription starts
// another one.
func (s *Subscriber) needed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.count == 0 {
		s.running, s.lost, s.lostCause = false, false, nil
		s.stop()
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
	if final(err) {
		s.eachLocked(func(sub *Subscription) {
			if sub.ready != nil {
				sub.failLocked(fmt.Errorf("pubsub: subscribe: %w", err))
			}
		})
	}
	s.mu.Unlock()
	if first {
		s.cfg.Logger.Warn("pubsub: no connection", "err", err)
	}
}

// final reports whether the failure of a dial is a decision of the server or of this program.
func final(err error) bool {
	for _, reason := range []error{resp.ErrWrongPass, resp.ErrNoAuth, resp.ErrNoPerm, resp.ErrNoProto, conn.ErrClosed} {
		if errors.Is(err, reason) {
			return true
		}
	}
	return false
}

// pause waits before the next dial.
func pause(ctx context.Context, d time.Duration) {
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
		s.cfg.Logger.Warn("pubsub: connected again", "addr", stream.Addr())
	}

	gone := make(chan error, 1)
	var reader sync.WaitGroup
	reader.Go(func() { gone <- s.read(stream) })
	err = s.write(ctx, stream, gone)
	_ = stream.Close()
	reader.Wait()

	if ctx.Err() != nil || err == errIdle {
		err = nil
	}
	s.mu.Lock()
	answered = s.answers
	s.lostCause = err
	s.disconnectLocked(err)
	s.mu.Unlock()
	if err != nil {
		s.cfg.Logger.Warn("pubsub: connection lost", "addr", stream.Addr(), "err", err)
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

// write sends what is to be said to the server, in the order of the decisions, until the connection ends.
func (s *Subscriber) write(ctx context.Context, stream *conn.Stream, gone <-chan error) error {
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
		case err := <-gone:
			return err
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
			s.touchLocked(ch)
		}
	}
	cmds = s.commandsLocked(nil)
	switch {
	case !s.pinged.IsZero():
		if s.cfg.Timeout > 0 && dueAt(s.pinged.Add(s.cfg.Timeout)) {
			return nil, 0, errMute
		}
	case s.cfg.PingInterval > 0 && dueAt(s.answered.Add(s.cfg.PingInterval)):
		s.pinged = now
		cmds = append(cmds, s.askLocked(ping, nil))
	}
	return cmds, due.Sub(now), nil
}
