package cluster_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/lockwire/lockwire/cluster"
	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/resp"
)

// dialError returns the error of a command without a connection.
func dialError(cause error) error {
	return &conn.Error{Op: "GET", Addr: "a:1", Err: &conn.Error{Op: "dial", Addr: "a:1", Err: fmt.Errorf("connect: %w", cause)}}
}

func refusedByUs(t *testing.T) error {
	t.Helper()
	err := conn.CheckBatch([]resp.Command{resp.Cmd("BLPOP", "k", 0)})
	if err == nil {
		t.Fatal("BLPOP is not refused")
	}
	return err
}

// decidingNode is the node that sent the errors below.
const decidingNode = "10.0.0.9:7000"

type decided = cluster.Decision

var (
	stopped         = decided{Action: "stop"}
	later           = decided{Action: "again", Pause: true}
	laterAndRefresh = decided{Action: "again", Pause: true, Refresh: true}
	elsewhere       = decided{Action: "relocate", Refresh: true}
)

// decisions are the reactions to each error in the first attempt of a call with a sufficient
// budget.
var decisions = []struct {
	name string
	err  error
	want decided
}{
	{"C11", resp.Error("MOVED 3999 10.0.0.1:7001"), decided{"follow", "10.0.0.1:7001", true, false}},
	{"C12", resp.Error("MOVED 3999 :7001"), decided{"follow", "10.0.0.9:7001", true, false}},
	{"C13", resp.Error("MOVED 3999 ?:7001"), elsewhere},
	{"C14", resp.Error("MOVED 12182 ::1:7402"), decided{"follow", "[::1]:7402", true, false}},
	{"C14 not a loopback", resp.Error("MOVED 12182 2001:db8::1:7402"), decided{"follow", "[2001:db8::1]:7402", true, false}},
	{"C15", resp.Error("MOVED 3999 node1.example:7001"), decided{"follow", "node1.example:7001", true, false}},
	{"C07", resp.Error("MOVED 3999 127.0.0.1:7001"), decided{"follow", "10.0.0.9:7001", true, false}},
	{"C16", resp.Error("MOVED 3999 10.0.0.9:7000"), decided{"redial", decidingNode, true, false}},
	{"C16 by an empty host", resp.Error("MOVED 3999 :7000"), decided{"redial", decidingNode, true, false}},
	{"C17 nothing", resp.Error("MOVED"), stopped},
	{"C17 no address", resp.Error("MOVED x"), stopped},
	{"C17 no slot", resp.Error("MOVED 99999 a:1"), stopped},
	{"C17 no port", resp.Error("MOVED 1 a"), stopped},
	{"C17 wrong port", resp.Error("MOVED 1 a:99999"), stopped},
	{"ASK", resp.Error("ASK 3999 10.0.0.1:7001"), decided{"ask", "10.0.0.1:7001", false, false}},
	{"ASK, empty host", resp.Error("ASK 3999 :7001"), decided{"ask", "10.0.0.9:7001", false, false}},
	{"ASK, unknown host", resp.Error("ASK 3999 ?:7001"), elsewhere},
	{"ASK for the node itself", resp.Error("ASK 3999 10.0.0.9:7000"), decided{Action: "relocate", Refresh: true, Pause: true}},
	{"ASK without sense", resp.Error("ASK 1 a"), stopped},

	{"TRYAGAIN", resp.Error("TRYAGAIN Multiple keys request during rehashing of slot"), later},
	{"NOREPLICAS", resp.Error("NOREPLICAS Not enough good replicas to write."), later},
	{"BUSY", resp.Error("BUSY Redis is busy running a script."), later},
	{"max clients", resp.Error("ERR max number of clients reached"), laterAndRefresh},
	{"NOAUTH", resp.Error("NOAUTH Authentication required."), laterAndRefresh},
	{"CLUSTERDOWN", resp.Error("CLUSTERDOWN Hash slot not served"), laterAndRefresh},
	{"LOADING", resp.Error("LOADING Redis is loading the dataset in memory"), laterAndRefresh},
	{"MASTERDOWN", resp.Error("MASTERDOWN Link with MASTER is down"), laterAndRefresh},
	{"READONLY", resp.Error("READONLY You can't write against a read only replica."), laterAndRefresh},
	{"READONLY in a script", resp.Error("ERR Error running script (call to f_0): @user_script:1: @user_script: 1: " +
		"-READONLY You can't write against a read only replica."), laterAndRefresh},
	{"in a transaction", fmt.Errorf("conn: transaction discarded: SET: %w (%w)", resp.Error("MOVED 1 a:2"),
		resp.Error("EXECABORT Transaction discarded")), decided{"follow", "a:2", true, false}},

	{"WRONGTYPE", resp.Error("WRONGTYPE Operation against a key"), stopped},
	{"CROSSSLOT", resp.Error("CROSSSLOT Keys in request don't hash to the same slot"), stopped},
	{"NOSCRIPT", resp.Error("NOSCRIPT No matching script."), stopped},
	{"OOM", resp.Error("OOM command not allowed"), stopped},
	{"EXECABORT", resp.Error("EXECABORT Transaction discarded"), stopped},
	{"NOPERM", resp.Error("NOPERM this user"), stopped},
	{"ERR", resp.Error("ERR syntax error"), stopped},
	{"nothing of ours", errors.New("anything"), stopped},
	{"aborted", conn.ErrTxAborted, stopped},

	{"uncertain", &conn.Error{Op: "INCR", Addr: "a:1", Sent: true, Err: io.EOF}, decided{Action: "stop", Refresh: true}},
	{"uncertain over a refusal", &conn.Error{Op: "MULTI", Sent: true, Err: resp.Error("LOADING x")}, decided{Action: "stop", Refresh: true}},
	{"connection refused", dialError(syscall.ECONNREFUSED), elsewhere},
	{"no such host", dialError(&net.DNSError{Err: "no such host"}), elsewhere},
	{"dial timed out", dialError(context.DeadlineExceeded), elsewhere},
	{"dial: LOADING", dialError(resp.Error("LOADING x")), elsewhere},
	{"dial: max clients", dialError(resp.Error("ERR max number of clients reached")), elsewhere},
	{"dial: WRONGPASS", dialError(resp.Error("WRONGPASS x")), decided{Action: "stop", Refresh: true}},
	{"dial: NOAUTH", dialError(resp.Error("NOAUTH x")), decided{Action: "stop", Refresh: true}},
	{"dial: not TLS", dialError(tls.RecordHeaderError{Msg: "x"}), decided{Action: "stop", Refresh: true}},
	{"dial: certificate", dialError(&tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}), decided{Action: "stop", Refresh: true}},
	{"dial: alert", dialError(&net.OpError{Op: "remote error", Err: errors.New("bad certificate")}), decided{Action: "stop", Refresh: true}},
	{"dial: not RESP", dialError(&resp.SyntaxError{}), decided{Action: "stop", Refresh: true}},
	{"connection lost before", &conn.Error{Op: "GET", Err: io.EOF}, decided{Action: "again", Refresh: true}},
	{"node has left", &conn.Error{Op: "GET", Err: cluster.ErrLeft}, elsewhere},
}

