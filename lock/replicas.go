package lock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/resp"
)

// Acks is how many replicas of a server have to have a lock before whoever acquires it gets it. A number above 0 is that
// many, however many there are.
type Acks int

const (
	// AcksAuto asks for all that could take the server's place, in a cluster and under Sentinel, and for none of a server that was
	// named by its address. A replica that is down does not count.
	AcksAuto Acks = 0
	// AcksOff asks for none.
	AcksOff Acks = -1
	// AcksMajority asks for so many that the server and they are more than half of all that have not failed.
	AcksMajority Acks = -2
)

// of is how many of n replicas have to acknowledge.
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
	// bareFor is for how many AckTimeouts a server that has had replicas must have none before it is taken for one without.
	bareFor = 3
	// witnessAge is how old at most what others say of a server may be where it matters: if it has no replica, or fewer than before.
	// It is less than any failover takes.
	witnessAge = 500 * time.Millisecond
	// lagMax is how long in seconds a replica may not have been heard of that acknowledges.
	lagMax = 2
)

var (
	errNotMaster = errors.New("the server is no longer the master")
	errBareSoon  = errors.New("its replicas have not been gone for long")
)

// replicas is what a client knows about the replicas of servers. It decides whether the next request waits for them or counts
// them. That there are none is never taken from here: that is found out in the same write, for each request that needs none.
type replicas struct {
	mu    sync.Mutex
	known map[string]*standing // of servers by what they call themselves; guarded by mu
}

// standing is what is known of the replicas of one server.
type standing struct {
	count  int       // as it was counted last
	seen   bool      // it was counted once
	had    bool      // there was one at some time
	doubt  bool      // the last request that waited did so in vain
	bare   time.Time // since when there is none; zero: there is one, or that is not known
	warned time.Time // when it was last said that there is none
}

// at returns what is known of a server. The caller has mu.
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

// counted takes note that a server has n replicas that may acknowledge, and reports whether one without is to be taken for that.
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

// succession is what others than the server that has name say of it.
func (c *Client) succession(ctx context.Context, name string, since time.Time) (conn.Succession, error) {
	if c.nature.failover == nil {
		return conn.Succession{Addr: c.route(name), Bare: true}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.AckTimeout)
	defer cancel()
	return c.nature.failover.Succession(ctx, name, since)
}

// route names the server that has name.
func (c *Client) route(name string) string {
	if c.nature.spread == nil {
		return ""
	}
	return c.nature.spread.Route(name)
}

// acked sends scripts for one server and WAIT behind them: on a connection of their own, which is the Server's matter. Unless it
// has been said how many have to acknowledge, it asks in the same write who the server is and which replicas it has.
//
// An acknowledgement is worth nothing if it comes from one replica while another one is made the master: in each failover the former
// master goes on for a moment, with those replicas that have not been told yet. So all of them have to acknowledge.
type acked struct {
	c      *Client
	name   string          // a key of the server
	heirs  conn.Succession // what was known before
	need   int             // how many WAIT waits for
	wait   time.Duration   // and for how long
	sent   bool
	leaves time.Time // when nobody cares for it any more; zero: that is not said

	// The outcome.
	answered time.Time
	got      int64      // replicas that have it
	failed   error      // of WAIT
	info     resp.Value // of replication
	identity resp.Value
}

// acking returns what sends an acquire of t in the place of the server, or nil if it needs no acknowledgement: one that changes
// nothing does not.
func (c *Client) acking(ctx context.Context, t *target) (*acked, error) {
	if !c.acks || t.kind.undo == nil {
		return nil, nil
	}
	d, err := c.newAcked(ctx, t.name)
	if d != nil {
		d.leaves, _ = ctx.Deadline()
	}
	return d, err
}

// newAcked finds out how many replicas there should be. An error says that there certainly are too few.
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
		d.need = 1 // others are asked again, behind the scripts
	}
	return d, nil
}

// hurry has d wait for no longer than ctx leaves the time for.
func (d *acked) hurry(ctx context.Context) {
	if deadline, ok := ctx.Deadline(); ok {
		d.wait = max(min(d.wait, time.Until(deadline)*3/4), time.Millisecond)
	}
}

// enough returns an error if there are fewer replicas than are needed.
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

// expect is how many replicas there are for all that is known: 0 only if that is to be found out for certain with the request.
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

// candidates is how many replicas a server has that could take its place without what they have not acknowledged: those that
// it hears of, and those that others take for healthy, unless the server says that they begin from scratch.
func (c *Client) candidates(h headcount, s conn.Succession) int {
	if c.nature.failover == nil {
		return h.live + h.silent
	}
	return max(h.live, s.Replicas-h.syncing)
}

