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

// link is one connection after its handshake, on which the commands of many callers follow each other without
// waiting for answers. Conn and Pool are made of links.
//
// A caller appends its encoded command to pending. If nobody is writing, it writes what is pending, its own and that
// of others that have come in the meantime; otherwise whoever is writing takes it along (write.go). readLoop always reads,
// and hands replies out in the order of the commands (read.go). A timer fails the link when an answer is overdue (watch.go).
type link struct {
	// Constant after newLink.
	nc     net.Conn
	proto  int
	addr   string
	start  time.Time
	shared bool    // by callers who know nothing of each other
	socket bool    // nc is a socket of the kernel, whose buffer takes socketRoom bytes without blocking
	sock   *socket // that, without TLS, where it can be looked at; nil: nothing tells what has come
	owner  owner
	wg     *sync.WaitGroup // joins what the link starts
	done   chan struct{}   // closed when the link fails

	// Owned by readLoop.
	r      *resp.Reader
	got    int32 // replies to the entry at pos that have been read
	bytes  int64 // size of the entries of batch that have been answered
	cohort int   // how many callers are woken before they are let run
	woken  int   // how many have been, since
	reads  yielder

	calls    sync.Pool
	from     *source      // of r
	failed   atomic.Bool  // err is set
	draining atomic.Bool  // the owner wants to be told when nothing is outstanding
	pos      atomic.Int64 // entries of batch that have been answered
	part     atomic.Int32 // got, if the entry has more than one reply
	wrote    atomic.Int64 // bytes of writes that were not over yet
	settled  atomic.Int64 // bytes of the commands that have been answered, all batches together

	mu        sync.Mutex // guards the following
	cond      sync.Cond  // writing, handed or err has changed, or more has been read
	err       error      // why the link failed
	pending   []byte     // encoded commands that no writer has taken
	waiting   []entry    // these commands
	inflight  []entry    // taken by a writer, not yet by the reader
	batch     []entry    // taken by the reader, which alone replaces it; its elements do not change
	answered  int64      // entries that have been answered, of batches before
	writeFrom int64      // entries before the first one of the last write
	spare     []byte     // the next pending
	queued    int64      // bytes of all commands
	unsent    int        // bytes at their end that a failed write has left
	writing   bool       // somebody writes, or is about to
	handed    bool       // the writing is writeLoop's
	looping   bool       // writeLoop runs
	crowd     bool       // the last write was for more than one caller
	writes    yielder    // before a write
	room      chan struct{}
	watch
}

// request is what a caller wants to send: one command that is encoded already, or some that know how.
type request struct {
	encoded []byte
	cmds    []resp.Command
	tx      bool // cmds are MULTI, others and EXEC, on a connection that others use too
}

// name returns the name of the first command, in memory of its own, for errors and traces.
func (q request) name() string {
	switch {
	case len(q.cmds) > 0:
		return printable(q.cmds[0].Name())
	case len(q.encoded) > 0:
		return nameOf(q.encoded)
	}
	return "dial"
}

// entry is a command, or the commands of a batch, in the order of the replies.
type entry struct {
	call    *call         // nil if nobody waits
	limit   time.Duration // since start: it may take until then even if that is longer than the timeout
	size    int           // encoded
	after   int64         // how much had been received when it was handed to a writer
	tick    uint32        // the number of ticks before it
	replies int32
	tx      bool // as of the request
}

// never is the limit of a command that may take as long as the server likes.
const never = time.Duration(1<<63 - 1)

// call is what a caller waits on. It belongs to the caller until it is enqueued, and again once ready has been
// received from. A caller that leaves earlier sets it abandoned and does not touch it again: the reader releases it.
type call struct {
	ready  chan struct{} // of capacity 1
	state  atomic.Uint32
	batch  bool         // replies go to values
	value  resp.Value   // the reply, if not of a batch
	values []resp.Value // the replies that have come
	err    error        // why there is none, or not all
	sent   bool         // if err is set: whether the command may have been sent
}

// The states of a call.
const (
	awaited uint32 = iota
	completed
	abandoned
)

// owner is told what becomes of a link, without the link's mutex. It must not block: readLoop may be the one to call.
type owner interface {
	push(l *link, v resp.Value)
	due(l *link)                              // the time set by setDue has come
	drained(l *link)                          // after drain: nothing is outstanding any more
	lost(l *link, outstanding int, err error) // the link has failed and all calls are completed
}

