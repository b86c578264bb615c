package conn

import "time"

// Trace holds functions to be called when something happens, for metrics and logs; those that are nil cost nothing.
// They are told names and addresses, never arguments, keys or values.
//
// They may be called by several goroutines at once, none of which holds a lock or reads replies; but the call or the
// dial that they tell of waits for them to return. They must not close the Pool or Conn, which waits for them.
type Trace struct {
	Dial    func(DialInfo)    // a dial has ended
	Command func(CommandInfo) // a call has its answer, or will not get one
	Retry   func(RetryInfo)   // a call is about to pause before it tries again
	Lost    func(LostInfo)    // a connection has failed; not told of those closed on purpose
	Switch  func(SwitchInfo)  // sentinels have led a Pool to another server; not told of the first one
}

// DialInfo is about one attempt to connect, TLS and handshake included.
type DialInfo struct {
	Addr      string
	Exclusive bool          // not to be shared: for With, Dial or Stream
	Protocol  int           // 2 or 3; 0 after an error
	Elapsed   time.Duration // since the dial began
	Err       error         // nil if the connection stands
}

// CommandInfo is about one call of Do, Send, SendBatch or Tx, with everything it took: waiting for a connection,
// dialling, repeating.
type CommandInfo struct {
	Name    string        // of the command, or of the first of a batch
	Addr    string        // as in Config.Addr; with sentinels the name of the master
	Count   int           // number of commands
	Elapsed time.Duration // since the call began
	Err     error         // as returned to the caller
}

// RetryInfo is about a call that will try again, because what it tried certainly did not run.
type RetryInfo struct {
	Name    string
	Addr    string
	Attempt int           // the number of attempts behind it: 1 before the first repetition
	Pause   time.Duration // how long it waits before the next
	Err     error         // why the last one did not run
}

// LostInfo is about a connection that failed.
type LostInfo struct {
	Addr      string
	Exclusive bool
	Age       time.Duration // since its handshake
	InFlight  int           // calls that will not get an answer
	Err       error
}

// SwitchInfo is about another server that has become the master.
type SwitchInfo struct {
	Master   string // its name, as in Sentinel.Master
	From, To string // where the servers are dialled
}

// begin returns when a call begins, if anybody wants to know.
func (t *Trace) begin() time.Time {
	if t == nil || t.Command == nil {
		return time.Time{}
	}
	return time.Now()
}

// command tells of a call that has ended.
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

// retry tells of a call that will try again.
func (t *Trace) retry(addr string, q request, attempt int, pause time.Duration, err error) {
	if t == nil || t.Retry == nil {
		return
	}
	t.Retry(RetryInfo{Name: q.name(), Addr: addr, Attempt: attempt, Pause: pause, Err: err})
}

// dial tells of a dial that has ended.
func (t *Trace) dial(begin time.Time, addr string, exclusive bool, proto int, err error) {
	if t != nil && t.Dial != nil {
		t.Dial(DialInfo{Addr: addr, Exclusive: exclusive, Protocol: proto, Elapsed: time.Since(begin), Err: err})
	}
}

// switched tells of another master.
func (t *Trace) switched(info SwitchInfo) {
	if t != nil && t.Switch != nil {
		t.Switch(info)
	}
}
