package cluster

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/netfail"
	"github.com/lockwire/lockwire/resp"
)

// attempt is a failed attempt of a call, with all that the decision about it depends on.
type attempt struct {
	err     error         // the failure: an error reply or an error of package conn
	from    origin        // the node of the attempt; zero without a node
	asking  bool          // sent after ASKING
	read    bool          // sent to a replica
	earlier error         // the last failure before, other than redirections
	elapsed time.Duration // since the first failure of the call
	history               // without the attempt
	bounds  policy

	name       string // of the command
	pinned     bool   // the call is bound to its node
	noRepeat   bool   // the caller wants each refusal: see conn.NoRepeat
	noTryAgain bool   // the caller wants TRYAGAIN: see conn.NoTryAgain
	ctxErr     error  // Err of the caller's context; nil before its end
	ctxEnd     error  // the reason of that end
	closed     bool   // the Cluster is closed
}

// history describes the attempts of a call. Attempts at replicas do not count.
type history struct {
	failures  int      // number of failed attempts
	redirects int      // number of MOVED and ASK replies in a row, up to the last attempt
	redialled []string // the nodes that the call has redialled after their MOVED to themselves; not changed in place
}

// policy bounds a call.
type policy struct {
	attempts, redirects int
	budget              time.Duration // 0 or less: none
}

// decision is the reaction to an attempt: what the call does, and what the Cluster learns.
type decision struct {
	action action
	addr   string  // for follow and ask: the announced address
	pause  pause   // before the next attempt
	err    error   // for stop: the error for the caller; otherwise the failure
	after  history // with the attempt

	refresh bool // the topology may have changed
	silent  bool // the node did not answer
	moved   bool // the node at addr serves slot
	slot    int
	changed bool // the node needs new connections
}

// action is what a call does after a failed attempt.
type action uint8

const (
	stop     action = iota // return to the caller
	again                  // try the owner of the slot, according to the latest table
	relocate               // find the owner of the slot, then try the owner
	follow                 // try the node named in the reply, the new owner of the slot
	ask                    // try the node named in the reply once, after ASKING
	redial                 // try the node that answered, over a new connection
)

// pause is the kind of a pause. Each pause of a call is longer than the one before.
type pause uint8

const (
	noPause     pause = iota
	backoff           // within the limits of conn.Retry
	untilUp           // after CLUSTERDOWN: the node is ready in the moment in which the cluster is
	untilAgreed       // after redirections back and forth: nodes agree after a heartbeat
)

// length returns the length of pause n of a call, counted from 0.
func (p pause) length(n int, retry conn.Retry) time.Duration {
	switch p {
	case noPause:
		return 0
	case untilUp:
		retry.MaxBackoff = min(retry.MaxBackoff, max(64*time.Millisecond, retry.MinBackoff))
	case untilAgreed:
		n += 3 // doublings: the redirections of a call then last some hundred milliseconds
	}
	return netfail.Backoff(n, retry.MinBackoff, retry.MaxBackoff)
}

var errLoop = errors.New("too many redirections")

// unserved is the failure of an attempt without a node.
type unserved struct{ slot int }

func (e unserved) Error() string {
	if e.slot == anySlot {
		return "no node serves slots"
	}
	return fmt.Sprintf("slot %d is served by no node", e.slot)
}

// decide returns the reaction to a failed attempt: what the failure means, within the bounds of the
// policy, unless the call ends. Only an attempt that certainly did not run is repeated.
func decide(a attempt) decision {
	d := judge(a)
	redirected := isRedirect(a.err)
	switch over := a.bounds.budget > 0 && a.elapsed >= a.bounds.budget; {
	case d.action == stop, a.read: // the bounds are for the owner
	case redirected && a.redirects >= a.bounds.redirects:
		d = decision{refresh: true, err: fmt.Errorf("cluster: %w, %d: %w", errLoop, a.redirects+1, a.err)}
	case over || a.failures+1 >= a.bounds.attempts:
		d = decision{refresh: d.refresh}
	}
	d.silent = d.refresh && isTransport(a.err) && a.ctxErr == nil
	if !a.pinned && !a.read { // a replica may not know of a failover yet
		d.moved, d.changed = d.action == follow, d.action == redial
	}
	if why := a.end(d); why != nil {
		d.action, d.err = stop, why
		return d
	}
	d.err, d.after = a.err, a.history
	if a.read { // at once, with the owner
		d.action, d.pause = again, noPause
		return d
	}
	d.after.failures++
	if d.changed {
		d.after.redialled = append(slices.Clip(a.redialled), a.from.addr())
	}
	if d.after.redirects++; !redirected {
		d.after.redirects = 0
	}
	return d
}

// end returns the error for the caller if the call ends, and nil if the call goes on with d.
func (a *attempt) end(d decision) error {
	err := a.explained()
	isEnd := a.ctxErr != nil && errors.Is(err, a.ctxErr)
	switch {
	case d.action != stop && a.noRepeat && !isTransport(a.err): // the caller decides
		return a.err
	case isEnd && a.earlier != nil && errors.Is(err, conn.ErrNotSent): // the earlier failure says more
		return endedError(a.name, a.ctxEnd, a.earlier)
	case d.action == stop:
		return cmp.Or(d.err, err)
	case a.noTryAgain && errors.Is(err, resp.ErrTryAgain) && !isTransport(err): // the caller decides
		return err
	case a.ctxErr != nil && !isEnd:
		return endedError(a.name, a.ctxEnd, err)
	case a.closed && !errors.Is(err, conn.ErrClosed):
		return endedError(a.name, conn.ErrClosed, err)
	case a.ctxErr != nil, a.closed: // err says so
		return err
	case a.pinned && (d.action == follow || d.action == ask || hasLeft(err)): // no other node is allowed
		return err
	}
	return nil
}

