package pipeline

import (
	"errors"
	"fmt"
	"io"

	"github.com/lockwire/lockwire/resp"
)

var errUnasked = errors.New("a reply without a command")

// maxYieldAfter is the largest number of callers woken before readLoop yields to them; the usual number is a quarter of
// the outstanding commands. The callers then send their next commands before readLoop has read all replies, so client
// and server work at the same time.
const maxYieldAfter = 64

// largeReply is the size of a reply after which readLoop yields: the caller uses and drops the value before readLoop
// allocates the next one. For values of 1 MiB in a small process the smaller heap saves a tenth to a fifth of the CPU.
const largeReply = 64 << 10

// readLoop reads until the link fails, and then completes the remaining calls.
func (l *Link) readLoop() {
	err := l.read()
	if err == io.EOF {
		err = fmt.Errorf("closed by the server: %w", err)
	}
	l.Fail(err)
	l.finish()
}

func (l *Link) read() error {
	for {
		begin := l.offset()
		if err := l.readOne(); err != nil {
			return err
		}
		switch {
		case l.woken > 0 && l.offset()-begin >= largeReply:
			l.yieldTo(&l.largeYields)
		case l.woken >= l.yieldAfter && int(l.pos.Load()) < len(l.reading):
			l.yieldTo(&l.readYields)
		}
	}
}

func (l *Link) yieldTo(y *yielder) {
	l.woken = 0
	if y.due() {
		y.took(y.yield())
	}
}

// offset returns the number of bytes of all replies read so far.
func (l *Link) offset() int64 { return l.from.received.Load() - int64(l.Reader.Buffered()) }

// readOne reads and hands out one reply or one push.
func (l *Link) readOne() error {
	l.from.inReply = false
	kind, err := l.Reader.Peek()
	if err != nil {
		return err
	}
	var e *entry // of the reply; nil for a push, and for bytes from before a writer took the command
	if kind != resp.Push {
		l.from.inReply = true
		if e = l.head(); e != nil && l.repliesRead.Load() == 0 && l.offset() < e.replyFrom {
			e = nil
		}
	}
	if kind != resp.Map && e.unwanted() { // a Map may be the attributes of a push
		if err := l.Reader.Skip(); err != nil {
			return err
		}
		l.count(e)
		return nil
	}
	v, err := l.readFor(e)
	switch {
	case err != nil:
		return err
	case v.Kind() == resp.Push:
		l.owner.Push(l, v)
		return nil
	case e == nil:
		return unasked(v)
	}
	e.keep(v)
	if e.verify != nil && l.repliesRead.Load()+1 == e.replies {
		if err = e.verify(e.call.values); err != nil {
			l.Fail(err) // before the caller sees the replies
		}
	}
	l.count(e)
	return err
}

// readFor reads the next value, a reply to e unless it is a push. e may be nil.
func (l *Link) readFor(e *entry) (resp.Value, error) {
	if e != nil && e.replies > 1 {
		return l.Reader.ReadOf(int(e.replies - l.repliesRead.Load()))
	}
	return l.Reader.Read()
}

// head returns the entry of the next reply, or nil without one.
func (l *Link) head() *entry {
	if i := int(l.pos.Load()); i < len(l.reading) && !l.failed.Load() {
		return &l.reading[i]
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.nextReadingLocked() {
		l.yieldAfter = min(max(l.outstandingLocked()/4, 1), maxYieldAfter)
	}
	return l.headLocked()
}

// unwanted reports whether no caller waits for the reply, which can then be skipped.
func (e *entry) unwanted() bool {
	return e != nil && e.verify == nil && (e.call == nil || e.call.state.Load() == abandoned)
}

func (e *entry) keep(v resp.Value) {
	switch k := e.call; {
	case k == nil:
	case k.values != nil:
		k.values = append(k.values, v)
	default:
		k.value = v
	}
}

// count registers one reply to e. After the last reply it completes the call.
func (l *Link) count(e *entry) {
	if l.answered(e) { // the entry stops being outstanding before its caller can see the reply
		l.complete(e.call)
		l.woken++
		l.checkDrained()
	}
}

// complete wakes the caller of k. An abandoned call is released instead; nil is ignored.
func (l *Link) complete(k *call) {
	switch {
	case k == nil:
	case k.state.CompareAndSwap(awaited, completed):
		k.ready <- struct{}{}
	default:
		l.release(k)
		l.abandoned.Add(-1) // perhaps before the caller has added itself
		l.resume()
	}
}

func unasked(v resp.Value) error {
	if err := v.Err(); err != nil {
		return fmt.Errorf("%w: %w", errUnasked, err)
	}
	return fmt.Errorf("%w, of kind %v", errUnasked, v.Kind())
}
