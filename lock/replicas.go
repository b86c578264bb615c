package lock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/resp"
)

// Acks is the number of replicas that must acknowledge a lock before Lock returns. A positive number is exact, however many
// replicas the server has.
type Acks int

const (
	// AcksAuto requires all replicas that could replace the server, in a cluster and under Sentinel, and none for a server
	// configured by its address. A replica that is down does not count.
	AcksAuto Acks = 0
	// AcksOff requires no acknowledgement.
	AcksOff Acks = -1
	// AcksMajority requires enough replicas for a majority, together with the server, of all nodes that have not failed.
	AcksMajority Acks = -2
)

// of returns the required number of acknowledgements from n replicas.
func (a Acks) of(n int) int {
	switch a {
	case AcksOff:
		return 0
	case AcksAuto:
		return n
	case AcksMajority:
		return (n + 1) / 2
	}
	return int(a)
}

const (
	// bareFor is the time, in AckTimeouts, after which a server without its former replicas counts as a server without replicas.
	bareFor = 3
	// witnessAge is the maximum age of other nodes' information about a server with no replica, with a replica in its first
	// synchronization, or with fewer replicas than before.
	// Every failover takes longer.
	witnessAge = 500 * time.Millisecond
	// lagMax is the maximum lag, in seconds, of a replica able to acknowledge.
	lagMax = 2
)

var (
	errNotMaster = errors.New("the server is no longer the master")
	errBareSoon  = errors.New("its replicas have disappeared only recently")
)

// replicas is a client's record of the servers' replicas. The record decides whether the next request counts the replicas
// first. The absence of replicas is never taken from the record: every request without acknowledgements verifies the
// absence in the same write.
type replicas struct {
	mu    sync.Mutex
	known map[string]*standing // by the server's id, or its address; guarded by mu
}

// standing is the record of a server's replicas.
type standing struct {
	count  int       // the last count
	seen   bool      // the replicas have been counted
	had    bool      // the server has had a replica
	doubt  bool      // the last wait for replicas failed
	bare   time.Time // start of the time without a replica; zero with a replica, or if unknown
	warned time.Time // time of the last warning about a server without a replica
}

// at returns the standing of a server. The caller has mu.
func (r *replicas) at(s conn.Succession) *standing {
	key := s.Master
	if key == "" {
		key = s.Addr
	}
	st := r.known[key]
	if st == nil {
		if r.known == nil || len(r.known) > maxTallies {
			r.known = make(map[string]*standing)
		}
		st = new(standing)
		r.known[key] = st
	}
	return st
}

// counted records n replicas able to acknowledge, and reports whether the server counts as a server without replicas.
func (c *Client) counted(s conn.Succession, n int) (alone bool) {
	c.replicas.mu.Lock()
	defer c.replicas.mu.Unlock()
	st := c.replicas.at(s)
	st.count, st.seen = n, true
	switch now := time.Now(); {
	case n > 0:
		st.had, st.bare = true, time.Time{}
		return false
	case s.Bare && !st.had:
		return true
	case st.bare.IsZero():
		st.bare = now
		return false
	default:
		return now.Sub(st.bare) >= bareFor*c.cfg.AckTimeout
	}
}

// replicated reports whether acquires wait for replicas.
func (c *Client) replicated() bool {
	return c.cfg.Acks != AcksOff && (c.cfg.Acks != AcksAuto || c.nature.failover != nil)
}

// succession returns other nodes' information about the server of name.
func (c *Client) succession(ctx context.Context, name string, since time.Time) (conn.Succession, error) {
	if c.nature.failover == nil {
		return conn.Succession{Addr: c.route(name), Bare: true}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.AckTimeout)
	defer cancel()
	return c.nature.failover.Succession(ctx, name, since)
}

// route returns the server of name; "" with a single server.
func (c *Client) route(name string) string {
	if c.nature.spread == nil {
		return ""
	}
	return c.nature.spread.Route(name)
}

