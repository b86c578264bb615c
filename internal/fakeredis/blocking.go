package fakeredis

import (
	"math"
	"slices"
	"time"
)

func blockingCommands() []command {
	const flag = onWrite | notScript
	return []command{
		{name: "blpop", arity: -3, flags: flag, run: blockingPop},
		{name: "blmove", arity: 6, flags: flag, run: blockingMove},
	}
}

// block is the reply of a command that must wait. try is asked after every command.
type block struct {
	try  func() (reply any, done bool)
	late any           // the reply when the time is over
	last func() any    // makes the late reply; nil: after the time limit
	wait time.Duration // 0: for ever
}

// waiter is a waiting connection, in the queue of waiters.
type waiter struct {
	c      *conn
	block  *block
	served chan struct{}
	reply  any // set before served is closed
}

// waitLocked returns the reply of a blocked command. It gives up s.mu during the wait; the connection reads nothing then.
func (c *conn) waitLocked(b *block) any {
	w := &waiter{c: c, block: b, served: make(chan struct{})}
	c.s.waiters = append(c.s.waiters, w)
	c.s.tickLocked()
	c.s.mu.Unlock()
	var reply any = nothing{}
	var over <-chan time.Time
	if b.wait > 0 {
		timer := time.NewTimer(b.wait)
		defer timer.Stop()
		over = timer.C
	}
	select {
	case <-w.served:
	case <-over:
		reply = b.late
	case <-c.mem.in.ended:
	}
	c.pass() // a paused server does not notice the end of the time
	c.s.mu.Lock()
	if w.reply != nil {
		return w.reply
	}
	if _, none := reply.(nothing); !none && b.last != nil {
		reply = b.last()
	}
	c.s.waiters = slices.DeleteFunc(c.s.waiters, func(o *waiter) bool { return o == w })
	return reply
}

// serveWaitersLocked serves the waiters, the longest wait first.
func (s *Server) serveWaitersLocked() {
	for again := true; again; {
		again = false
		for i, w := range s.waiters {
			if w.c.gone() {
				continue
			}
			if reply, done := w.block.try(); done {
				w.reply = reply
				close(w.served)
				s.waiters = slices.Delete(s.waiters, i, i+1)
				again = true
				break
			}
		}
	}
}

// gone reports whether either end has closed the connection.
func (c *conn) gone() bool {
	select {
	case <-c.mem.in.ended:
		return true
	default:
		return false
	}
}

// orBlock tries at once and else blocks, if the call may.
func (x *call) orBlock(b *block) any {
	if reply, done := b.try(); done {
		return reply
	}
	if x.inside {
		return b.late
	}
	return b
}

func (x *call) timeoutAt(i int) (time.Duration, any) {
	f, valid := parseFloat(x.args[i])
	switch {
	case !valid || f*1000 > math.MaxInt32*1000:
		return 0, Err("ERR timeout is not a float or out of range")
	case f < 0:
		return 0, Err("ERR timeout is negative")
	}
	return time.Duration(math.Ceil(f*1000)) * time.Millisecond, nil
}

func blockingPop(x *call) any {
	last := len(x.args) - 1
	wait, bad := x.timeoutAt(last)
	if bad != nil {
		return bad
	}
	keys := x.args[1:last]
	try := func() (any, bool) {
		x.now = nowMs()
		for _, key := range keys {
			l, bad := find[*list](x, key)
			if l != nil && bad == nil {
				item := l.pop(left)
				x.settle(key, l)
				return []any{key, item}, true
			}
		}
		return nil, false
	}
	for _, key := range keys {
		l, bad := find[*list](x, key)
		if bad != nil {
			return bad
		}
		if l != nil {
			break
		}
	}
	return x.orBlock(&block{try: try, late: nullArray{}, wait: wait})
}

func blockingMove(x *call) any {
	from, to, bad := sidesAt(x, 3)
	if bad != nil {
		return bad
	}
	wait, bad := x.timeoutAt(5)
	if bad != nil {
		return bad
	}
	if _, bad := find[*list](x, x.args[1]); bad != nil {
		return bad
	}
	try := func() (any, bool) {
		x.now = nowMs()
		if l, bad := find[*list](x, x.args[1]); l == nil || bad != nil {
			return nil, false
		}
		return move(x, x.args[1], x.args[2], from, to), true
	}
	var late any = nullArray{}
	if x.inside {
		late = nil
	}
	return x.orBlock(&block{try: try, late: late, wait: wait})
}

func timeoutError(valid bool) any {
	if valid {
		return Err("ERR timeout is negative")
	}
	return Err("ERR timeout is not an integer or out of range")
}