func TestDecide(t *testing.T) {
	tests := slices.Concat(decisions, decisions[:1])
	tests[len(decisions)].name, tests[len(decisions)].err, tests[len(decisions)].want = "refused by us", refusedByUs(t), stopped
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, err := cluster.Decide(test.err, decidingNode, cluster.History{}, 16, 8, 5*time.Second)
			if got != test.want {
				t.Errorf("decision %+v, want %+v", got, test.want)
			}
			if (err != nil) != (got.Action == "stop") {
				t.Errorf("%s with the error %v", got.Action, err)
			}
			boundsHold(t, test.err, decidingNode)
		})
	}
}

// boundsHold checks that no policy's bounds are exceeded, and that a final error stops the call
// under every policy.
func boundsHold(t *testing.T, err error, from string) {
	t.Helper()
	first, _ := cluster.Decide(err, from, cluster.History{}, 16, 8, 5*time.Second)
	for name, over := range map[string]struct {
		h                   cluster.History
		attempts, redirects int
		budget              time.Duration
	}{
		"attempts":      {cluster.History{Failures: 15}, 16, 8, 5 * time.Second},
		"one attempt":   {cluster.History{}, 1, 8, 0},
		"time":          {cluster.History{Failures: 1, Elapsed: 5 * time.Second}, 16, 8, 5 * time.Second},
		"all of them":   {cluster.History{Failures: 20, Redirects: 20, Elapsed: time.Hour}, 16, 8, 5 * time.Second},
		"far too many ": {cluster.History{Failures: 1 << 40, Redirects: 1 << 40}, 1 << 30, 8, -1},
	} {
		got, final := cluster.Decide(err, from, over.h, over.attempts, over.redirects, over.budget)
		if got.Action != "stop" || final == nil || !errors.Is(final, err) {
			t.Errorf("beyond %s: decision %+v, error %v", name, got, final)
		}
	}
	got, _ := cluster.Decide(err, from, cluster.History{Failures: 1 << 40, Elapsed: time.Hour}, 1<<60, 8, -1)
	if got.Action != first.Action {
		t.Errorf("without bounds: %s, want %s as at first", got.Action, first.Action)
	}
}

