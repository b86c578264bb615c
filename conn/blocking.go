package conn

import (
	"context"

	"github.com/lockwire/lockwire/resp"
)

// Block sends a command that may block, such as BLPOP, or that takes long, and returns its reply as Do does:
//
//	job, ok, err := resp.Maybe[[]string](pool.Block(ctx, "BLPOP", "jobs", 5))
//
// Block borrows an exclusive connection for the command, as With does, so at most Config.MaxConns of such commands wait
// at the same time, and further callers wait for a connection. Block does not repeat the command. If ctx ends while the
// command blocks, its connection is closed; an element that was on its way may be lost, so let the command's own timeout
// end the wait, and ctx end later. If the server is silent for Config.Timeout longer than the command's own timeout, the
// error matches ErrUncertain; a command without a timeout waits until ctx ends.
func (p *Pool) Block(ctx context.Context, args ...any) (v resp.Value, err error) {
	cmd := resp.Cmd(args...)
	if err := cmd.Err(); err != nil {
		return resp.Value{}, refusal(p.cfg.Addr, request{Commands: []resp.Command{cmd}}, err)
	}
	err = p.With(ctx, func(c *Conn) (err error) {
		v, err = c.Send(ctx, cmd)
		return err
	})
	return v, err
}
