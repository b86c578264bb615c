package conn

import (
	"context"
	"time"

	"github.com/lockwire/lockwire/conn/internal/pipeline"
	"github.com/lockwire/lockwire/conn/internal/sentinel"
	"github.com/lockwire/lockwire/resp"
)

// sendAcked sends a batch with WAIT over an exclusive connection.
//
//   - If the server refuses all commands but WAIT and executes none, sendAcked repeats the batch as a whole,
//     within the limits of Config.Retry.
//   - If another master is known when the answer arrives, the outcome is uncertain: the replicas counted by WAIT may
//     follow the new master.
//   - Otherwise the caller gets the replies, including refusals.
func (p *Pool) sendAcked(ctx context.Context, cmds []resp.Command) (_ []resp.Value, failed error) {
	ctx, traced := StartCommands(ctx, p, cmds, false)
	defer func() { traced.End(ctx, failed) }()
	a := retryBudget{policy: &p.cfg.Retry}
	for {
		values, unrun, err := p.sendAckedOnce(ctx, cmds, traced)
		pause := a.pause()
		if a.made == 0 {
			pause = 0 // the connection was idle while its server went away or was replaced
		}
		if unrun == nil || ctx.Err() != nil || !a.countFailure(pause) {
			return values, err
		}
		p.retries.Add(1)
		p.cfg.Trace.retry(ctx, p.cfg.Addr, request{Commands: cmds}, a.made, pause, unrun)
		if p.sleep(ctx, pause) != nil {
			return values, err
		}
	}
}

// sendAckedOnce makes an attempt of sendAcked. If no command has run and another attempt may help, unrun is the reason why
// none has run; values and err are then for the caller in case no attempt is left.
func (p *Pool) sendAckedOnce(ctx context.Context, cmds []resp.Command, traced *Call) (values []resp.Value, unrun, err error) {
	var l *pipeline.Link // of the lent connection; nil without one
	yields := false
	err = p.With(ctx, func(c *Conn) (err error) {
		if l, yields = c.l, p.yields(ctx); yields {
			return nil
		}
		begin := time.Now()
		values, err = c.SendBatch(ctx, cmds)
		p.noteAckTime(time.Since(begin), err)
		return err
	})
	switch {
	case yields: // wait for the end of ctx, as documented at Leaves
		return nil, nil, &Error{Op: cmds[0].Name(), Addr: p.cfg.Addr, Err: p.sleep(ctx, pipeline.Never)}
	case l == nil: // With has repeated the dial already
		traced.attempt(&p.cfg, nil, err)
		return nil, nil, err
	case SafeToRetry(err):
		return values, err, err
	case err != nil:
		return values, nil, err
	}
	if unrun = refusedAll(cmds, values); unrun == nil && p.resolver != nil && p.resolver.Known() != l.Addr {
		return nil, nil, &Error{Op: cmds[0].Name(), Addr: l.Addr, Sent: true, Err: sentinel.ErrSwitched}
	}
	return values, unrun, nil
}

// yields reports whether the caller will have left before its batch is answered, judging by recent batches, while
// another caller waits for a connection. Without yielding, an overload of callers with equal patience would serve
// each caller too late.
func (p *Pool) yields(ctx context.Context) bool {
	leaves, ok := ctx.Value(Leaves).(time.Time)
	p.mu.Lock()
	defer p.mu.Unlock()
	return ok && p.queue.Len() > 0 && time.Until(leaves) < p.ackTime
}

// noteAckTime updates the typical time of a batch by d, the time of one; after an error d is a lower bound. Short times
// weigh more than long times, because no time is known of the batches of callers that yield.
func (p *Pool) noteAckTime(d time.Duration, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case err != nil && SafeToRetry(err):
	case err != nil:
		p.ackTime = max(p.ackTime, d)
	case d < p.ackTime:
		p.ackTime = (p.ackTime + d) / 2
	default:
		p.ackTime += (d - p.ackTime) / 8
	}
}
