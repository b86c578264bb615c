package cluster

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/netfail"
	"github.com/lockwire/lockwire/resp"
)

// action is the reaction of a call to a failed attempt.
type action uint8

const (
	stop     action = iota // return to the caller
	again                  // try the owner of the slot, according to the latest table
	relocate               // find the owner of the slot, then try the owner
	follow                 // try the node named in the reply, the new owner of the slot
	ask                    // try the node named in the reply once, after ASKING
	redial                 // try the node that answered, over a new connection
)

// policy bounds a call.
type policy struct {
	attempts, redirects int
	budget              time.Duration // 0 or less: none
}

// unbounded is the policy for an attempt at a replica.
var unbounded = policy{attempts: math.MaxInt, redirects: math.MaxInt}

// history describes the earlier attempts of a call, without the attempt to be decided about.
type history struct {
	failures  int           // number of failed attempts
	redirects int           // number of MOVED and ASK replies in a row, up to the last attempt
	redialled bool          // the call has redialled a node after its MOVED to itself
	asking    bool          // the attempt to be decided about was sent after ASKING
	elapsed   time.Duration // since the first failure
}

// decision is the reaction to an attempt.
type decision struct {
	action  action
	addr    string // for follow and ask: the announced address
	slot    int    // for follow
	refresh bool   // the topology may have changed
	pause   bool   // pause before the next attempt, longer each time
	err     error  // for stop: the error for the caller
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

// decide returns the reaction of a call to an attempt on the node from, after failure err: an error
// reply or an error of package conn. Only an attempt that certainly did not run is repeated, within
// the bounds of p, whatever the causes.
func decide(err error, from origin, h history, p policy) decision {
	d := judge(err, from, h)
	if d.action == stop {
		d.err = err
		return d
	}
	redirected := isRedirect(err)
	switch {
	case redirected && h.redirects >= p.redirects:
		return decision{refresh: true, err: fmt.Errorf("cluster: %w, %d: %w", errLoop, h.redirects+1, err)}
	case h.failures+1 >= p.attempts, p.budget > 0 && h.elapsed >= p.budget:
		return decision{refresh: d.refresh, err: err}
	}
	return d
}

// judge is decide without the bounds of a policy.
func judge(err error, from origin, h history) decision {
	switch {
	case errors.Is(err, conn.ErrUncertain):
		return decision{refresh: true}
	case errors.Is(err, conn.ErrNotSent):
		return judgeUnsent(err, h)
	}
	reply, ok := errors.AsType[resp.Error](err)
	if !ok {
		return decision{}
	}
	switch resp.Error(reply.Prefix()) {
	case resp.ErrMoved, resp.ErrAsk:
		return judgeRedirect(reply, from, h)
	case resp.ErrUnblocked:
		if strings.HasPrefix(string(reply), unblockedByServer) {
			return decision{action: again, pause: true, refresh: true}
		}
		return decision{}
	case resp.ErrTryAgain, resp.ErrNoReplicas, resp.ErrBusy:
		return decision{action: again, pause: true}
	}
	if netfail.Reply(reply) == netfail.Final {
		return decision{}
	}
	return decision{action: again, pause: true, refresh: true}
}

// unblockedByServer begins the reply to a blocked command whose node has become a replica: the command has not run, and is
// repeated. Any other UNBLOCKED is the result of CLIENT UNBLOCK.
const unblockedByServer = "UNBLOCKED force unblock"

func judgeRedirect(reply resp.Error, from origin, h history) decision {
	r, ok := reply.Redirect()
	if !ok {
		return decision{}
	}
	addr, ok := from.resolve(r.Host, r.Port, "", false)
	d := decision{addr: addr, slot: r.Slot, refresh: true, pause: h.redirects >= freeRedirects}
	asked := errors.Is(reply, resp.ErrAsk)
	switch {
	case !ok:
		return decision{action: relocate, refresh: true}
	case asked && addr == from.addr(), !asked && addr == from.addr() && h.redialled: // to itself
		return decision{action: relocate, refresh: true, pause: true}
	case asked && h.asking: // the slot may be here only after the next move
		return decision{action: again, refresh: true, pause: true}
	case asked: // no pause: the slot may move on
		d.action, d.refresh, d.pause = ask, false, false
	case addr == from.addr(): // the connection may lead through a proxy, or to an earlier process
		d.action = redial
	default:
		d.action = follow
	}
	return d
}

// freeRedirects is the number of successive redirections that a call follows without a pause. More
// mean that the nodes do not agree yet.
const freeRedirects = 2

// judgeUnsent decides about an attempt that sent nothing, because there was no connection, the
// connection was lost before, or this program refused the command.
func judgeUnsent(err error, h history) decision {
	if errors.Is(err, conn.ErrRefused) {
		return decision{}
	}
	if _, ok := errors.AsType[unserved](err); ok {
		return decision{action: relocate, refresh: true}
	}
	if isDial(err) && netfail.Dial(err) == netfail.Final {
		return decision{refresh: true}
	}
	if isDial(err) || hasLeft(err) {
		return decision{action: relocate, refresh: true}
	}
	return decision{action: again, refresh: true, pause: h.failures > 0}
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