// Send sends a script and returns its reply.
func (d *acked) Send(ctx context.Context, cmd resp.Command) (resp.Value, error) {
	replies, err := d.SendBatch(ctx, []resp.Command{cmd})
	if err != nil {
		return resp.Value{}, err
	}
	return replies[0], replies[0].Err()
}

// SendBatch sends scripts.
func (d *acked) SendBatch(ctx context.Context, cmds []resp.Command) ([]resp.Value, error) {
	n := len(cmds)
	wire := slices.Clone(cmds)
	wait := max(d.wait.Milliseconds(), 1)
	if d.c.cfg.Acks <= 0 {
		wire = append(wire, resp.Cmd("INFO", "replication"), d.c.whoAreYou())
	}
	if d.need == 0 {
		wait = 1 // which it never takes
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
	if d.sent { // of two batches both have to be acknowledged
		got = min(got, d.got)
	}
	d.got, d.sent = got, true
	d.failed = last.Err()
	if d.c.cfg.Acks <= 0 {
		d.info, d.identity = replies[n], replies[n+1]
	}
	return replies[:n], nil
}

// whoAreYou is the command by which a server says what a Succession has as its Master.
func (c *Client) whoAreYou() resp.Command {
	if c.nature.spread != nil {
		return resp.Cmd("CLUSTER", "MYID")
	}
	return resp.Cmd("INFO", "server")
}

// confirm returns nil if what was sent has been acknowledged by as many replicas as are needed, and otherwise a
// [*NotReplicatedError]. bare says that none was needed, since there is none.
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

// count is how many replicas there were right behind the scripts. What others have said of them counts, but must be young where a
// replica that the server does not hear of, and so did not acknowledge, may be its successor by now.
func (d *acked) count(ctx context.Context) (n int, alone bool, err error) {
	h, err := parseReplicas(d.info)
	if err != nil {
		return 0, false, err
	}
	s, err := d.answerer(ctx, h, time.Time{})
	n = d.c.candidates(h, s)
	if err != nil || n == 0 || s.Away > 0 || d.c.fewer(s, h) {
		if s, err = d.answerer(ctx, h, d.answered.Add(-witnessAge)); err != nil {
			return n, false, err
		}
		n = d.c.candidates(h, s)
	}
	return n, d.c.counted(s, n), nil
}

// fewer reports whether a server hears of fewer replicas than it had when they were counted last.
func (c *Client) fewer(s conn.Succession, h headcount) bool {
	c.replicas.mu.Lock()
	defer c.replicas.mu.Unlock()
	return h.live < c.replicas.at(s).count
}

// answerer is what others say of the server that has answered. It returns an error if that is not the one that they call the
// master, nor the master of another part of the keys, which the slot migrates to.
//
// Sentinels say for seconds of a server that has just become the master, or was started anew, that it is nobody or the one before.
// While it has replicas its address will do: a Pool takes no answer of a WAIT from a former master.
func (d *acked) answerer(ctx context.Context, h headcount, since time.Time) (conn.Succession, error) {
	s, err := d.c.succession(ctx, d.name, since)
	if err != nil || d.c.nature.failover == nil {
		return s, err
	}
	if err := d.identity.Err(); err != nil {
		return s, fmt.Errorf("the server does not say who it is: %w", err)
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

// short takes note that too few replicas have acknowledged, and returns the error for that.
func (d *acked) short(need int, cause error) error {
	d.c.replicas.mu.Lock()
	d.c.replicas.at(d.heirs).doubt = true
	d.c.replicas.mu.Unlock()
	return &NotReplicatedError{
		Name: d.name, Server: d.heirs.Addr, Needed: need, Acked: int(d.got), Within: d.wait, Err: cause,
	}
}

// bareWarning is the time between two warnings that a server has no replica.
const bareWarning = time.Minute

// settled takes note that there were enough replicas, and says so if it matters that there is none.
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

// headcount is what a server says of its replicas.
type headcount struct {
	live    int // acknowledge
	silent  int // have not been heard of for some seconds
	syncing int // have nothing yet
}

// parseReplicas reads a reply to INFO replication, in which lines are such as
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
		_, lag, _ := strings.Cut(value, ",lag=")
		lag, _, _ = strings.Cut(lag, ",")
		switch seconds, err := strconv.Atoi(lag); {
		case !strings.Contains(value, ",state=online,"):
			h.syncing++
		case err == nil && seconds > lagMax:
			h.silent++
		default:
			h.live++
		}
	}
	if !master {
		return h, errNotMaster
	}
	return h, nil
}
