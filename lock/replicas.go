package lock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/resp"
)

// Acks is how many replicas of a server have to have a lock before whoever acquires it gets it. A number above 0 is that
// many.
type Acks int

const (
	// AcksAuto is what Redisson does (checkLockSyncedSlaves): one, if the server has replicas at all, in a cluster and under
	// Sentinel; none of a server that was named by its address.
	AcksAuto Acks = 0
	// AcksOff asks for none.
	AcksOff Acks = -1
	// AcksMajority asks for so many that the server and they are more than half of all.
	AcksMajority Acks = -2
)

// replicasAge is how long the number of a server's replicas is believed.
const replicasAge = 10 * time.Second

// replicas knows how many replicas the servers have.
type replicas struct {
	mu    sync.Mutex // guards the following
	count map[string]counted
}

type counted struct {
	n  int
	at time.Time
}

// replicated reports whether acquires wait for replicas.
func (c *Client) replicated() bool {
	switch c.cfg.Acks {
	case AcksOff:
		return false
	case AcksAuto:
		r, ok := c.server.(interface{ Replicated() bool })
		return ok && r.Replicated()
	}
	return true
}

// ackDoer sends an acquire and WAIT behind it, on a connection that nobody else has: WAIT holds up all that comes after it.
type ackDoer struct {
	c     *Client
	name  string
	need  int
	route string // to the server whose replicas need counts
	acked int64  // what WAIT returned
}

// acking returns what sends an acquire of t in the place of the server, or nil if it needs no acknowledgement: one that changes
// nothing does not.
func (c *Client) acking(ctx context.Context, t *target) (*ackDoer, error) {
	if !c.acks || t.kind.undo == nil {
		return nil, nil
	}
	d := &ackDoer{c: c, name: t.name}
	if err := d.count(ctx); err != nil {
		return nil, err
	}
	if d.need == 0 {
		return nil, nil
	}
	return d, nil
}

// count finds out how many replicas have to acknowledge.
func (d *ackDoer) count(ctx context.Context) error {
	d.route = d.c.route(d.name)
	n, err := d.c.countReplicas(ctx, d.name)
	if err != nil {
		return err
	}
	d.need = int(d.c.cfg.Acks)
	switch d.c.cfg.Acks {
	case AcksAuto:
		d.need = min(n, 1)
	case AcksMajority:
		d.need = (n + 1) / 2
	}
	return nil
}

// Send sends a script and returns its reply.
func (d *ackDoer) Send(ctx context.Context, cmd resp.Command) (resp.Value, error) {
	replies, err := d.SendBatch(ctx, []resp.Command{cmd})
	if err != nil {
		return resp.Value{}, err
	}
	return replies[0], replies[0].Err()
}

// SendBatch sends commands, of which the last one is a script.
func (d *ackDoer) SendBatch(ctx context.Context, cmds []resp.Command) ([]resp.Value, error) {
	n := len(cmds)
	replies, err := d.alone(ctx, cmds)
	for range maxMoves {
		if !errors.Is(err, resp.ErrMoved) {
			break
		}
		replies, err = d.alone(ctx, cmds) // the cluster has learnt where to
	}
	if errors.Is(err, resp.ErrMoved) || err == nil && errors.Is(replies[n-1].Err(), resp.ErrAsk) {
		// Where the slot is going only the cluster knows; it has to share its connection for that. While a slot migrates,
		// the replicas of the server that it leaves are those who acknowledge.
		replies, err = d.c.server.SendBatch(ctx, d.withWait(cmds))
	}
	if err != nil {
		return nil, err
	}
	d.acked, _ = replies[n].Int() // 0 if WAIT is refused
	return replies[:n], nil
}

// short reports whether too few replicas have acknowledged. It has them counted anew then.
func (d *ackDoer) short() bool {
	if d == nil || d.acked >= int64(d.need) {
		return false
	}
	d.c.replicas.mu.Lock()
	defer d.c.replicas.mu.Unlock()
	delete(d.c.replicas.count, d.c.route(d.name))
	return true
}

// maxMoves is how often an acquire follows a slot that has moved, with a connection of its own at the new server each time.
const maxMoves = 3

// withWait returns cmds and WAIT.
func (d *ackDoer) withWait(cmds []resp.Command) []resp.Command {
	return append(slices.Clone(cmds), resp.Cmd("WAIT", d.need, d.c.cfg.AckTimeout.Milliseconds()).On(d.name))
}

// alone sends commands and WAIT on a connection of its own to the server that has the lock.
func (d *ackDoer) alone(ctx context.Context, cmds []resp.Command) (replies []resp.Value, err error) {
	send := func(own *conn.Conn) (err error) {
		// It may have taken a failover to get here, and the new master have other replicas, or none.
		if d.c.route(d.name) != d.route {
			if err := d.count(ctx); err != nil {
				return err
			}
		}
		replies, err = own.SendBatch(ctx, d.withWait(cmds))
		if err == nil && errors.Is(replies[len(cmds)-1].Err(), resp.ErrMoved) {
			return replies[len(cmds)-1].Err()
		}
		return err
	}
	switch s := d.c.server.(type) {
	case interface {
		With(ctx context.Context, fn func(*conn.Conn) error) error
	}:
		err = s.With(ctx, send)
	case interface {
		With(ctx context.Context, key string, fn func(*conn.Conn) error) error
	}:
		err = s.With(ctx, d.name, send)
	default:
		return d.c.server.SendBatch(ctx, d.withWait(cmds))
	}
	return replies, err
}

// route names the server that has name.
func (c *Client) route(name string) string {
	if c.spread == nil {
		return ""
	}
	return c.spread.Route(name)
}

// countReplicas returns how many replicas the server that has name can wait for.
func (c *Client) countReplicas(ctx context.Context, name string) (int, error) {
	route := c.route(name)
	c.replicas.mu.Lock()
	known, ok := c.replicas.count[route]
	c.replicas.mu.Unlock()
	if ok && time.Since(known.at) < replicasAge {
		return known.n, nil
	}
	v, err := c.server.Send(ctx, resp.Cmd("INFO", "replication").On(name))
	if err != nil {
		return 0, err
	}
	text, err := v.Text()
	if err != nil {
		return 0, fmt.Errorf("lock: replicas: %w", err)
	}
	known = counted{onlineReplicas(text), time.Now()}
	c.replicas.mu.Lock()
	defer c.replicas.mu.Unlock()
	if c.replicas.count == nil || len(c.replicas.count) > maxTallies {
		c.replicas.count = make(map[string]counted)
	}
	c.replicas.count[route] = known
	return known.n, nil
}

// onlineReplicas counts the lines of INFO such as "slave0:ip=10.0.0.2,port=6379,state=online,offset=1,lag=0".
func onlineReplicas(info string) int {
	n := 0
	for line := range strings.Lines(info) {
		if strings.HasPrefix(line, "slave") && strings.Contains(line, ",state=online,") {
			n++
		}
	}
	return n
}
