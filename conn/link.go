package conn

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockwire/lockwire/resp"
)

// link is one connection after its handshake, with pipelined commands of many callers. Conn and Pool are built on
// links.
//
// A caller appends its encoded command to pending. If no writer is active, the caller becomes the writer and writes
// all pending commands, including commands that other callers append meanwhile (write.go). readLoop reads all replies
// and hands them out in the order of the commands (read.go). A timer closes the link if a reply is overdue
// (deadlines.go).
type link struct {
	// Constant after newLink.
	nc     net.Conn
	proto  int
	addr   string
	start  time.Time
	shared bool    // used by callers that are independent of each other
	named  bool    // the server takes names
	socket bool    // nc is a kernel socket, whose buffer takes socketRoom bytes without blocking
	sock   *socket // nc without TLS, if the system lets peek look at unread data; or nil
	owner  owner
	wg     *sync.WaitGroup // counts the link's goroutines and armed timer
	done   chan struct{}   // closed when the link fails

	// Owned by readLoop.
	r      *resp.Reader
	got    int32 // replies already read for the entry at pos
	bytes  int64 // size of the answered entries of batch
	cohort int   // number of callers to wake before yielding to them
	woken  int   // callers woken since the last yield
	reads  yielder

	calls    sync.Pool
	from     *source      // the source r reads from
	failed   atomic.Bool  // err is set
	draining atomic.Bool  // call owner.drained once no command is outstanding
	pos      atomic.Int64 // number of answered entries of batch
	part     atomic.Int32 // copy of got, for entries with several replies
	wrote    atomic.Int64 // bytes of large writes, without the last piece of each
	settled  atomic.Int64 // bytes of answered commands, over all batches

	mu        sync.Mutex // guards the following
	cond      sync.Cond  // signalled when writing, handed, err or from.received changes
	err       error      // reason of the failure
	pending   []byte     // encoded commands without a writer yet
	waiting   []entry    // entries of the commands in pending
	bodies    int        // entries of waiting with a body
	inflight  []entry    // taken by a writer, not yet by readLoop
	batch     []entry    // taken by readLoop, the only one to replace the slice; elements are constant
	answered  int64      // number of answered entries of previous batches
	writeFrom int64      // number of entries before the last write
	spare     []byte     // free buffer for pending
	queued    int64      // bytes of all commands so far
	unsent    int        // bytes at the end of inflight not written by a failed write
	writing   bool       // a writer is active or about to start
	handed    bool       // writeLoop is the writer
	looping   bool       // writeLoop is running
	crowd     bool       // the last write had commands of several callers
	writes    yielder    // yields before a write
	room      chan struct{}
	deadlines
}

// request is one encoded command, or a list of commands to encode.
type request struct {
	encoded []byte
	at      int // place of the text left out, in encoded
	cmds    []resp.Command
	tx      bool // cmds are a transaction, MULTI to EXEC, on a shared connection
}

// name returns a copy of the first command's name, for errors and traces.
func (q request) name() string {
	switch {
	case len(q.cmds) > 0:
		return printable(q.cmds[0].Name())
	case len(q.encoded) > 0:
		return nameOf(q.encoded)
	}
	return "dial"
}

// entry is a command or a batch that waits for its replies. Entries are in the order of the replies.
type entry struct {
	call    *call         // nil without a waiting caller
	body    *body         // a part of the command that is not copied into pending, or nil
	limit   time.Duration // time since start up to which the answer may take, even beyond the timeout
	size    int           // size of the encoded commands in bytes
	after   int64         // bytes received before a writer took the entry
	tick    uint32        // link's ticks when enqueued
	replies int32
	tx      bool // the request's tx
}

// never is the limit of a command whose reply may take any time.
const never = time.Duration(1<<63 - 1)

// call is the result of a command, and the caller's way to wait for it. The caller owns the call before enqueue and
// again after receiving from ready. A caller that leaves early sets the state abandoned and gives the call up; the
// reader releases it.
type call struct {
	ready  chan struct{} // capacity 1
	state  atomic.Uint32
	batch  bool         // collect the replies in values
	value  resp.Value   // the reply of a single command
	values []resp.Value // the replies received, of a batch
	err    error        // reason why replies are missing
	sent   bool         // with err: the command may have been sent
}

// The states of a call.
const (
	awaited uint32 = iota
	completed
	abandoned
)

// owner receives the events of a link, without the link's mutex held. The methods must not block, since readLoop may
// be the caller.
type owner interface {
	push(l *link, v resp.Value)
	due(l *link)                              // the time given to setDue is reached
	drained(l *link)                          // after drain: no command is outstanding
	lost(l *link, outstanding int, err error) // the link has failed, all calls are completed
}

// newLink starts a link on a connection after its handshake. shared means that independent callers use the link;
// otherwise one borrower does. The link runs until fail; wg counts its goroutines.
func newLink(s *session, cfg *Config, shared bool, o owner, wg *sync.WaitGroup) *link {
	l := &link{
		nc:     s.nc,
		proto:  s.proto,
		addr:   s.addr,
		start:  time.Now(),
		shared: shared,
		named:  s.named,
		socket: isSocket(s.nc),
		sock:   newSocket(s.nc),
		owner:  o,
		wg:     wg,
		done:   make(chan struct{}),
		r:      s.r,
		from:   s.from,
	}
	l.cond.L = &l.mu
	l.from.sock = l.sock
	l.from.wake = func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.cond.Broadcast()
	}
	l.calls.New = func() any { return &call{ready: make(chan struct{}, 1)} }
	for _, v := range s.pushes {
		o.push(l, v)
	}
	wg.Go(l.readLoop)
	l.mu.Lock()
	l.startDeadlinesLocked(cfg)
	l.mu.Unlock()
	return l
}

