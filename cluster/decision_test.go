package cluster_test

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/lockwire/lockwire/cluster"
	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/resp"
)

// decidingNode is the node of the attempts below.
const decidingNode = "10.0.0.9:7000"

// dialError returns the error of a command without a connection.
func dialError(cause error) error {
	return &conn.Error{Op: "GET", Addr: "a:1", Err: &conn.Error{Op: "dial", Addr: "a:1", Err: fmt.Errorf("connect: %w", cause)}}
}

var (
	lostBefore = &conn.Error{Op: "GET", Err: io.EOF}
	lostAfter  = &conn.Error{Op: "INCR", Addr: "a:1", Sent: true, Err: io.EOF}
	refusedAt  = dialError(syscall.ECONNREFUSED)
	refusedBy  = conn.CheckBatch([]resp.Command{resp.Cmd("BLPOP", "k", 0)}) // by package conn
	overdue    = &conn.Error{Op: "GET", Err: context.DeadlineExceeded}      // the context has ended
	errWrapped = fmt.Errorf("conn: transaction discarded: SET: %w (%w)", resp.Error("MOVED 1 a:2"), resp.Error("EXECABORT x"))
)

// meanings are the failures of the first attempt of a call: what the call does then, and what the
// Cluster learns.
var meanings = []struct {
	name         string
	err          error
	does, learns string
}{
	// Redirections: at once to the named node. Unknown or useless addresses are looked up, and nonsense is the reply.
	{"C11", resp.Error("MOVED 3999 10.0.0.1:7001"), "follow 10.0.0.1:7001", "moved, refresh"},
	{"C12", resp.Error("MOVED 3999 :7001"), "follow 10.0.0.9:7001", "moved, refresh"},
	{"C13", resp.Error("MOVED 3999 ?:7001"), "relocate", "refresh"},
	{"C14", resp.Error("MOVED 12182 ::1:7402"), "follow [::1]:7402", "moved, refresh"},
	{"C14 not a loopback", resp.Error("MOVED 12182 2001:db8::1:7402"), "follow [2001:db8::1]:7402", "moved, refresh"},
	{"C15", resp.Error("MOVED 3999 node1.example:7001"), "follow node1.example:7001", "moved, refresh"},
	{"C07", resp.Error("MOVED 3999 127.0.0.1:7001"), "follow 10.0.0.9:7001", "moved, refresh"},
	{"C16", resp.Error("MOVED 3999 10.0.0.9:7000"), "redial", "changed, refresh"},
	{"C16 by an empty host", resp.Error("MOVED 3999 :7000"), "redial", "changed, refresh"},
	{"in a transaction", errWrapped, "follow a:2", "moved, refresh"},
	{"C17 nothing", resp.Error("MOVED"), "stop", ""},
	{"C17 no address", resp.Error("MOVED x"), "stop", ""},
	{"C17 no slot", resp.Error("MOVED 99999 a:1"), "stop", ""},
	{"C17 no port", resp.Error("MOVED 1 a"), "stop", ""},
	{"C17 wrong port", resp.Error("MOVED 1 a:99999"), "stop", ""},
	{"ASK", resp.Error("ASK 3999 10.0.0.1:7001"), "ask 10.0.0.1:7001", ""},
	{"ASK, empty host", resp.Error("ASK 3999 :7001"), "ask 10.0.0.9:7001", ""},
	{"ASK, unknown host", resp.Error("ASK 3999 ?:7001"), "relocate", "refresh"},
	{"ASK for the node itself", resp.Error("ASK 3999 10.0.0.9:7000"), "relocate, pause until agreed", "refresh"},
	{"ASK without sense", resp.Error("ASK 1 a"), "stop", ""},

	// Temporary refusals: once more after a pause, and perhaps at another node.
	{"TRYAGAIN", resp.Error("TRYAGAIN Multiple keys request during rehashing of slot"), "again, pause", ""},
	{"NOREPLICAS", resp.Error("NOREPLICAS Not enough good replicas to write."), "again, pause", ""},
	{"BUSY", resp.Error("BUSY Redis is busy running a script."), "again, pause", ""},
	{"max clients", resp.Error("ERR max number of clients reached"), "again, pause", "refresh"},
	{"NOAUTH", resp.Error("NOAUTH Authentication required."), "again, pause", "refresh"},
	{"CLUSTERDOWN", resp.Error("CLUSTERDOWN Hash slot not served"), "again, pause until up", "refresh"},
	{"LOADING", resp.Error("LOADING Redis is loading the dataset in memory"), "again, pause", "refresh"},
	{"MASTERDOWN", resp.Error("MASTERDOWN Link with MASTER is down"), "again, pause", "refresh"},
	{"READONLY", resp.Error("READONLY You can't write against a read only replica."), "again, pause", "refresh"},
	{"READONLY in a script", resp.Error("ERR Error running script (call to f_0): @user_script:1: @user_script: 1: " +
		"-READONLY You can't write against a read only replica."), "again, pause", "refresh"},
	{"UNBLOCKED by a change of role", resp.Error("UNBLOCKED force unblock from blocking operation"), "again, pause", "refresh"},

	// Any other reply is the caller's.
	{"UNBLOCKED by CLIENT UNBLOCK", resp.Error("UNBLOCKED client unblocked via CLIENT UNBLOCK"), "stop", ""},
	{"WRONGTYPE", resp.Error("WRONGTYPE Operation against a key"), "stop", ""},
	{"CROSSSLOT", resp.Error("CROSSSLOT Keys in request don't hash to the same slot"), "stop", ""},
	{"NOSCRIPT", resp.Error("NOSCRIPT No matching script."), "stop", ""},
	{"OOM", resp.Error("OOM command not allowed"), "stop", ""},
	{"EXECABORT", resp.Error("EXECABORT Transaction discarded"), "stop", ""},
	{"NOPERM", resp.Error("NOPERM this user"), "stop", ""},
	{"ERR", resp.Error("ERR syntax error"), "stop", ""},
	{"refused by us", refusedBy, "stop", ""},
	{"nothing of ours", errors.New("anything"), "stop", ""},
	{"aborted", conn.ErrTxAborted, "stop", ""},

	// Without an answer: never again if the command may have run.
	{"uncertain", lostAfter, "stop", "refresh, silent"},
	{"uncertain over a refusal", &conn.Error{Op: "MULTI", Sent: true, Err: resp.Error("LOADING x")}, "stop", "refresh, silent"},
	{"connection lost before", lostBefore, "again", "refresh, silent"},
	{"node has left", &conn.Error{Op: "GET", Err: cluster.ErrLeft}, "relocate", "refresh, silent"},
	{"connection refused", refusedAt, "relocate", "refresh, silent"},
	{"no such host", dialError(&net.DNSError{Err: "no such host"}), "relocate", "refresh, silent"},
	{"dial timed out", dialError(context.DeadlineExceeded), "relocate", "refresh, silent"},
	{"dial: LOADING", dialError(resp.Error("LOADING x")), "relocate", "refresh, silent"},
	{"dial: max clients", dialError(resp.Error("ERR max number of clients reached")), "relocate", "refresh, silent"},
	{"dial: WRONGPASS", dialError(resp.Error("WRONGPASS x")), "stop", "refresh, silent"},
	{"dial: NOAUTH", dialError(resp.Error("NOAUTH x")), "stop", "refresh, silent"},
	{"dial: not TLS", dialError(tls.RecordHeaderError{Msg: "x"}), "stop", "refresh, silent"},
	{"dial: certificate", dialError(&tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}), "stop", "refresh, silent"},
	{"dial: alert", dialError(&net.OpError{Op: "remote error", Err: errors.New("bad certificate")}), "stop", "refresh, silent"},
	{"dial: not RESP", dialError(&resp.SyntaxError{}), "stop", "refresh, silent"},
}

