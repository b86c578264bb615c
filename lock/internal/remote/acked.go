package remote

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/lock/internal/clock"
	"github.com/lockwire/lockwire/resp"
)

var (
	errBareSoon = errors.New("its replicas have disappeared only recently")
	errSeveral  = errors.New("another server has become the master between two parts of the request")
)

// AckedDoer is a Doer that sends scripts to a server, followed by WAIT. The Server sends the batch over an exclusive
// connection. Unless the number of acknowledgements is fixed, the same write asks the server for its identity and its replicas.
//
// The replicas that could replace the server are the candidates. countBefore counts them ahead of the scripts, for WAIT;
// countAfter right after the scripts, for Confirm.
//
// By default all replicas must acknowledge. An acknowledgement by a single replica is worthless if another replica becomes
// the master: during a failover the former master goes on for a moment, with replicas not yet aware of the new master.
type AckedDoer struct {
	r          *Replicas
	hold       Hold            // a hold of the request, whose holds are all on one server
	succession conn.Succession // known before the request
	need       int             // number of replicas passed to WAIT
	wait       time.Duration   // timeout passed to WAIT
	leaves     time.Time       // end of the caller's interest; zero if unknown

	// The outcome.
	ran         bool      // a server has run a script
	twoServers  bool      // several servers have run scripts
	asked       time.Time // the time before the request
	answered    time.Time
	acked       int64                     // number of acknowledgements
	failed      error                     // error of WAIT
	info        [len(sections)]resp.Value // replies to sections, before WAIT
	behind      resp.Value                // reply to the first of sections, behind WAIT
	identity    string                    // of the server, comparable with Succession.Master
	identityErr error                     // why identity is unknown
}

// Hold names a lock and its owner, for the log.
type Hold struct{ Name, Kind, Owner string }

// AckedDoer returns an AckedDoer for a request about h, and determines the required number of replicas. It returns a [Shortage] if the
// server certainly has too few. leaves is the end of the caller's interest; zero if unknown. WAIT gets three quarters of the time that
// ctx has left by then, if that is less than Acks.Timeout.
func (r *Replicas) AckedDoer(ctx context.Context, h Hold, leaves time.Time) (*AckedDoer, error) {
	d := &AckedDoer{r: r, hold: h, wait: r.acks.Timeout, leaves: leaves}
	defer d.limitWait(ctx)
	var unknown error
	d.succession, unknown = r.succession(ctx, h.Name, time.Time{})
	switch d.need = r.acks.Exact; {
	case unknown != nil:
		d.need = max(d.need, 1) // Confirm asks the other nodes again
	case d.need == 0:
		d.need = r.acks.Of(d.expected(ctx))
	default:
		return d, d.checkEnough(ctx)
	}
	return d, nil
}

// limitWait limits the timeout of WAIT to three quarters of the remaining time of ctx.
func (d *AckedDoer) limitWait(ctx context.Context) {
	if deadline, ok := ctx.Deadline(); ok {
		d.wait = max(min(d.wait, time.Until(deadline)*3/4), time.Millisecond)
	}
}

// checkEnough returns an error if the server certainly has fewer replicas than needed.
func (d *AckedDoer) checkEnough(ctx context.Context) error {
	if d.r.server.Failover == nil || d.succession.Replicas >= d.need {
		return nil
	}
	s, err := d.r.succession(ctx, d.hold.Name, time.Now().Add(-WitnessAge))
	if err != nil || s.Replicas+s.Away >= d.need {
		return nil
	}
	return d.shortage(d.need, fmt.Errorf("it has no more than %d", s.Replicas+s.Away))
}

// expected returns the number of candidates by the record or, if that is no basis, by a new count. Confirm verifies a result of 0.
func (d *AckedDoer) expected(ctx context.Context) int {
	d.r.mu.Lock()
	st := *d.r.recordOf(d.succession)
	d.r.mu.Unlock()
	n, trusted := max(d.succession.Replicas-st.syncing, st.candidates), st.seen && !st.lastFailed
	switch {
	case trusted && n > 0:
		return n
	case trusted && d.succession.Bare && !st.had, d.r.bareForLong(&st):
		return 0
	}
	n, bare := d.countBefore(ctx)
	if bare {
		return 0
	}
	return max(n, 1)
}

// countBefore counts the candidates ahead of a request; bare as of noteCandidates.
func (d *AckedDoer) countBefore(ctx context.Context) (n int, bare bool) {
	asked := time.Now()
	h, err := d.askHeadcount(ctx)
	if err != nil {
		return 0, false
	}
	d.r.classifyMuted(d.succession, &h, asked)
	since := asked.Add(-WitnessAge)
	if news := d.r.changedAt(d.succession, h); !news.IsZero() {
		ctx, since = context.WithValue(ctx, conn.EverySentinel, true), clock.Earlier(news, since)
	}
	s, err := d.r.succession(ctx, d.hold.Name, since)
	if err != nil {
		return 0, false
	}
	n = d.r.candidates(h, s)
	return n, d.r.noteCandidates(s, h, n)
}