// acked sends scripts to a server, followed by WAIT. The Server sends the batch over an exclusive connection. Unless
// Config.Acks is a number, the same write asks the server for its identity and its replicas.
//
// By default all replicas must acknowledge. An acknowledgement by a single replica is worthless if another replica becomes
// the master: during a failover the former master goes on for a moment, with replicas not yet aware of the new master.
type acked struct {
	c      *Client
	name   string          // a key of the server
	heirs  conn.Succession // known before the request
	need   int             // number of replicas passed to WAIT
	wait   time.Duration   // timeout passed to WAIT
	sent   bool
	leaves time.Time // end of the caller's interest; zero if unknown

	// The outcome.
	answered time.Time
	got      int64      // number of acknowledgements
	failed   error      // error of WAIT
	info     resp.Value // reply to INFO replication
	identity resp.Value
}

// acking returns the acked for sending an acquire of t, or nil if the acquire needs no acknowledgement, for example because it
// changes nothing.
func (c *Client) acking(ctx context.Context, t *target) (*acked, error) {
	if !c.acks || t.kind.Undo == nil {
		return nil, nil
	}
	d, err := c.newAcked(ctx, t.name)
	if d != nil {
		d.leaves, _ = ctx.Deadline()
	}
	return d, err
}

// newAcked determines the required number of replicas. It returns an error if the server certainly has too few.
func (c *Client) newAcked(ctx context.Context, name string) (*acked, error) {
	d := &acked{c: c, name: name, wait: c.cfg.AckTimeout}
	var unknown error
	d.heirs, unknown = c.succession(ctx, name, time.Time{})
	switch {
	case c.cfg.Acks > 0 && unknown == nil:
		d.need = int(c.cfg.Acks)
		return d, d.enough(ctx)
	case c.cfg.Acks > 0:
		d.need = int(c.cfg.Acks)
	case unknown == nil:
		d.need = c.cfg.Acks.of(d.expect(ctx))
	default:
		d.need = 1 // confirm asks the other nodes again
	}
	return d, nil
}

// hurry limits the timeout of WAIT to three quarters of the remaining time of ctx.
func (d *acked) hurry(ctx context.Context) {
	if deadline, ok := ctx.Deadline(); ok {
		d.wait = max(min(d.wait, time.Until(deadline)*3/4), time.Millisecond)
	}
}

// enough returns an error if the server certainly has fewer replicas than needed.
func (d *acked) enough(ctx context.Context) error {
	if d.c.nature.failover == nil || d.heirs.Replicas >= d.need {
		return nil
	}
	s, err := d.c.succession(ctx, d.name, time.Now().Add(-witnessAge))
	if err != nil || s.Replicas+s.Away >= d.need {
		return nil
	}
	return d.short(d.need, fmt.Errorf("it has no more than %d", s.Replicas+s.Away))
}

// expect returns the presumed number of replicas. The request itself verifies a result of 0.
func (d *acked) expect(ctx context.Context) int {
	r := &d.c.replicas
	r.mu.Lock()
	st := *r.at(d.heirs)
	r.mu.Unlock()
	n := max(d.heirs.Replicas, st.count)
	switch {
	case n > 0 && st.seen && !st.doubt:
		return n
	case n == 0 && st.seen && !st.doubt && d.heirs.Bare && !st.had:
		return 0
	case !st.bare.IsZero() && time.Since(st.bare) >= bareFor*d.c.cfg.AckTimeout:
		return 0
	}
	seen, alone := d.look(ctx)
	if alone {
		return 0
	}
	return max(seen, 1)
}

// look counts the replicas.
func (d *acked) look(ctx context.Context) (n int, alone bool) {
	asked := time.Now()
	info, err := d.c.server.Send(d.c.patient(ctx), resp.Cmd("INFO", "replication").On(d.name))
	if err != nil {
		return 0, false
	}
	h, err := parseReplicas(info)
	if err != nil {
		return 0, false
	}
	s, err := d.c.succession(ctx, d.name, asked.Add(-witnessAge))
	if err != nil {
		return 0, false
	}
	n = d.c.candidates(h, s)
	return n, d.c.counted(s, n)
}

// candidates returns the number of replicas that could replace the server without having acknowledged: the replicas known to
// the server, or the healthy replicas known to other nodes less the replicas in their first synchronization. A replica that
// is away for the other nodes only is in the first number and not in the second.
func (c *Client) candidates(h headcount, s conn.Succession) int {
	if c.nature.failover == nil {
		return h.live + h.silent
	}
	back := common(h.liveAddrs, s.AwayAddrs)
	return back + max(h.live-back, s.Replicas-h.syncing+common(h.syncingAddrs, s.AwayAddrs))
}