// decideAbout is cluster.Decide for an attempt at decidingNode within 16 attempts, 8 redirections and
// 5 s, unless a says otherwise.
func decideAbout(a attempt) (does, learns string, err error) {
	a.From = decidingNode
	a.Attempts, a.MaxRedirects, a.Budget = cmp.Or(a.Attempts, 16), cmp.Or(a.MaxRedirects, 8), cmp.Or(a.Budget, 5*time.Second)
	return cluster.Decide(a)
}

func TestDecide(t *testing.T) {
	for _, test := range meanings {
		t.Run(test.name, func(t *testing.T) {
			does, learns, err := decideAbout(attempt{Err: test.err})
			if does != test.does || learns != test.learns {
				t.Errorf("%s; %s; want %s; %s", does, learns, test.does, test.learns)
			}
			if want := test.err; does == "stop" && err != want {
				t.Errorf("the caller gets %v, want %v", err, want)
			}
			boundsHold(t, test.err, does)
		})
	}
}

// boundsHold checks that a call ends at each of its bounds, whatever the failure, and that it does what
// it does at first without any.
func boundsHold(t *testing.T, err error, first string) {
	t.Helper()
	for name, over := range map[string]attempt{
		"attempts":     {Failures: 15},
		"one attempt":  {Attempts: 1, Budget: -1},
		"time":         {Failures: 1, Elapsed: 5 * time.Second},
		"all of them":  {Failures: 20, Redirects: 20, Elapsed: time.Hour},
		"far too many": {Failures: 1 << 30, Redirects: 1 << 30, Attempts: 1 << 30, Budget: -1},
	} {
		over.Err = err
		if does, _, final := decideAbout(over); does != "stop" || !errors.Is(final, err) {
			t.Errorf("beyond %s: %s, error %v", name, does, final)
		}
	}
	free := attempt{Err: err, Failures: 1, Elapsed: time.Hour, Attempts: math.MaxInt, Budget: -1}
	if err == lostBefore {
		first += ", pause"
	}
	if does, _, _ := decideAbout(free); does != first {
		t.Errorf("without bounds: %s, want %s as at first", does, first)
	}
}