// Send sends a script and returns its reply.
func (d *AckedDoer) Send(ctx context.Context, cmd resp.Command) (resp.Value, error) {
	return OfOne(d.SendBatch(ctx, []resp.Command{cmd}))
}

// OfOne returns what Send returns of the results of SendBatch for a single command.
func OfOne(replies []resp.Value, err error) (resp.Value, error) {
	if err != nil {
		return resp.Value{}, err
	}
	return replies[0], replies[0].Err()
}

// Trace returns the Trace of the server.
func (d *AckedDoer) Trace() *conn.Trace { return conn.TraceOf(d.r.server.Doer) }

// SendBatch sends scripts.
func (d *AckedDoer) SendBatch(ctx context.Context, cmds []resp.Command) ([]resp.Value, error) {
	n := len(cmds)
	sent := slices.Clone(cmds)
	wait := max(d.wait.Milliseconds(), 1)
	if d.r.acks.Exact == 0 {
		identity := resp.Cmd("INFO", "server")
		if d.r.server.Spread != nil {
			identity = resp.Cmd("CLUSTER", "MYID")
		}
		sent = append(append(sent, sections[:]...), identity)
	}
	if d.need == 0 {
		wait = 1 // WAIT 0 returns at once
	}
	if !d.leaves.IsZero() {
		ctx = context.WithValue(ctx, conn.Leaves, d.leaves)
	}
	sent = append(sent, resp.Cmd("WAIT", d.need, wait).On(d.hold.Name))
	if d.r.acks.Exact == 0 {
		sent = append(sent, sections[0], resp.Cmd("WAIT", 0, 1).On(d.hold.Name)) // which returns at once: a Server knows the batch by its end
	}
	asked := time.Now()
	replies, err := d.r.server.Doer.SendBatch(ctx, sent)
	if err != nil {
		return replies[:min(n, len(replies))], err
	}
	d.note(asked, replies[n:], ranAny(cmds, replies))
	return replies[:n], nil
}

// ranAny reports whether a script among cmds has a result.
func ranAny(cmds []resp.Command, replies []resp.Value) bool {
	for i := range cmds {
		if strings.HasPrefix(cmds[i].Name(), "EVAL") && replies[i].Err() == nil {
			return true
		}
	}
	return false
}

// note records the replies behind the scripts of a batch sent at asked. ran: the server has run a script of the batch. Otherwise the batch
// does not count beside another batch. All batches that count must be acknowledged, and be of the same server: the replicas of a next server
// do not know what a former server has run.
func (d *AckedDoer) note(asked time.Time, replies []resp.Value, ran bool) {
	if d.ran && !ran {
		return
	}
	before := d.identity
	if d.r.acks.Exact == 0 {
		d.info = [len(sections)]resp.Value(replies)
		d.identity, d.identityErr = d.r.server.identityIn(replies[len(sections)])
		replies = replies[len(sections)+1:]
		d.behind = replies[1]
	}
	acked := replies[0]
	got, _ := acked.Int()
	if d.ran {
		got = min(got, d.acked)
		d.twoServers = d.twoServers || d.identity != before
	}
	d.asked, d.answered, d.acked, d.failed, d.ran = asked, time.Now(), got, acked.Err(), ran
}

// identityIn returns the identity in the reply of a server, comparable with Succession.Master.
func (s *Server) identityIn(reply resp.Value) (who string, err error) {
	if err := reply.Err(); err != nil {
		return "", fmt.Errorf("asking the server for its identity: %w", err)
	}
	if s.Spread == nil {
		who, _, _ = ParseServerInfo(reply)
		return who, nil
	}
	return reply.Text()
}

// Confirm returns nil if enough replicas have acknowledged the request, else a [Shortage]. bare: the server has no
// replica, so no acknowledgement was needed.
func (d *AckedDoer) Confirm(ctx context.Context) (bare bool, err error) {
	need, err := d.required(ctx)
	switch {
	case err != nil:
		return false, d.shortage(max(need, 1), err)
	case d.acked < int64(need):
		return false, d.shortage(need, d.failed)
	}
	d.recordAcked(need == 0)
	return need == 0, nil
}

// required returns the number of replicas that have to acknowledge; 0 for a server without replicas.
func (d *AckedDoer) required(ctx context.Context) (need int, err error) {
	if d.r.acks.Exact > 0 {
		return d.need, nil
	}
	if d.twoServers {
		return d.need, errSeveral
	}
	n, bare, err := d.countAfter(ctx)
	if n == 0 && !bare {
		return 1, errors.Join(err, errBareSoon)
	}
	return d.r.acks.Of(n), err
}