func TestDecideRedirects(t *testing.T) {
	moved, self := resp.Error("MOVED 1 b:1"), resp.Error("MOVED 1 a:1")
	for n := range 12 {
		got, err := cluster.Decide(moved, "a:1", cluster.History{Failures: n, Redirects: n}, 100, 8, 0)
		switch {
		case n < 8 && (got.Action != "follow" || got.Pause != (n >= 2)):
			t.Errorf("redirection %d: %+v", n+1, got)
		case n >= 8 && (got.Action != "stop" || !got.Refresh || !errors.Is(err, moved)):
			t.Errorf("C23: redirection %d: %+v, %v", n+1, got, err)
		}
	}
	if got, err := cluster.Decide(moved, "a:1", cluster.History{}, 100, 0, 0); got.Action != "stop" || !errors.Is(err, moved) {
		t.Errorf("redirections off: %+v, %v", got, err)
	}
	h := cluster.History{Failures: 1, Redirects: 1, Redialled: true}
	if got, _ := cluster.Decide(self, "a:1", h, 100, 8, 0); got.Action != "relocate" || !got.Refresh {
		t.Errorf("C16: MOVED to itself for the second time: %+v", got)
	}
	if got, _ := cluster.Decide(moved, "a:1", h, 100, 8, 0); got.Action != "follow" {
		t.Errorf("MOVED elsewhere behind one to itself: %+v", got)
	}
	asked := resp.Error("ASK 1 b:1")
	if got, _ := cluster.Decide(asked, "a:1", cluster.History{Failures: 5, Redirects: 5}, 100, 8, 0); got.Action != "ask" || got.Pause {
		t.Errorf("ASK behind MOVED: %+v, want it followed at once", got)
	}
	h = cluster.History{Failures: 1, Redirects: 1, Asking: true}
	if got, _ := cluster.Decide(asked, "a:1", h, 100, 8, 0); got != laterAndRefresh {
		t.Errorf("ASK in answer to ASKING: %+v", got)
	}
	lost := &conn.Error{Op: "GET", Err: io.EOF}
	if got, _ := cluster.Decide(lost, "a:1", cluster.History{Failures: 1}, 100, 8, 0); got.Action != "again" || !got.Pause {
		t.Errorf("connection lost for the second time: %+v", got)
	}
}