// common returns the number of addresses in both lists.
func common(a, b []string) (n int) {
	for _, addr := range a {
		if slices.Contains(b, addr) {
			n++
		}
	}
	return n
}

// Send sends a script and returns its reply.
func (d *acked) Send(ctx context.Context, cmd resp.Command) (resp.Value, error) {
	replies, err := d.SendBatch(ctx, []resp.Command{cmd})
	if err != nil {
		return resp.Value{}, err
	}
	return replies[0], replies[0].Err()
}

// Trace returns the Trace of the server.
func (d *acked) Trace() *conn.Trace { return conn.TraceOf(d.c.server) }

// SendBatch sends scripts.
func (d *acked) SendBatch(ctx context.Context, cmds []resp.Command) ([]resp.Value, error) {
	n := len(cmds)
	wire := slices.Clone(cmds)
	wait := max(d.wait.Milliseconds(), 1)
	if d.c.cfg.Acks <= 0 {
		wire = append(wire, resp.Cmd("INFO", "replication"), d.c.whoAreYou())
	}
	if d.need == 0 {
		wait = 1 // WAIT 0 returns at once
	}
	if !d.leaves.IsZero() {
		ctx = context.WithValue(ctx, conn.Leaves, d.leaves)
	}
	replies, err := d.c.server.SendBatch(ctx, append(wire, resp.Cmd("WAIT", d.need, wait).On(d.name)))
	if err != nil {
		return replies[:min(n, len(replies))], err
	}
	d.answered = time.Now()
	last := replies[len(replies)-1]
	got, _ := last.Int()
	if d.sent { // both batches must be acknowledged
		got = min(got, d.got)
	}
	d.got, d.sent = got, true
	d.failed = last.Err()
	if d.c.cfg.Acks <= 0 {
		d.info, d.identity = replies[n], replies[n+1]
	}
	return replies[:n], nil
}

// whoAreYou returns the command for a server's identity, comparable with Succession.Master.
func (c *Client) whoAreYou() resp.Command {
	if c.nature.spread != nil {
		return resp.Cmd("CLUSTER", "MYID")
	}
	return resp.Cmd("INFO", "server")
}

// confirm returns nil if enough replicas have acknowledged the request, else a [*NotReplicatedError]. bare: the server has no
// replica, so no acknowledgement was needed.
func (d *acked) confirm(ctx context.Context) (bare bool, err error) {
	need := d.need
	if d.c.cfg.Acks <= 0 {
		n, alone, err := d.count(ctx)
		if need = d.c.cfg.Acks.of(n); n == 0 && !alone {
			need = 1
			err = errors.Join(err, errBareSoon)
		}
		if err != nil {
			return false, d.short(max(need, 1), err)
		}
	}
	if d.got < int64(need) {
		return false, d.short(need, d.failed)
	}
	d.settled(need == 0)
	return need == 0, nil
}

// count returns the number of replicas right after the scripts. It combines the server's reply with other nodes' information.
// The information must be recent if a replica not counted by the server may have replaced the server by now. A replica in its
// first synchronization is one: the server learns of the end later than the replica.
func (d *acked) count(ctx context.Context) (n int, alone bool, err error) {
	h, err := parseReplicas(d.info)
	if err != nil {
		return 0, false, err
	}
	s, err := d.answerer(ctx, h, time.Time{})
	n = d.c.candidates(h, s)
	if err != nil || n == 0 || s.Away > 0 || h.syncing > 0 || d.c.fewer(s, h) {
		if s, err = d.answerer(ctx, h, d.answered.Add(-witnessAge)); err != nil {
			return n, false, err
		}
		n = d.c.candidates(h, s)
	}
	return n, d.c.counted(s, n), nil
}

// fewer reports whether a server has fewer live replicas than at the last count.
func (c *Client) fewer(s conn.Succession, h headcount) bool {
	c.replicas.mu.Lock()
	defer c.replicas.mu.Unlock()
	return h.live < c.replicas.at(s).count
}