// protocol returns the RESP version of the session, and 0 if s is nil.
func (s *session) protocol() int {
	if s == nil {
		return 0
	}
	return s.proto
}

// isSocket reports whether nc, or the connection below TLS, is a kernel socket.
func isSocket(nc net.Conn) bool {
	switch beneath(nc).(type) {
	case *net.TCPConn, *net.UnixConn:
		return true
	}
	return false
}

// do sends one command and returns its reply. x is a part left out of q. The error is an *Error.
func (l *link) do(ctx context.Context, q request, x text, limit time.Duration) (resp.Value, error) {
	k := l.calls.Get().(*call)
	var b *body
	if x.bytes != nil {
		b = newBody(x, q.encoded[q.at:])
	}
	if err := l.enqueue(ctx, entry{call: k, body: b, replies: 1, limit: limit}, q); err != nil {
		l.release(k)
		return resp.Value{}, l.failure(q, false, err)
	}
	left, sent := l.await(ctx, k)
	b.release()
	if left {
		return resp.Value{}, l.failure(q, sent, l.callerLeft(ctx, limit))
	}
	v, sent, err := k.value, k.sent, k.err
	l.release(k)
	if err != nil {
		return resp.Value{}, l.failure(q, sent, err)
	}
	return v, nil
}

// doBatch sends the commands of q in order, without other commands in between, and returns the replies. With an
// *Error, doBatch returns the replies received so far.
func (l *link) doBatch(ctx context.Context, q request, limit time.Duration) ([]resp.Value, error) {
	n := len(q.cmds)
	k := l.calls.Get().(*call)
	k.batch, k.values = true, make([]resp.Value, 0, n)
	if err := l.enqueue(ctx, entry{call: k, replies: int32(n), limit: limit, tx: q.tx}, q); err != nil {
		l.release(k)
		return nil, l.failure(q, false, err)
	}
	if left, sent := l.await(ctx, k); left {
		return nil, l.failure(q, sent, l.callerLeft(ctx, limit))
	}
	values, sent, err := k.values, k.sent, k.err
	l.release(k)
	if err != nil {
		return values, l.failure(q, sent, err)
	}
	return values, nil
}

// await waits until k is completed or ctx ends. left reports that ctx ended first: then the caller no longer owns k,
// and sent reports whether the command may have been sent. A command that no writer has taken is withdrawn.
func (l *link) await(ctx context.Context, k *call) (left, sent bool) {
	done := ctx.Done()
	if done == nil {
		<-k.ready
		return false, false
	}
	select {
	case <-k.ready:
		return false, false
	case <-done:
	}
	if l.withdraw(k) {
		l.release(k)
		if l.draining.Load() {
			l.checkDrained()
		}
		return true, false
	}
	if k.state.CompareAndSwap(awaited, abandoned) {
		return true, true
	}
	<-k.ready
	return false, false
}

// callerLeft returns the error of a caller whose ctx has ended. For a blocking command it closes the link, which
// would otherwise stay busy.
func (l *link) callerLeft(ctx context.Context, limit time.Duration) error {
	err := ended(ctx)
	if limit == never {
		l.fail(fmt.Errorf("a blocking command was given up: %w", err))
	}
	return err
}

// release returns k to the pool of calls.
func (l *link) release(k *call) {
	k.state.Store(awaited)
	k.batch, k.value, k.values, k.err, k.sent = false, resp.Value{}, nil, nil, false
	l.calls.Put(k)
}

func (l *link) failure(q request, sent bool, err error) error {
	return &Error{Op: q.name(), Addr: l.addr, Sent: sent, Err: err}
}

// fail closes the link with the reason err, unless the link has failed before.
func (l *link) fail(err error) {
	l.mu.Lock()
	failed := l.failLocked(err)
	l.mu.Unlock()
	if failed {
		l.hangUp()
	}
}

// failLocked marks the link as failed. If it returns true, the caller must call hangUp.
func (l *link) failLocked(err error) bool {
	if l.err != nil {
		return false
	}
	l.err = err
	l.failed.Store(true)
	close(l.done)
	l.openRoomLocked()
	l.stopDeadlinesLocked()
	l.cond.Broadcast()
	return true
}

// lostEarly returns the error of a dial whose link l failed before its first use.
func (l *link) lostEarly() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return &Error{Op: "dial", Addr: l.addr, Err: l.err}
}

// hangUp closes the connection of a failed link. The error of closing carries no information.
func (l *link) hangUp() { _ = hangUp(l.nc) }

// outstandingLocked returns the number of commands and batches without an answer.
func (l *link) outstandingLocked() int {
	return len(l.waiting) + len(l.inflight) + len(l.batch) - int(l.pos.Load())
}

// outstanding is like outstandingLocked, for callers without mu.
func (l *link) outstanding() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.outstandingLocked()
}

// drain calls owner.drained once no command is outstanding. Commands enqueued meanwhile delay the call. If most > 0,
// the link fails with why after that time.
func (l *link) drain(most time.Duration, why error) {
	l.mu.Lock()
	l.draining.Store(true)
	if most > 0 {
		l.giveUpLocked(most, why)
	}
	l.mu.Unlock()
	l.checkDrained()
}

// checkDrained calls owner.drained once, if a draining link has no outstanding command.
func (l *link) checkDrained() {
	l.mu.Lock()
	drained := l.outstandingLocked() == 0 && l.draining.CompareAndSwap(true, false)
	if drained {
		l.giveUpLocked(0, nil)
	}
	l.mu.Unlock()
	if drained {
		l.owner.drained(l)
	}
}
