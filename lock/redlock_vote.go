package lock

import (
	"context"
	"errors"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/lock/internal/clock"
	"github.com/lockwire/lockwire/lock/internal/remote"
	"github.com/lockwire/lockwire/resp"
)

// question is the request of a Redlock to one server.
type question struct {
	request
	lock *Redlock
	call *redlockCall
	info *serverInfo // of the server that gave the last answer
}

// serverInfo is a reply to INFO, asked for after sent.
type serverInfo struct {
	reply resp.Value
	sent  clock.Instant
}

// question returns the request of a call to the server of a node. owner is the owner on the server, "" for a new owner.
func (r *Redlock) question(c *redlockCall, node int, owner string) (*question, error) {
	h := r.members[node]
	request, err := h.request(c.opts, 0)
	if err != nil {
		return nil, err
	}
	q := &question{request: request, lock: r, call: c, info: &serverInfo{}}
	if owner != "" {
		q.owner = owner
	}
	if h.target.kind.silent {
		polled := h.target
		polled.backoff = r.cfg.backoff
		q.target = &polled
	}
	q.wrapDoer = func(d conn.Doer) conn.Doer { return d }
	if r.cfg.Quarantine >= 0 || h.client.identity.ID() == "" {
		q.wrapDoer = func(d conn.Doer) conn.Doer { return infoFirst{d, h.client, q.info} }
	}
	return q, nil
}

// ask asks the server once, and returns the lease. If the lock is taken and the call waits, ask returns a waiter instead, in the line of the
// server. ctx is limited by NodeTimeout.
func (q *question) ask(ctx context.Context, waits bool) (lease *Lease, w *waiter, err error) {
	var before watchMark
	if q.waits = waits; waits {
		q.client.table.mu.Lock()
		before = q.client.table.markLocked(q.target.awaitedAs())
		q.client.table.mu.Unlock()
	}
	left, err := q.tryObtain(ctx)
	if e, refused := errors.AsType[*NotAcquiredError](err); refused && e.untried { // its time was over before: the server has refused nothing
		err = e.Err
	}
	if errors.Is(err, ErrNotAcquired) {
		q.client.identity.Answered()
		if waits {
			return nil, q.newWaiter(ctx, left, before), nil
		}
	}
	q.client.leavePlace(q.target, q.place)
	return q.got, nil, q.verify(ctx, err)
}

// verify returns err, the failure of a request, or an error if the server that has granted the lock has no vote.
func (q *question) verify(ctx context.Context, err error) error {
	quarantine, self := q.lock.cfg.Quarantine, q.client.identity
	switch {
	case err == nil && quarantine >= 0:
		ctx, cancel := q.call.limit(ctx, q.client)
		defer cancel()
		err = self.CheckVote(ctx, q.info.reply, q.info.sent, quarantine)
	case err == nil, errors.Is(err, ErrNotAcquired):
		self.Note(q.info.reply, q.info.sent)
	}
	if err == nil || errors.Is(err, remote.ErrNoVote) {
		self.Vouch(err)
	}
	return err
}

// limit returns a context for a request to the server of a client, which ends with the client, but not with the caller's context: an answer after the decision may
// still join the lease.
func (c *redlockCall) limit(ctx context.Context, of *Client) (context.Context, context.CancelFunc) {
	return context.WithTimeout(of.untilCloseOnly(ctx), c.timeout)
}

// release releases a useless grant.
func (c *redlockCall) release(ctx context.Context, granted *Lease) {
	ctx, cancel := c.limit(ctx, granted.client)
	defer cancel()
	_ = granted.unlock(ctx, true) // ignores the end of ctx; the rest is done in the background
}

// infoFirst sends INFO server before each command and each batch, on the same connection, so that the process that runs the
// commands also answers INFO.
type infoFirst struct {
	conn.Doer
	client *Client
	info   *serverInfo
}

// Trace returns the Trace of the Doer.
func (v infoFirst) Trace() *conn.Trace { return conn.TraceOf(v.Doer) }

func (v infoFirst) Send(ctx context.Context, cmd resp.Command) (resp.Value, error) {
	return remote.OfOne(v.SendBatch(ctx, []resp.Command{cmd}))
}

func (v infoFirst) SendBatch(ctx context.Context, cmds []resp.Command) ([]resp.Value, error) {
	ask := resp.Cmd("INFO", "server")
	if key, ok := cmds[0].Key(); ok {
		ask = ask.On(key)
	}
	sent := v.client.now()
	replies, err := v.Doer.SendBatch(context.WithValue(ctx, conn.Whole, true), append([]resp.Command{ask}, cmds...))
	if err != nil {
		return nil, err
	}
	*v.info = serverInfo{replies[0], sent}
	return replies[1:], nil
}
