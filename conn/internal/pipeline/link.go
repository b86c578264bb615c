package pipeline

import (
	"container/list"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockwire/lockwire/internal/netfail"
	"github.com/lockwire/lockwire/resp"
)

// Link is one connection after its handshake, with pipelined commands of many callers. Many goroutines may call its
// methods at once.
//
// A caller appends its encoded command to pending. If no writer is active, the caller becomes the writer and writes all
// pending commands, including commands that other callers append meanwhile (write.go). readLoop reads all replies and
// hands them out in the order of the commands (read.go). A timer closes the link if a reply is overdue (deadlines.go).
type Link struct {
	// Constant after New.
	*Session           // its Reader is owned by readLoop
	Start    time.Time // time of New
	owner    Owner
	wg       *sync.WaitGroup // counts the link's goroutines and armed timer
	done     chan struct{}   // closed when the link fails

	// Owned by readLoop.
	yieldAfter  int // number of callers to wake before yielding to them
	woken       int // callers woken since the last yield
	readYields  yielder
	largeYields yielder // after a large reply

	calls        sync.Pool
	abandoned    atomic.Int64 // unanswered commands and batches without a caller
	failed       atomic.Bool  // err is set
	draining     atomic.Bool  // call Owner.Drained once no command is outstanding
	largeWritten atomic.Int64 // progress of large writes, in bytes; the last piece of each write is not counted

	mu          sync.Mutex // guards the following
	cond        sync.Cond  // signalled when writer, err or from.progress changes
	err         error      // reason of the failure
	readsRest   bool       // a write has failed, and readLoop reads what has arrived
	writer      writer     // active or about to start
	loopRuns    bool       // writeLoop has been started
	combined    bool       // the last write had commands of several callers
	writeYields yielder
	room        list.List // of chan struct{}: callers that wait for room in pending, in the order of their arrival
	queue
	deadlines
}

// Config holds the limits of a Link. A limit not above zero is off.
type Config struct {
	Timeout      time.Duration     // the longest time without progress while commands wait for replies
	PingInterval time.Duration     // silence after which the Link sends a PING
	OnSilent     func(addr string) // if set, called by the timer while the server owes an answer and is silent
	Shared       bool              // independent callers use the Link; otherwise one borrower does
}

// Request is one encoded command, or a list of commands to encode.
type Request struct {
	Encoded  []byte
	At       int // offset in Encoded at which the Text is left out
	Commands []resp.Command

	// Verify, if set, gets all replies to Commands before the caller does. The reader calls Verify and fails the Link
	// with its error: no later command may use the connection.
	Verify func(replies []resp.Value) error

	// Blocks says that the server may delay the reply on purpose. OnSilent is then called only as often as an idle Link
	// sends a PING, and the end of the caller's ctx fails the Link, which would otherwise stay busy.
	Blocks bool

	// Wait is how long the server may delay the reply on purpose, in addition to Config.Timeout. The time counts from
	// the answer to the command in front. Never allows any time.
	Wait time.Duration
}

// Never is the Wait of a blocking command whose reply may take any time.
const Never = time.Duration(1<<63 - 1)

// call is a command or a batch with its result, and the caller's way to wait for it. The caller owns the call before enqueue and
// again after receiving from ready. A caller that leaves early sets the state abandoned and gives the call up; the
// reader releases it.
type call struct {
	ready chan struct{} // capacity 1
	state atomic.Uint32
	result
}

// result is the outcome of a call.
type result struct {
	value  resp.Value   // the reply of a single command
	values []resp.Value // the replies received, of a batch; nil for a single command
	err    error        // reason why replies are missing
	sent   bool         // with err: the command may have been sent
}

// The states of a call.
const (
	awaited uint32 = iota
	completed
	abandoned
)

// Owner receives the events of a Link, without the Link's mutex held. The methods must not block, since readLoop may
// be the caller.
type Owner interface {
	Push(l *Link, v resp.Value)
	Due(l *Link)                              // the time given to SetDue or Drain is over
	Drained(l *Link)                          // after Drain: no command is outstanding
	Lost(l *Link, outstanding int, err error) // the Link has failed, all calls are completed
}

// New starts a Link on a connection after its handshake. New may call the Owner's Push before it returns. The Link runs
// until Fail, or until the connection fails; wg counts its goroutines.
func New(s *Session, cfg Config, o Owner, wg *sync.WaitGroup) *Link {
	l := &Link{
		Session:     s,
		Start:       time.Now(),
		owner:       o,
		wg:          wg,
		done:        make(chan struct{}),
		largeYields: yielder{long: longLargeYield},
	}
	l.cond.L = &l.mu
	l.from.sock = s.sock
	l.from.wake = func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.cond.Broadcast()
	}
	l.calls.New = func() any { return &call{ready: make(chan struct{}, 1)} }
	for _, v := range s.Pushes {
		o.Push(l, v)
	}
	wg.Go(l.readLoop)
	l.mu.Lock()
	l.startDeadlinesLocked(cfg)
	l.mu.Unlock()
	return l
}