// newLink starts a link on a connection after its handshake, for callers who share it or for one borrower. It ends by fail, after which wg joins its goroutines.
func newLink(s *session, cfg *Config, shared bool, o owner, wg *sync.WaitGroup) *link {
	l := &link{
		nc:     s.nc,
		proto:  s.proto,
		addr:   s.addr,
		start:  time.Now(),
		shared: shared,
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
	l.startWatchLocked(cfg)
	l.mu.Unlock()
	return l
}

// protocol returns the version that the handshake agreed on, and 0 if there is no session.
func (s *session) protocol() int {
	if s == nil {
		return 0
	}
	return s.proto
}

// isSocket reports whether nc is a socket of the kernel, under TLS or not, rather than something made for another
// purpose.
func isSocket(nc net.Conn) bool {
	switch beneath(nc).(type) {
	case *net.TCPConn, *net.UnixConn:
		return true
	}
	return false
}

// do sends one command and returns its reply. An error is an *Error.
func (l *link) do(ctx context.Context, q request, limit time.Duration) (resp.Value, error) {
	k := l.calls.Get().(*call)
	if err := l.enqueue(ctx, entry{call: k, replies: 1, limit: limit}, q); err != nil {
		l.release(k)
		return resp.Value{}, l.failure(q, false, err)
	}
	if left, sent := l.await(ctx, k); left {
		return resp.Value{}, l.failure(q, sent, l.leave(ctx, limit))
	}
	v, sent, err := k.value, k.sent, k.err
	l.release(k)
	if err != nil {
		return resp.Value{}, l.failure(q, sent, err)
	}
	return v, nil
}

// doBatch sends the commands of q next to each other and returns their replies; with an *Error, those that had come.
func (l *link) doBatch(ctx context.Context, q request, limit time.Duration) ([]resp.Value, error) {
	n := len(q.cmds)
	k := l.calls.Get().(*call)
	k.batch, k.values = true, make([]resp.Value, 0, n)
	if err := l.enqueue(ctx, entry{call: k, replies: int32(n), limit: limit, tx: q.tx}, q); err != nil {
		l.release(k)
		return nil, l.failure(q, false, err)
	}
	if left, sent := l.await(ctx, k); left {
		return nil, l.failure(q, sent, l.leave(ctx, limit))
	}
	values, sent, err := k.values, k.sent, k.err
	l.release(k)
	if err != nil {
		return values, l.failure(q, sent, err)
	}
	return values, nil
}

// await waits until k is completed or ctx ends. If the caller is the one to leave, k is no longer the caller's, and
// sent tells whether the command may have left: what no writer has taken is withdrawn.
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

// leave returns the error of ctx. A command without limit keeps its connection busy, and is ended with it.
func (l *link) leave(ctx context.Context, limit time.Duration) error {
	err := ended(ctx)
	if limit == never {
		l.fail(fmt.Errorf("a blocking command was given up: %w", err))
	}
	return err
}

// release makes k ready for another use.
func (l *link) release(k *call) {
	k.state.Store(awaited)
	k.batch, k.value, k.values, k.err, k.sent = false, resp.Value{}, nil, nil, false
	l.calls.Put(k)
}

func (l *link) failure(q request, sent bool, err error) error {
	return &Error{Op: q.name(), Addr: l.addr, Sent: sent, Err: err}
}

// fail closes the link for the reason err, if it has not failed yet.
func (l *link) fail(err error) {
	l.mu.Lock()
	failed := l.failLocked(err)
	l.mu.Unlock()
	if failed {
		l.hangUp()
	}
}

// failLocked makes the link fail, but for closing the connection, which is the caller's to do if it returns true.
func (l *link) failLocked(err error) bool {
	if l.err != nil {
		return false
	}
	l.err = err
	l.failed.Store(true)
	close(l.done)
	l.openRoomLocked()
	l.stopWatchLocked()
	l.cond.Broadcast()
	return true
}

// lostEarly returns the error of a dial that led to no more than l, which has failed.
func (l *link) lostEarly() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return &Error{Op: "dial", Addr: l.addr, Err: l.err}
}

// hangUp closes the connection of a link that has failed, when an error in doing so says nothing new.
func (l *link) hangUp() { _ = hangUp(l.nc) }

// outstandingLocked returns how many commands and batches have no answer yet.
func (l *link) outstandingLocked() int {
	return len(l.waiting) + len(l.inflight) + len(l.batch) - int(l.pos.Load())
}

// outstanding is outstandingLocked for those who do not hold mu.
func (l *link) outstanding() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.outstandingLocked()
}

// drain has the owner told as soon as nothing is outstanding. Who enqueues afterwards delays that. Above 0, most is
// how long it may take before the link fails, and why the reason.
func (l *link) drain(most time.Duration, why error) {
	l.mu.Lock()
	l.draining.Store(true)
	if most > 0 {
		l.giveUpLocked(most, why)
	}
	l.mu.Unlock()
	l.checkDrained()
}

// checkDrained tells the owner, once, if nothing is outstanding on a draining link.
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
