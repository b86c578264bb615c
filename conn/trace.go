package conn

import "time"

// Trace holds callbacks for metrics and logs. A nil callback costs nothing. Callbacks receive names and addresses,
// never arguments, keys or values.
//
// Several goroutines may run callbacks at once, without a lock held, and never the goroutine that reads replies. The
// call or dial that caused the event waits for the callback. A callback must not close the Pool or Conn, because
// Close waits for callbacks.
type Trace struct {
	Dial    func(DialInfo)    // a dial has ended
	Command func(CommandInfo) // a call has ended
	Retry   func(RetryInfo)   // a call will pause and try again
	Lost    func(LostInfo)    // a connection has failed; not called for connections closed on purpose
	Switch  func(SwitchInfo)  // a Pool follows its sentinels to another master; not called for the first
}

// DialInfo describes one attempt to connect, including TLS and handshake.
type DialInfo struct {
	Addr      string
	Exclusive bool          // connection for With, Dial or Stream
	Protocol  int           // 2 or 3; 0 after an error
	Elapsed   time.Duration // duration of the dial
	Err       error         // nil after success
}

// CommandInfo describes one call of Do, Send, SendBatch or Tx, including the waits for a connection, dials and
// repetitions.
type CommandInfo struct {
	Name    string        // name of the command, or of the first command of a batch
	Addr    string        // Config.Addr; with sentinels the name of the master
	Count   int           // number of commands
	Elapsed time.Duration // duration of the call
	Err     error         // error returned to the caller
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

// begin returns the start time of a call, or zero if Trace has no use for it.
func (t *Trace) begin() time.Time {
	if t == nil || t.Command == nil {
		return time.Time{}
	}
	return time.Now()
}

// command reports the end of a call.
func (t *Trace) command(begin time.Time, addr string, q request, err error) {
	if t == nil || t.Command == nil {
		return
	}
	t.Command(CommandInfo{
		Name:    q.name(),
		Addr:    addr,
		Count:   max(len(q.cmds), 1),
		Elapsed: time.Since(begin),
		Err:     err,
	})
}

// retry reports a call that will try again.
func (t *Trace) retry(addr string, q request, attempt int, pause time.Duration, err error) {
	if t == nil || t.Retry == nil {
		return
	}
	t.Retry(RetryInfo{Name: q.name(), Addr: addr, Attempt: attempt, Pause: pause, Err: err})
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