// Do sends one command and waits for its reply; ctx bounds the wait. x, unless empty, belongs at q.At of q.Encoded. An
// error reply is a value. With an error, sent reports whether the command may have been sent.
//
// The end of ctx leaves the Link open, and the reply is dropped. If q.Blocks is set and the command may have been sent, the end of
// ctx fails the Link.
func (l *Link) Do(ctx context.Context, q Request, x Text) (v resp.Value, sent bool, _ error) {
	e := entry{call: l.calls.Get().(*call), replies: 1}
	if x.Bytes != nil {
		e.body = newBody(x, q.Encoded[q.At:])
	}
	r := l.send(ctx, e, q)
	return r.value, r.sent, r.err
}

// DoBatch sends the commands of q in order, without other commands in between, and returns the replies. With an error,
// DoBatch returns the replies received so far. ctx and sent are those of Do.
func (l *Link) DoBatch(ctx context.Context, q Request) (replies []resp.Value, sent bool, _ error) {
	n := len(q.Commands)
	k := l.calls.Get().(*call)
	k.values = make([]resp.Value, 0, n)
	r := l.send(ctx, entry{call: k, replies: int32(n), verify: q.Verify}, q)
	return r.values, r.sent, r.err
}

// send sends q, described by e, and waits until e.call is completed. e.call no longer belongs to the caller.
func (l *Link) send(ctx context.Context, e entry, q Request) result {
	k := e.call
	if err := l.enqueue(ctx, e, q); err != nil {
		l.release(k)
		return result{err: err}
	}
	left, sent := l.await(ctx, k)
	e.body.release()
	if left {
		err := netfail.Ended(ctx)
		if q.Blocks && sent { // see Request.Blocks
			l.Fail(fmt.Errorf("a blocking command was given up: %w", err))
		}
		return result{err: err, sent: sent}
	}
	r := k.result
	l.release(k)
	return r
}

// Post sends a command, and nobody waits for its reply. Post does not block, and does nothing if the Link has failed.
func (l *Link) Post(cmd resp.Command) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		l.postLocked(cmd, false)
	}
}

// postLocked sends a command without a caller. It releases mu during a write, and blocks only if mayBlock is set.
func (l *Link) postLocked(cmd resp.Command, mayBlock bool) {
	l.appendLocked(entry{replies: 1}, Request{Commands: []resp.Command{cmd}})
	if l.writer == nobody {
		l.writer = oneCaller
		l.flushLocked(nil, mayBlock)
	}
}

// await waits until k is completed or ctx ends. left reports that ctx ended first: then the caller no longer owns k,
// and sent reports whether the command may have been sent. A command that no writer has taken is withdrawn.
func (l *Link) await(ctx context.Context, k *call) (left, sent bool) {
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
	l.mu.Lock()
	withdrawn := l.removeLocked(k)
	l.openRoomLocked()
	l.mu.Unlock()
	if withdrawn {
		l.release(k)
		l.checkDrained()
		return true, false
	}
	if k.state.CompareAndSwap(awaited, abandoned) {
		l.abandoned.Add(1)
		return true, true
	}
	<-k.ready
	return false, false
}

func (l *Link) release(k *call) {
	k.state.Store(awaited)
	k.result = result{}
	l.calls.Put(k)
}

// Outstanding returns the number of commands and batches without an answer, including commands of callers already gone.
func (l *Link) Outstanding() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.outstandingLocked()
}

// Drain makes the Link call Owner.Drained once no command is outstanding. Commands enqueued meanwhile delay the call. If
// most > 0 and commands are outstanding, Owner.Due is called after that time, as by SetDue.
func (l *Link) Drain(most time.Duration) {
	l.draining.Store(true)
	l.checkDrained()
	if most > 0 && l.Outstanding() > 0 {
		l.SetDue(time.Since(l.Start) + most)
	}
}

// checkDrained calls Owner.Drained once, if a draining link has no outstanding command.
func (l *Link) checkDrained() {
	if !l.draining.Load() {
		return
	}
	l.mu.Lock()
	drained := l.err == nil && l.outstandingLocked() == 0 && l.draining.CompareAndSwap(true, false)
	l.mu.Unlock()
	if drained {
		l.owner.Drained(l)
	}
}