// answerer returns other nodes' information about the answering server. It returns an error unless the other nodes name the
// server as the master, or as the master of another part of the keys (the target of a migrating slot).
//
// For seconds after a promotion or a restart, sentinels report a wrong identity or none. With live replicas the address is
// enough, because a Pool refuses a former master's answer to WAIT.
func (d *acked) answerer(ctx context.Context, h headcount, since time.Time) (conn.Succession, error) {
	s, err := d.c.succession(ctx, d.name, since)
	if err != nil || d.c.nature.failover == nil {
		return s, err
	}
	if err := d.identity.Err(); err != nil {
		return s, fmt.Errorf("asking the server for its identity: %w", err)
	}
	who, err := d.identity.Text()
	spread := d.c.nature.spread
	if spread == nil {
		who, _, _ = parseServerInfo(d.identity)
	}
	switch {
	case err != nil || who == s.Master || spread == nil && h.live > 0 && s.Addr == d.heirs.Addr:
		return s, err
	case spread == nil || since.IsZero():
		return s, errNotMaster
	}
	if s, err = spread.SuccessionOf(ctx, who, since); err != nil {
		err = fmt.Errorf("%w: %w", errNotMaster, err)
	}
	return s, err
}

// short records a lack of acknowledgements and returns the error.
func (d *acked) short(need int, cause error) error {
	d.c.replicas.mu.Lock()
	d.c.replicas.at(d.heirs).doubt = true
	d.c.replicas.mu.Unlock()
	return &NotReplicatedError{
		Name: d.name, Server: d.heirs.Addr, Needed: need, Acked: int(d.got), Within: d.wait, Err: cause,
	}
}

// bareWarning is the minimum time between two warnings about a server without a replica.
const bareWarning = time.Minute

// settled records enough acknowledgements. It logs a warning for a server without a replica, and the end of the condition.
func (d *acked) settled(bare bool) {
	now := time.Now()
	d.c.replicas.mu.Lock()
	st := d.c.replicas.at(d.heirs)
	st.doubt = false
	before := st.warned
	warn := bare && now.Sub(before) >= bareWarning
	if warn {
		st.warned = now
	} else if !bare {
		st.had, st.bare, st.warned = true, time.Time{}, time.Time{}
	}
	d.c.replicas.mu.Unlock()
	switch {
	case warn:
		d.c.warn("locks are granted without acknowledgement: the server has no replica", "server", d.heirs.Addr)
	case !bare && !before.IsZero():
		d.c.warn("locks are acknowledged again", "server", d.heirs.Addr)
	}
}

// headcount has the numbers of a server's replicas, as reported by the server.
type headcount struct {
	live    int // replicas able to acknowledge
	silent  int // replicas with a lag above lagMax
	syncing int // replicas in their first synchronization

	liveAddrs, syncingAddrs []string
}

// parseReplicas decodes a reply to INFO replication, with lines such as
// "slave0:ip=10.0.0.2,port=6379,state=online,offset=1,lag=0".
func parseReplicas(info resp.Value) (h headcount, err error) {
	text, err := info.Text()
	if err = errors.Join(info.Err(), err); err != nil {
		return h, fmt.Errorf("INFO replication: %w", err)
	}
	master := false
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if name == "role" {
			master = value == "master"
		}
		if !strings.HasPrefix(name, "slave") || !strings.Contains(value, ",state=") {
			continue
		}
		addr := net.JoinHostPort(infoField(value, "ip"), infoField(value, "port"))
		switch seconds, err := strconv.Atoi(infoField(value, "lag")); {
		case !strings.Contains(value, ",state=online,"):
			h.syncing++
			h.syncingAddrs = append(h.syncingAddrs, addr)
		case err == nil && seconds > lagMax:
			h.silent++
		default:
			h.live++
			h.liveAddrs = append(h.liveAddrs, addr)
		}
	}
	if !master {
		return h, errNotMaster
	}
	return h, nil
}

// infoField returns a field of a line of INFO such as "ip=10.0.0.2,port=6379".
func infoField(line, name string) string {
	_, value, _ := strings.Cut(","+line, ","+name+"=")
	value, _, _ = strings.Cut(value, ",")
	return value
}
