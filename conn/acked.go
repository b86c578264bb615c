package conn

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/lockwire/lockwire/internal/netfail"
	"github.com/lockwire/lockwire/resp"
)

// waits reports whether cmds are a batch that ends in WAIT or WAITAOF. It holds up whatever comes behind it, and means what was
// sent before it on the same connection: so the batch takes one that nobody shares, and is not divided.
func waits(cmds []resp.Command) bool {
	return len(cmds) > 1 && isWait(&cmds[len(cmds)-1])
}

func isWait(cmd *resp.Command) bool {
	name := cmd.Name()
	return strings.EqualFold(name, "wait") || strings.EqualFold(name, "waitaof")
}

// waitTime is for how long a WAIT may block, 0 if that has no end.
func waitTime(cmd *resp.Command) time.Duration {
	last := ""
	for arg := range cmd.Args() {
		last = arg
	}
	ms, err := strconv.ParseInt(last, 10, 32)
	if !isWait(cmd) || err != nil || ms < 0 {
		return 0
	}
	return time.Duration(ms) * time.Millisecond
}

// waitLimit is the limit for the answer to a command that blocks: that of a WAIT is known.
func (l *link) waitLimit(cmd *resp.Command) time.Duration {
	if d := waitTime(cmd); d > 0 {
		return time.Since(l.start) + d + l.timeout
	}
	return never
}

// sendAcked sends a batch that ends in WAIT over an exclusive connection. If the server refuses all that is in front of the
// WAIT, and has executed none of it, the batch is repeated as a whole, as Send would; otherwise the refusals are handed out. An
// answer of a server that is no longer the master counts as none: its replicas may have another one.
func (p *Pool) sendAcked(ctx context.Context, cmds []resp.Command) ([]resp.Value, error) {
	a := attempts{policy: &p.cfg.Retry}
	for {
		var values []resp.Value
		lent := false
		err := p.With(ctx, func(c *Conn) (err error) {
			lent = true
			if values, err = c.SendBatch(ctx, cmds); err == nil && p.replaced(c.l.addr) {
				err = &Error{Op: cmds[0].Name(), Addr: c.l.addr, Sent: true, Err: errSwitched}
			}
			return err
		})
		var why error
		switch {
		case err != nil && (!lent || !SafeToRetry(err)):
			return values, err // With has its own attempts
		case err != nil:
			why = err
		default:
			if why = refusedAll(cmds, values); why == nil {
				return values, nil
			}
		}
		pause := a.pause()
		if a.made == 0 {
			pause = 0 // the connection was idle, and its server is gone or is no longer the one
		}
		if ctx.Err() != nil || !a.failed(pause) {
			return values, err
		}
		p.retries.Add(1)
		p.cfg.Trace.retry(p.cfg.Addr, request{cmds: cmds}, a.made, pause, why)
		if p.sleep(ctx, pause) != nil {
			return values, err
		}
	}
}

// refusedAll returns why the server has executed none of the commands in front of the last one, or nil if it has any. What only
// asks about the server does not count.
func refusedAll(cmds []resp.Command, values []resp.Value) error {
	var first error
	for i := range len(cmds) - 1 {
		switch strings.ToUpper(cmds[i].Name()) {
		case "INFO", "CLUSTER", "SCRIPT", "ASKING":
			continue
		}
		err := values[i].Err()
		if err == nil || netfail.Reply(err) == netfail.Final {
			return nil
		}
		if first == nil {
			first = err
		}
	}
	return first
}