// explained returns a.err, and for a redirection also the earlier failure: the redirection may lead
// nowhere.
func (a *attempt) explained() error {
	if a.earlier == nil || !isRedirect(a.err) {
		return a.err
	}
	e, ok := a.earlier.(*conn.Error)
	if !ok { // the reply of the node that the redirection named
		e = &conn.Error{Err: a.earlier}
	}
	return &conn.Error{Op: a.name, Addr: e.Addr, Err: fmt.Errorf("%w; redirected there by: %w", e.Err, a.err)}
}

// endedError returns the error of a call that ends for reason, after an attempt that failed with last.
func endedError(name string, reason, last error) error {
	return &conn.Error{Op: name, Err: fmt.Errorf("%w; last attempt: %w", reason, last)}
}

// judge returns what an attempt's failure means, whatever the caller wants and the policy allows.
// With stop, the next attempt would fail alike, or the command may have run.
func judge(a attempt) decision {
	switch {
	case errors.Is(a.err, conn.ErrUncertain):
		return decision{refresh: true}
	case errors.Is(a.err, conn.ErrNotSent):
		return a.judgeUnsent()
	}
	reply, ok := errors.AsType[resp.Error](a.err)
	if !ok {
		return decision{}
	}
	switch resp.Error(reply.Prefix()) {
	case resp.ErrMoved, resp.ErrAsk:
		return a.judgeRedirect(reply)
	case resp.ErrTryAgain, resp.ErrNoReplicas, resp.ErrBusy:
		return decision{action: again, pause: backoff}
	case resp.ErrClusterDown:
		return decision{action: again, pause: untilUp, refresh: true}
	}
	if netfail.Reply(reply) == netfail.Final && !strings.HasPrefix(string(reply), unblockedByServer) {
		return decision{}
	}
	return decision{action: again, pause: backoff, refresh: true}
}

// unblockedByServer begins the reply to a blocked command whose node has become a replica: the command has not run, and is
// repeated. Any other UNBLOCKED is the result of CLIENT UNBLOCK.
const unblockedByServer = "UNBLOCKED force unblock"

// freeRedirects is the number of successive redirections that a call follows without a pause. More
// mean that the nodes do not agree yet.
const freeRedirects = 2

func (a *attempt) judgeRedirect(reply resp.Error) decision {
	r, ok := reply.Redirect()
	if !ok {
		return decision{}
	}
	addr, ok := a.from.resolve(shardNode{host: r.Host, port: r.Port}, false)
	asked, toItself := errors.Is(reply, resp.ErrAsk), addr == a.from.addr()
	switch {
	case !ok:
		return decision{action: relocate, refresh: true}
	case toItself && (asked || slices.Contains(a.redialled, addr)):
		return decision{action: relocate, refresh: true, pause: untilAgreed}
	case asked && a.asking: // the slot may be here only after the next move
		return decision{action: again, refresh: true, pause: untilAgreed}
	case asked: // at once: the slot may move on
		return decision{action: ask, addr: addr}
	}
	d := decision{action: follow, addr: addr, slot: r.Slot, refresh: true}
	if toItself { // the connection may lead through a proxy, or to an earlier process
		d.action = redial
	}
	if a.redirects >= freeRedirects {
		d.pause = untilAgreed
	}
	return d
}

// judgeUnsent judges an attempt that sent nothing, because there was no connection, the connection
// was lost before, or this program refused the command.
func (a *attempt) judgeUnsent() decision {
	switch _, noNode := errors.AsType[unserved](a.err); {
	case errors.Is(a.err, conn.ErrRefused):
		return decision{}
	case isDial(a.err) && netfail.Dial(a.err) == netfail.Final:
		return decision{refresh: true}
	case noNode, isDial(a.err), hasLeft(a.err):
		return decision{action: relocate, refresh: true}
	case a.failures > 0:
		return decision{action: again, refresh: true, pause: backoff}
	}
	return decision{action: again, refresh: true}
}

func isDial(err error) bool {
	for e, ok := errors.AsType[*conn.Error](err); ok; e, ok = errors.AsType[*conn.Error](e.Err) {
		if e.Op == "dial" {
			return true
		}
	}
	return false
}

func isRedirect(err error) bool { return !isTransport(err) && netfail.Redirects(err) }

// leftError is the reason for closing the connections to a node after the Cluster stopped using the
// node.
type leftError string

func (e leftError) Error() string { return string(e) }

const (
	errLeft     leftError = "the node has left the cluster"
	errReplaced leftError = "another node has become the master of its slots"
	errRedialed leftError = "the node is connected to anew, as it has changed"
)

// hasLeft reports whether err means that the Cluster has stopped using a node.
func hasLeft(err error) bool {
	_, ok := errors.AsType[leftError](err)
	return ok
}

// isTransport reports whether err is a failure of the transport, not a reply of the server.
func isTransport(err error) bool {
	return errors.Is(err, conn.ErrUncertain) || errors.Is(err, conn.ErrNotSent)
}
