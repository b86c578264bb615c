package pubsub

import (
	"context"
	"errors"
	"fmt"
	"os"
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

// keep is the keeper, the goroutine of a part with channels. It connects and reconnects until ctx ends or no channel is
// left.
//
// The pauses between dials grow until a connection has worked for MaxBackoff. A server that answers
// and then closes the connection because of a request therefore gets the same pauses as an
// unreachable server.
func (p *part) keep(ctx context.Context) {
	sleep := func() { _ = netfail.Sleep(ctx, time.Until(p.redial)) }
	for sleep(); p.needed(); sleep() {
		stream, err := p.stream(ctx)
		if err != nil {
			p.dialFailed(ctx, err)
		} else {
			begun := time.Now()
			var answered bool
			answered, err = p.serve(ctx, stream)
			if answered && time.Since(begun) >= p.subscriber.cfg.MaxBackoff {
				p.failures = 0
			}
			if err == nil {
				continue
			}
		}
		p.failures++
		p.redial = time.Now().Add(netfail.Backoff(p.failures-1, p.subscriber.cfg.MinBackoff, p.subscriber.cfg.MaxBackoff))
	}
}

// needed reports whether a connection is needed. If not, the keeper ends; the next subscription
// starts a new keeper.
func (p *part) needed() bool {
	p.subscriber.mu.Lock()
	defer p.subscriber.mu.Unlock()
	if !p.subscriber.isClosed() {
		for ch := range p.channelsLocked() {
			p.rerouteLocked(ch)
		}
	}
	if p.subscriber.isClosed() || p.count == 0 {
		p.running, p.lost, p.lostCause = false, false, nil
		if p.server != "" { // the part of Stream stays, with its pause and what the Logger knows
			delete(p.subscriber.parts, p.server)
		}
		return false
	}
	return true
}

// dialFailed records a failed dial. If the failure is final, every waiting Subscribe fails, because
// another dial would fail alike.
func (p *part) dialFailed(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	p.subscriber.mu.Lock()
	first := !p.failureLogged
	p.lostCause, p.failureLogged = err, true
	if netfail.Dial(err) == netfail.Final || errors.Is(err, conn.ErrClosed) {
		p.eachLocked(func(sub *Subscription) {
			if sub.ready != nil {
				sub.failLocked(fmt.Errorf("pubsub: subscribe: %w", err))
			}
		})
	}
	p.subscriber.mu.Unlock()
	if first {
		p.warn("no connection", "err", err)
	}
}

func (p *part) warn(text string, args ...any) {
	if p.subscriber.cfg.Logger != nil {
		p.subscriber.cfg.Logger.Warn("pubsub: "+text, args...)
	}
}

// serve carries the subscriptions over stream. It returns nil when the connection is no longer
// needed, and otherwise the reason for its loss. answered reports whether the server answered any
// request; if not, an immediate dial would not help.
func (p *part) serve(ctx context.Context, stream *conn.Stream) (answered bool, err error) {
	p.subscriber.mu.Lock()
	p.lostCause = nil
	p.connectLocked(time.Now())
	p.subscriber.mu.Unlock()

	var cause error
	gone := make(chan struct{})
	p.subscriber.keeper.Go(func() { // the reader
		defer close(gone)
		cause = p.read(stream)
		_ = stream.Close() // also ends a blocked write
	})
	err = p.write(ctx, stream, gone)
	_ = stream.Close()
	<-gone

	switch {
	case ctx.Err() != nil || err == errIdle:
		err = nil
	case err == nil || !errors.Is(cause, conn.ErrClosed):
		err = cause
	}
	p.subscriber.mu.Lock()
	answered = p.hasAnswered
	first := err != nil && !p.failureLogged
	p.lostCause, p.failureLogged = err, p.failureLogged || err != nil
	p.disconnectLocked(err)
	p.subscriber.mu.Unlock()
	if first {
		p.warn("connection lost", "addr", stream.Addr(), "err", err)
	}
	return answered, err
}

// read is the reader, the goroutine that handles the server's values. It waits only for the stream.
func (p *part) read(stream *conn.Stream) error {
	for answered := false; ; {
		v, err := stream.Read()
		if err != nil {
			return err
		}
		if err := p.dispatch(v); err != nil {
			return err
		}
		answered = answered || p.noteConnected(stream)
	}
}

// noteConnected logs the end of a failure once the server has answered a request on stream, which it reports. A connection
// without an answer is not enough: a server, or a proxy in front of it, may accept each one and close it at the request.
func (p *part) noteConnected(stream *conn.Stream) bool {
	p.subscriber.mu.Lock()
	answered := p.hasAnswered
	again := answered && p.failureLogged
	p.failureLogged = p.failureLogged && !answered
	p.subscriber.mu.Unlock()
	if again {
		p.warn("connected again", "addr", stream.Addr())
	}
	return answered
}

// write sends requests in the order of the decisions until the connection ends. It returns nil when
// gone is closed, because the reader knows the reason.
func (p *part) write(ctx context.Context, stream *conn.Stream, gone <-chan struct{}) error {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		cmds, wait, err := p.next(time.Now())
		if err != nil {
			return err
		}
		if len(cmds) > 0 {
			if err := p.send(ctx, stream, cmds); err != nil {
				return err
			}
			continue
		}
		timer.Reset(wait)
		select {
		case <-p.wake:
		case <-timer.C:
		case <-gone:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (p *part) send(ctx context.Context, stream *conn.Stream, cmds []resp.Command) error {
	if p.subscriber.cfg.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, p.subscriber.cfg.Timeout)
		defer cancel()
	}
	return stream.Write(ctx, cmds...)
}

// flood is the number of message bytes within Timeout that excuse a missing PONG, because the PONG
// may follow messages not read yet. A server that receives nothing from this process, not even TCP
// acknowledgements, cannot send so much for long.
const flood = 64 << 10

// timing is the time of a look at the deadlines of a part, and the time of the next look.
type timing struct{ now, next time.Time }

// due reports whether the time at has come. If not, it makes the next look come at that time at the latest.
func (t *timing) due(at time.Time) bool {
	if !at.After(t.now) {
		return true
	}
	if at.Before(t.next) {
		t.next = at
	}
	return false
}

// next returns the commands to write now, or else the time to wait for the next deadline. An error
// ends the connection.
func (p *part) next(now time.Time) (cmds []resp.Command, wait time.Duration, err error) {
	p.subscriber.mu.Lock()
	defer p.subscriber.mu.Unlock()
	t := timing{now, now.Add(time.Hour)}
	if p.idleLocked(&t) {
		return nil, 0, errIdle
	}
	for ch, at := range p.refused {
		if t.due(at) {
			delete(p.refused, ch)
			ch.state = absent
			if !p.rerouteLocked(ch) {
				p.updateLocked(ch)
			}
		}
	}
	cmds = p.commandsLocked()
	switch every := p.subscriber.cfg.PingInterval; {
	case !p.pingSent.IsZero():
		err = p.missingPongLocked(&t)
	case every > 0 && t.due(p.lastAnswer.Add(every)):
		p.pingSent, p.received = now, 0
		p.reportAt = now.Add(silentAfter)
		cmds = append(cmds, p.requestLocked(ping, nil))
	}
	return cmds, t.next.Sub(now), err
}

// idleLocked reports whether there has been no subscription for IdleTimeout.
func (p *part) idleLocked(t *timing) bool {
	if p.count > 0 {
		p.idleSince = time.Time{}
		return false
	}
	if p.idleSince.IsZero() {
		p.idleSince = t.now
	}
	idle := p.subscriber.cfg.IdleTimeout
	return idle > 0 && t.due(p.idleSince.Add(idle))
}

// missingPongLocked reports a silent server to the Router, and returns an error after Timeout.
func (p *part) missingPongLocked(t *timing) error {
	if p.subscriber.router != nil && t.due(p.reportAt) {
		p.reportAt = t.now.Add(silentPeriod)
		t.due(p.reportAt) // look again then
		p.subscriber.router.Refused(p.server, errSilent)
	}
	limit := p.subscriber.cfg.Timeout
	if limit <= 0 || !t.due(p.pingSent.Add(limit)) {
		return nil
	}
	if p.received < flood {
		return errSilent
	}
	p.pingSent, p.received = t.now, 0
	t.due(t.now.Add(limit)) // look again then
	return nil
}
