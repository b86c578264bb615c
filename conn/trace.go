package conn

import (
	"context"
	"time"
)

// Trace holds callbacks for traces, metrics and logs. A nil callback costs nothing. Callbacks receive names and
// addresses, never arguments, keys or values.
//
// Several goroutines may run callbacks at once, without a lock held, and never the goroutine that reads replies. The
// call or dial that caused the event waits for the callback. A callback must not close the Pool or Conn, because
// Close waits for callbacks.
//
// A call is reported once, by CommandStart and CommandEnd, however many attempts, redirections of a cluster and
// connections it takes. The run of a script is one call too: the source sent after NOSCRIPT is its second attempt. A
// call refused before it is sent, such as BLPOP on a shared connection, is not reported.
type Trace struct {
	// CommandStart is called before a call, with the context of the caller. The call goes on under the returned
	// context, which must be derived from ctx; CommandEnd, Retry and Wait receive it.
	CommandStart func(ctx context.Context, start CommandStart) context.Context

	// CommandEnd is called when a call returns.
	CommandEnd func(ctx context.Context, end CommandEnd)

	// Wait is called after a call has waited for a connection: for a dial, or for an exclusive connection that
	// another caller had.
	Wait func(ctx context.Context, wait WaitInfo)

	// Retry is called before a call pauses and tries again.
	Retry func(ctx context.Context, retry RetryInfo)

	Dial     func(DialInfo)     // a dial has ended
	Lost     func(LostInfo)     // a connection has failed; not called for connections closed on purpose
	Switch   func(SwitchInfo)   // a Pool follows its sentinels to another master; not called for the first
	Topology func(TopologyInfo) // a cluster's slots have other masters; not called for the first topology
}

// Batch is the form of a call.
type Batch uint8

const (
	Single      Batch = iota // one command
	Pipeline                 // several commands in one write
	Transaction              // several commands between MULTI and EXEC
)

// CommandStart describes a call before it is sent.
type CommandStart struct {
	Name   string   // name of the command; of a batch the name common to its commands, or "" if they differ
	Names  []string // names of a batch's commands in their order, equal neighbours once; nil unless they differ
	Script string   // name of the Lua script, as given to script.Named; of a batch the common name
	Batch  Batch
	Count  int // number of commands, without MULTI and EXEC
}

// Operation returns the name of the operation as OpenTelemetry's conventions for Redis define it: the name of the
// command; for batches PIPELINE or MULTI, followed by the common name of the commands, if any.
func (s CommandStart) Operation() string {
	prefix := ""
	switch s.Batch {
	case Single:
		return s.Name
	case Pipeline:
		prefix = "PIPELINE"
	case Transaction:
		prefix = "MULTI"
	}
	if s.Name == "" {
		return prefix
	}
	return prefix + " " + s.Name
}

// CommandEnd describes a call that has returned.
type CommandEnd struct {
	CommandStart
	Server   string        // address of the last connection used; without a connection Config.Addr, or "" in a cluster
	DB       int           // Config.DB
	Protocol int           // 2 or 3, of the last connection; 0 without one
	Attempts int           // number of attempts, also to connect; 1 unless something was repeated
	Sent     bool          // a byte was written, so the call may have had an effect
	Elapsed  time.Duration // duration of the call, including waits for a connection, dials and repetitions
	Err      error         // error returned to the caller
}

// WaitInfo describes the wait of a call for a connection.
type WaitInfo struct {
	Addr      string
	Exclusive bool
	Elapsed   time.Duration
	Err       error // nil if the call has got a connection
}

// DialInfo describes one attempt to connect, including TLS and handshake.
type DialInfo struct {
	Addr      string
	Exclusive bool          // connection for With, Dial or Stream
	Protocol  int           // 2 or 3; 0 after an error
	Elapsed   time.Duration // duration of the dial
	Err       error         // nil after success
}

// RetryInfo describes a call that will try again, because its last attempt did not run.
type RetryInfo struct {
	Name    string
	Addr    string
	Attempt int           // number of attempts so far: 1 before the first repetition
	Pause   time.Duration // wait before the next attempt
	Err     error         // reason why the last attempt did not run
}

// LostInfo describes a failed connection.
type LostInfo struct {
	Addr      string
	Exclusive bool
	Age       time.Duration // time since the handshake
	InFlight  int           // calls that end without an answer
	Err       error
}

// SwitchInfo describes a change of the master.
type SwitchInfo struct {
	Master   string // name of the master, Sentinel.Master
	From, To string // addresses dialed
}

// TopologyInfo describes the slots of a cluster after a change.
type TopologyInfo struct {
	Masters int // masters that serve slots
	Served  int // slots served, 16384 in a complete cluster
	Moved   int // slots with another master than before
}

// retry reports a call that will try again.
func (t *Trace) retry(ctx context.Context, addr string, q request, attempt int, pause time.Duration, err error) {
	if t == nil || t.Retry == nil {
		return
	}
	t.Retry(ctx, RetryInfo{Name: q.name(), Addr: addr, Attempt: attempt, Pause: pause, Err: err})
}

// waitBegin returns the start time of a wait, or zero if Trace has no use for it.
func (t *Trace) waitBegin() time.Time {
	if t == nil || t.Wait == nil {
		return time.Time{}
	}
	return time.Now()
}

// waited reports the end of a wait for a connection.
func (t *Trace) waited(ctx context.Context, begin time.Time, addr string, exclusive bool, err error) {
	if t != nil && t.Wait != nil {
		t.Wait(ctx, WaitInfo{Addr: addr, Exclusive: exclusive, Elapsed: time.Since(begin), Err: err})
	}
}

// dial reports the end of a dial.
func (t *Trace) dial(begin time.Time, addr string, exclusive bool, proto int, err error) {
	if t != nil && t.Dial != nil {
		t.Dial(DialInfo{Addr: addr, Exclusive: exclusive, Protocol: proto, Elapsed: time.Since(begin), Err: err})
	}
}

// switched reports a change of the master.
func (t *Trace) switched(info SwitchInfo) {
	if t != nil && t.Switch != nil {
		t.Switch(info)
	}
}
