package fakeredis

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"time"
)

// conn is the server's end of a connection.
type conn struct {
	s      *Server // constant, as the four following
	id     int64
	mem    *memConn
	nc     net.Conn      // mem, perhaps under TLS
	killed chan struct{} // closed with dead

	// Guarded by s.mu.
	dead     bool
	leaving  bool // QUIT
	authed   bool
	name     string
	db       int
	proto    int
	channels []string
	patterns []string
	shards   []string
	tx       *transaction
	watched  []watch
	stale    bool  // a watched key has changed
	offset   int64 // of replication, behind the last command
	asking   bool  // ASKING has just come
}

func newConn(s *Server, id int64, mem *memConn) *conn {
	return &conn{s: s, id: id, mem: mem, nc: mem, killed: make(chan struct{}), proto: 2, authed: s.users["default"] == ""}
}

func (c *conn) describe() Conn {
	return Conn{ID: c.id, Name: c.name, DB: c.db, Protocol: c.proto, Subscribed: c.subscriptions() + len(c.shards)}
}

// serve reads and runs commands until either end closes the connection.
func (c *conn) serve() {
	defer c.s.set(func() { c.s.killLocked(c, false) })
	if t, ok := c.nc.(*tls.Conn); ok {
		if !c.pass() {
			return
		}
		if err := t.HandshakeContext(context.Background()); err != nil {
			return
		}
	}
	r := bufio.NewReader(gated{c})
	for {
		args, err := readRequest(r)
		var bad protocolError
		if errors.As(err, &bad) {
			mute := false
			c.s.set(func() {
				mute = c.s.mute
				c.writeLocked(appendReply(nil, Err(bad), c.proto))
			})
			if mute {
				continue // a mute server closes nothing, whatever arrives
			}
		}
		if err != nil {
			return
		}
		if len(args) > 0 && !c.handle(args) {
			return
		}
	}
}

// gated reads from a connection except while the server is stalled.
type gated struct{ c *conn }

func (g gated) Read(p []byte) (int, error) {
	if !g.c.pass() {
		return 0, net.ErrClosed
	}
	return g.c.nc.Read(p)
}

// pass waits while the server is stalled. It returns false if the connection is closed meanwhile.
func (c *conn) pass() bool {
	for {
		c.s.mu.Lock()
		stall := c.s.stall
		c.s.mu.Unlock()
		if stall == nil {
			return true
		}
		if !c.hold(stall, 0) {
			return false
		}
	}
}

// hold waits for gate or, if gate is nil, for d. It returns false if the server closes the connection meanwhile.
//
// No timer for a d of 0: the race detector of Go 1.26 may crash when goroutines of a bubble receive from timers that are due,
// at once (https://go.dev/issue/78156).
func (c *conn) hold(gate <-chan struct{}, d time.Duration) bool {
	var over <-chan time.Time
	if gate == nil {
		if d <= 0 {
			return true
		}
		timer := time.NewTimer(d)
		defer timer.Stop()
		over = timer.C
	}
	select {
	case <-gate:
	case <-over:
	case <-c.killed:
		return false
	}
	return true
}

// handle treats a command as the interceptor says. It returns false for the end of the connection.
func (c *conn) handle(args []string) bool {
	if !c.pass() {
		return false
	}
	act, ok := c.s.decide(c, args)
	if !ok {
		return true
	}
	for act.then != nil {
		if !c.hold(act.gate, act.wait) {
			return false
		}
		act = *act.then
	}
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	defer c.s.tickLocked()
	if c.dead {
		return false
	}
	c.actLocked(act, args)
	if act.end != endNone || c.leaving {
		c.s.killLocked(c, act.end == endReset)
	}
	return !c.dead
}

func (c *conn) actLocked(act Action, args []string) {
	var out []byte
	switch act.kind {
	case actRun:
		reply := c.s.execute(c, args)
		if b, ok := reply.(*block); ok {
			reply = c.waitLocked(b)
		}
		if !act.silent {
			out = appendReply(nil, reply, c.proto)
		}
	case actReply:
		out = []byte(act.raw)
	}
	out = append(append([]byte(act.before), out...), act.after...)
	if c.dead || len(out) == 0 {
		return
	}
	c.mem.out.delay(act.late)
	if act.split {
		c.writePiecesLocked(out, act.cuts, act.between)
		return
	}
	c.writeLocked(out)
}

// writeLocked never blocks: the server's output is not bounded.
func (c *conn) writeLocked(p []byte) {
	if c.dead || c.s.mute || len(p) == 0 {
		return
	}
	if c.s.piece <= 0 {
		_, _ = c.nc.Write(p)
		return
	}
	var cuts []int
	for at := c.s.piece; at < len(p); at += c.s.piece {
		cuts = append(cuts, at)
	}
	cuts = append(cuts, len(p))
	c.writePiecesLocked(p, cuts, c.s.pause)
}

// writePiecesLocked cuts p at the offsets inside p, or everywhere without offsets.
func (c *conn) writePiecesLocked(p []byte, cuts []int, pause time.Duration) {
	if c.s.mute {
		return
	}
	if len(cuts) == 0 {
		for at := 1; at < len(p); at++ {
			cuts = append(cuts, at)
		}
	}
	from := 0
	for _, at := range append(cuts, len(p)) {
		if at <= from || at > len(p) {
			continue
		}
		if from > 0 {
			c.mem.out.delay(pause)
		}
		_, _ = c.nc.Write(p[from:at])
		from = at
	}
}