// countAfter returns the number of candidates right after the scripts, by the server's reply and by the other nodes:
//
//   - An earlier answer of the other nodes is enough if the server has all their replicas, and no replica has come or gone since the last
//     count. Otherwise one of them may have replaced the server by now, and the nodes are asked again.
//   - After a change all sentinels are asked: a sentinel may not have heard of a replica that another one promotes.
//   - If replicas are missing, or one has come before the end of WAIT, newcomers may have acknowledged in place of candidates: they are subtracted
//     from acked.
func (d *AckedDoer) countAfter(ctx context.Context) (n int, bare bool, err error) {
	h, err := parseHeadcount(d.info[:])
	if err != nil {
		return 0, false, err
	}
	d.r.classifyMuted(d.succession, &h, d.asked)
	s, err := d.successionOfAnswerer(ctx, h, time.Time{})
	n = d.r.candidates(h, s)
	fresh, news := d.answered.Add(-WitnessAge), time.Now() // without an answer the others are asked as after a change
	if err == nil {
		news = d.r.changedAt(s, h)
	}
	if !news.IsZero() {
		ctx = context.WithValue(ctx, conn.EverySentinel, true)
		if s, err = d.successionOfAnswerer(ctx, h, clock.Earlier(news, fresh)); err != nil {
			return n, false, err
		}
		n = d.r.candidates(h, s)
	}
	if n == 0 || len(h.live) < n || s.Away > 0 || len(h.syncing) > 0 {
		if s, err = d.successionOfAnswerer(ctx, h, fresh); err != nil {
			return n, false, err
		}
		n = d.r.candidates(h, s)
	}
	if n > 0 && (len(h.live) < n || len(h.syncing) > 0 || s.Away > 0 || !h.arrivals.last(d.behind)) {
		after, err := d.askHeadcount(ctx)
		if err != nil {
			return n, false, err
		}
		d.acked = max(d.acked-int64(h.newcomers(&after)), 0)
	}
	return n, d.r.noteCandidates(s, h, n), nil
}

// successionOfAnswerer returns other nodes' information about the answering server. It returns an error unless the other nodes name the
// server as the master, or as the master of another part of the keys (the target of a migrating slot).
//
// For seconds after a promotion or a restart, sentinels report a wrong identity or none. With live replicas the address is
// enough if the Pool has had no other master since before the request, because a Pool refuses a former master's answer to WAIT.
func (d *AckedDoer) successionOfAnswerer(ctx context.Context, h headcount, since time.Time) (conn.Succession, error) {
	s, err := d.r.succession(ctx, d.hold.Name, since)
	if err != nil || d.r.server.Failover == nil {
		return s, err
	}
	spread := d.r.server.Spread
	switch {
	case d.identityErr != nil || d.identity == s.Master || spread == nil && len(h.live) > 0 && s.Addr == d.succession.Addr && s.Changes == d.succession.Changes:
		return s, d.identityErr
	case spread == nil || since.IsZero():
		return s, errNotMaster
	}
	if s, err = spread.SuccessionOf(ctx, d.identity, since); err != nil {
		err = fmt.Errorf("%w: %w", errNotMaster, err)
	}
	return s, err
}

// Shortage tells that too few replicas have acknowledged a request.
type Shortage struct {
	Name          string // a key of the server
	Server        string // the server's address, if known
	Needed, Acked int    // replicas
	Within        time.Duration
	Err           error // why so many replicas were needed, or nil
}

// shortage records a lack of acknowledgements and returns the error.
func (d *AckedDoer) shortage(need int, cause error) error {
	d.r.mu.Lock()
	d.r.recordOf(d.succession).lastFailed = true
	d.r.mu.Unlock()
	return d.r.acks.Shortage(Shortage{
		Name: d.hold.Name, Server: d.succession.Addr, Needed: need, Acked: int(d.acked), Within: d.wait, Err: cause,
	})
}

// recordAcked records enough acknowledgements. It logs a warning for a server without a replica, and the end of the condition.
func (d *AckedDoer) recordAcked(bare bool) {
	d.r.mu.Lock()
	st := d.r.recordOf(d.succession)
	st.lastFailed = false
	warned := st.warned
	st.warned = bare
	if !bare {
		st.had, st.bareSince = true, time.Time{}
	}
	d.r.mu.Unlock()
	switch addr := d.succession.Addr; {
	case bare:
		d.r.server.Log.WarnOfMany(addr, d.hold.Name, d.hold.Kind, d.hold.Owner,
			"locks are granted without acknowledgement: the server has no replica", "server", addr)
	case warned:
		d.r.server.Log.Warn("locks are acknowledged again", "server", addr)
	}
}

// askHeadcount asks the server for its replicas.
func (d *AckedDoer) askHeadcount(ctx context.Context) (headcount, error) {
	var cmds []resp.Command
	for _, section := range sections {
		cmds = append(cmds, section.On(d.hold.Name))
	}
	replies, err := d.r.server.Doer.SendBatch(Patient(ctx), cmds)
	if err != nil {
		return headcount{}, err
	}
	return parseHeadcount(replies)
}