type attempt = cluster.Attempt

var (
	movedToB, askB = resp.Error("MOVED 1 b:1"), resp.Error("ASK 1 b:1")
	toItself       = resp.Error("MOVED 1 " + decidingNode)
	tryAgain       = resp.Error("TRYAGAIN x")
	loading        = resp.Error("LOADING x")
	wrongType      = resp.Error("WRONGTYPE x")
	left           = &conn.Error{Op: "GET", Err: cluster.ErrLeft}
	over, errEnd   = context.DeadlineExceeded, errors.New("why")
)

// circumstances are later attempts, and attempts whose caller, context or Cluster has a say in the
// decision. err is the error for the caller.
var circumstances = []struct {
	name         string
	a            attempt
	does, learns string
	err          string
}{
	// Redirections in a row.
	{"the second MOVED", attempt{Err: movedToB, Failures: 1, Redirects: 1}, "follow b:1", "moved, refresh", ""},
	{"the third MOVED", attempt{Err: movedToB, Failures: 2, Redirects: 2}, "follow b:1, pause until agreed", "moved, refresh", ""},
	{"the eighth MOVED", attempt{Err: movedToB, Failures: 7, Redirects: 7}, "follow b:1, pause until agreed", "moved, refresh", ""},
	{"C23: the ninth", attempt{Err: movedToB, Failures: 8, Redirects: 8}, "stop", "refresh", "cluster: too many redirections, 9: MOVED 1 b:1"},
	{"ASK behind MOVED", attempt{Err: askB, Failures: 5, Redirects: 5}, "ask b:1", "", ""},
	{"ASK in answer to ASKING", attempt{Err: askB, Failures: 1, Redirects: 1, Asking: true}, "again, pause until agreed", "refresh", ""},
	{"C16: MOVED to itself again", attempt{Err: toItself, Failures: 1, Redialled: true}, "relocate, pause until agreed", "refresh", ""},
	{"MOVED behind one to itself", attempt{Err: movedToB, Failures: 1, Redialled: true}, "follow b:1", "moved, refresh", ""},
	{"connection lost for the second time", attempt{Err: lostBefore, Failures: 1}, "again, pause", "refresh, silent", ""},

	// B33: the error of a redirection that leads nowhere has the reason.
	{"back from a dead node", attempt{Err: movedToB, Failures: 15, Earlier: refusedAt}, "stop", "refresh",
		"conn: GET a:1: not sent: dial a:1: connect: connection refused; redirected there by: MOVED 1 b:1"},
	{"back from a node that loads", attempt{Err: askB, Failures: 15, Earlier: loading}, "stop", "",
		"conn: GET: not sent: LOADING x; redirected there by: ASK 1 b:1"},
	{"a loop", attempt{Err: movedToB, Failures: 8, Redirects: 8, Earlier: loading}, "stop", "refresh", "cluster: too many redirections, 9: MOVED 1 b:1"},

	// A replica: the owner is tried, at once and without bounds. A replica does not move slots.
	{"replica: MOVED", attempt{Err: movedToB, Read: true}, "again", "refresh", ""},
	{"replica: MOVED to itself", attempt{Err: toItself, Read: true}, "again", "refresh", ""},
	{"replica: LOADING", attempt{Err: loading, Read: true, Attempts: 1}, "again", "refresh", ""},
	{"replica: no connection", attempt{Err: refusedAt, Read: true, Attempts: 1}, "again", "refresh, silent", ""},
	{"replica: no answer", attempt{Err: lostAfter, Read: true}, "stop", "refresh, silent", lostAfter.Error()},
	{"replica: WRONGTYPE", attempt{Err: wrongType, Read: true}, "stop", "", "WRONGTYPE x"},

	// A Node: no other node is tried, and one master's redirection does not move slots.
	{"pinned: MOVED", attempt{Err: movedToB, Pinned: true}, "stop", "refresh", "MOVED 1 b:1"},
	{"pinned: ASK", attempt{Err: askB, Pinned: true}, "stop", "", "ASK 1 b:1"},
	{"pinned: MOVED to itself", attempt{Err: toItself, Pinned: true}, "redial", "refresh", ""},
	{"pinned: the node has left", attempt{Err: left, Pinned: true}, "stop", "refresh, silent", left.Error()},
	{"pinned: no connection", attempt{Err: refusedAt, Pinned: true}, "relocate", "refresh, silent", ""},
	{"pinned: LOADING", attempt{Err: loading, Pinned: true}, "again, pause", "refresh", ""},

	// The caller's wishes. The Cluster learns from refusals nevertheless.
	{"NoRepeat: MOVED", attempt{Err: movedToB, NoRepeat: true}, "stop", "moved, refresh", "MOVED 1 b:1"},
	{"NoRepeat: MOVED behind LOADING", attempt{Err: movedToB, Earlier: loading, NoRepeat: true}, "stop", "moved, refresh", "MOVED 1 b:1"},
	{"NoRepeat: MOVED to itself", attempt{Err: toItself, NoRepeat: true}, "stop", "changed, refresh", toItself.Error()},
	{"NoRepeat: LOADING", attempt{Err: loading, NoRepeat: true}, "stop", "refresh", "LOADING x"},
	{"NoRepeat: no connection", attempt{Err: refusedAt, NoRepeat: true}, "relocate", "refresh, silent", ""},
	{"NoTryAgain: TRYAGAIN", attempt{Err: tryAgain, NoTryAgain: true}, "stop", "", "TRYAGAIN x"},
	{"NoTryAgain: LOADING", attempt{Err: loading, NoTryAgain: true}, "again, pause", "refresh", ""},

	// The context has ended: the error contains its reason and the last failure that says more. The node is not to blame.
	{"ended: LOADING", attempt{Err: loading, CtxErr: over, CtxEnd: errEnd}, "stop", "refresh", "conn: GET: not sent: why; last attempt: LOADING x"},
	{"ended: MOVED", attempt{Err: movedToB, CtxErr: over, CtxEnd: errEnd}, "stop", "moved, refresh", "conn: GET: not sent: why; last attempt: MOVED 1 b:1"},
	{"ended: lost before", attempt{Err: lostBefore, CtxErr: over, CtxEnd: errEnd}, "stop", "refresh",
		"conn: GET: not sent: why; last attempt: conn: GET: not sent: EOF"},
	{"ended: lost after", attempt{Err: lostAfter, CtxErr: over, CtxEnd: errEnd}, "stop", "refresh", lostAfter.Error()},
	{"ended: WRONGTYPE", attempt{Err: wrongType, CtxErr: over, CtxEnd: errEnd}, "stop", "", "WRONGTYPE x"},
	{"ended while waiting", attempt{Err: overdue, CtxErr: over, CtxEnd: errEnd}, "stop", "refresh", overdue.Error()},
	{"ended while waiting, after LOADING", attempt{Err: overdue, Failures: 1, Earlier: loading, CtxErr: over, CtxEnd: errEnd}, "stop", "refresh",
		"conn: GET: not sent: why; last attempt: LOADING x"},

	// The Cluster is closed.
	{"closed: LOADING", attempt{Err: loading, Closed: true}, "stop", "refresh", "conn: GET: not sent: closed; last attempt: LOADING x"},
	{"closed: no connection", attempt{Err: dialError(conn.ErrClosed), Closed: true}, "stop", "refresh, silent", dialError(conn.ErrClosed).Error()},
	{"closed: WRONGTYPE", attempt{Err: wrongType, Closed: true}, "stop", "", "WRONGTYPE x"},
}

func TestDecideInCircumstances(t *testing.T) {
	for _, test := range circumstances {
		does, learns, err := decideAbout(test.a)
		text := ""
		if err != nil {
			text = err.Error()
		}
		if does != test.does || learns != test.learns || text != test.err {
			t.Errorf("%s: %s; %s; %s, want %s; %s; %s", test.name, does, learns, text, test.does, test.learns, test.err)
		}
	}
	if does, _, err := cluster.Decide(attempt{Err: movedToB, From: decidingNode, Attempts: 16}); does != "stop" || !errors.Is(err, movedToB) {
		t.Errorf("redirections off: %s, %v", does, err)
	}
}
