package simulation

import (
	"context"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"
)

// latest is how late a request may arrive.
const latest = time.Minute

// route is the network between a process and the servers. The seed decides about every byte.
type route struct {
	name   string
	server func(ctx context.Context, addr string) (net.Conn, error) // dials a server itself
	wg     sync.WaitGroup                                           // of the pumps
	ahead  time.Duration                                            // by how much the clock of the process is; constant after newProcess

	mu      sync.Mutex // guards the following, and all conns of the route
	changed *sync.Cond // for dials
	dice    *dice
	latency time.Duration   // of a single direction
	jitter  time.Duration   // up to so much more
	sliced  bool            // bytes arrive in separate pieces
	blocked [2]bool         // nothing arrives in the blocked direction; it arrives afterwards
	apart   map[string]bool // and nothing to or from these addresses
	refused bool            // dials fail
	dead    bool            // the process has crashed: it sends and hears nothing any more
	swallow bool            // the next reply is lost, together with its connection
	conns   []*link         // open at the process
	pumped  []*link         // with running pumps
}

// The directions of a route.
const (
	up   = iota // to the server
	down        // to the process
)

func newRoute(name string, d *dice, latency time.Duration, server func(ctx context.Context, addr string) (net.Conn, error)) *route {
	r := &route{apart: map[string]bool{}, name: name, server: server, dice: d, latency: latency, jitter: latency}
	r.changed = sync.NewCond(&r.mu)
	return r
}

// set changes the route.
func (r *route) set(change func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change()
	r.wakeLocked()
}

// wakeLocked has all look again that wait for anything.
func (r *route) wakeLocked() {
	r.changed.Broadcast()
	for _, links := range [][]*link{r.conns, r.pumped} {
		for _, l := range links {
			l.wakeLocked()
		}
	}
}

// dial fits conn.Config.
func (r *route) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	fail := func(err error) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Net: network, Addr: address(addr), Err: err}
	}
	if err := r.reach(ctx, addr); err != nil {
		return fail(err)
	}
	server, err := r.server(ctx, addr)
	if err != nil {
		return fail(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.dead {
		_ = server.Close()
		return fail(net.ErrClosed)
	}
	l := newLink(r, server, addr)
	r.conns = append(r.conns, l)
	r.pumped = append(r.pumped, l)
	r.wg.Go(func() {
		var pumps sync.WaitGroup
		pumps.Go(l.pumpDown)
		l.pumpUp()
		pumps.Wait()
		r.set(func() { r.pumped = slices.DeleteFunc(r.pumped, func(other *link) bool { return other == l }) })
	})
	return l, nil
}

// reach takes the round trip of a dial. While a direction is blocked it takes for ever.
func (r *route) reach(ctx context.Context, addr string) error {
	stop := context.AfterFunc(ctx, func() { r.set(func() {}) })
	defer stop()
	r.mu.Lock()
	defer r.mu.Unlock()
	over := false
	timer := time.AfterFunc(2*r.latency+r.dice.upTo(r.jitter), func() { r.set(func() { over = true }) })
	defer timer.Stop()
	for {
		switch {
		case r.dead:
			return net.ErrClosed
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case over && r.blocked == [2]bool{} && !r.apart[addr] && r.refused:
			return syscall.ECONNREFUSED
		case over && r.blocked == [2]bool{} && !r.apart[addr]:
			return nil
		}
		r.changed.Wait()
	}
}

// cut resets the connections for which which returns true. Bytes on their way to the server arrive after late, or never if late
// is below 0.
func (r *route) cut(late time.Duration, which func(n int) bool) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, l := range append([]*link(nil), r.conns...) {
		if which(i) {
			l.resetLocked(late)
			n++
		}
	}
	r.wakeLocked()
	return n
}

// hurryLocked makes all bytes on their way arrive now.
func (r *route) hurryLocked() {
	for _, l := range r.conns {
		for i := range l.flows {
			for n := range l.flows[i].pieces {
				l.flows[i].pieces[n].due = time.Now()
			}
		}
	}
}

// crash is the end of the process: its connections end, and bytes on their way arrive after late, or never if late is below 0.
func (r *route) crash(late time.Duration) {
	r.set(func() { r.dead = true })
	r.cut(late, func(int) bool { return true })
}

// piece is something under way.
type piece struct {
	data      []byte
	sent, due time.Time
}

// flow is a direction of a connection, guarded by the mutex of its route.
type flow struct {
	changed sync.Cond // for the reader
	alarm   *time.Timer
	rings   time.Time // the time of alarm; zero: none

	pieces []piece
	closed bool // nothing comes behind the pieces
	gone   bool // nobody reads any more
	fails  error
}

// link is the process's end of a connection, and the pumps between it and the server.
type link struct {
	route  *route
	server net.Conn // the end of the network at the server
	addr   address

	flows    [2]flow
	held     time.Time // until then nothing arrives at the server, not even the close of the connection
	closed   bool      // by the process
	deadline [2]time.Time
}

func newLink(r *route, server net.Conn, addr string) *link {
	l := &link{route: r, server: server, addr: address(addr)}
	for i := range l.flows {
		l.flows[i].changed.L = &r.mu
	}
	return l
}

func (l *link) wakeLocked() {
	for i := range l.flows {
		l.flows[i].changed.Broadcast()
	}
}

// awaitLocked waits until something changes in that direction, at most until something arrives, or until limit, if it is not zero.
func (l *link) awaitLocked(direction int, limit time.Time) {
	f, next := &l.flows[direction], limit
	if len(f.pieces) > 0 && !l.blockedLocked(direction) {
		due := f.pieces[0].due
		if direction == up && due.Before(l.held) {
			due = l.held
		}
		next = earlier(next, due)
	}
	if f.rings = next; f.alarm == nil && !next.IsZero() {
		f.alarm = time.AfterFunc(time.Until(next), func() {
			l.route.mu.Lock()
			defer l.route.mu.Unlock()
			f.changed.Broadcast()
		})
	} else if !next.IsZero() {
		f.alarm.Reset(time.Until(next))
	}
	f.changed.Wait()
	if f.rings = (time.Time{}); f.alarm != nil {
		f.alarm.Stop()
	}
}

// endLocked is when a connection that holds nothing more is closed at the server, zero if that is not known.
func (l *link) endLocked() time.Time {
	if f := &l.flows[up]; len(f.pieces) == 0 && time.Now().Before(l.held) {
		return l.held
	}
	return time.Time{}
}

// earlier is the earlier of two times that are not zero.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// resetLocked ends the connection for the process.
func (l *link) resetLocked(late time.Duration) {
	l.flows[down].fails = syscall.ECONNRESET
	l.flows[up].closed = true
	if late < 0 {
		l.flows[up].pieces = nil
	} else {
		l.held = time.Now().Add(late)
	}
	l.forgetLocked()
	l.wakeLocked()
}

func (l *link) forgetLocked() {
	for i, other := range l.route.conns {
		if other == l {
			l.route.conns = append(l.route.conns[:i:i], l.route.conns[i+1:]...)
			return
		}
	}
}

// putLocked sends p in a direction, cut into pieces if the route cuts.
func (l *link) putLocked(direction int, p []byte) {
	r := l.route
	f := &l.flows[direction]
	for len(p) > 0 {
		n := len(p)
		if r.sliced && n > 1 {
			n = 1 + r.dice.n(n-1)
		}
		due := time.Now().Add(r.latency + r.dice.upTo(r.jitter))
		if last := len(f.pieces); last > 0 && f.pieces[last-1].due.After(due) {
			due = f.pieces[last-1].due
		}
		f.pieces = append(f.pieces, piece{append([]byte(nil), p[:n]...), time.Now(), due})
		p = p[n:]
	}
	f.changed.Broadcast()
}

// arrivedLocked reports whether the next piece has arrived.
func (l *link) arrivedLocked(direction int) bool {
	f := &l.flows[direction]
	if len(f.pieces) == 0 || l.blockedLocked(direction) || time.Now().Before(f.pieces[0].due) {
		return false
	}
	return direction == down || !time.Now().Before(l.held)
}

// blockedLocked reports whether nothing arrives in a direction.
func (l *link) blockedLocked(direction int) bool {
	return l.route.blocked[direction] || l.route.apart[string(l.addr)]
}

// pumpUp brings the process's bytes to the server.
func (l *link) pumpUp() {
	r := l.route
	for {
		r.mu.Lock()
		f := &l.flows[up]
		for !l.arrivedLocked(up) && !(len(f.pieces) == 0 && f.closed && !l.blockedLocked(up) && !time.Now().Before(l.held)) && !f.gone {
			l.awaitLocked(up, l.endLocked())
		}
		if len(f.pieces) == 0 || f.gone {
			r.mu.Unlock()
			_ = l.server.Close()
			return
		}
		data := f.pieces[0].data
		if time.Since(f.pieces[0].sent) > latest {
			f.gone, data = true, nil
		}
		f.pieces = f.pieces[1:]
		r.mu.Unlock()
		if _, err := l.server.Write(data); err != nil {
			r.set(func() { f.gone, f.pieces = true, nil })
		}
	}
}

// pumpDown brings the server's bytes to the process.
func (l *link) pumpDown() {
	r := l.route
	buf := make([]byte, 4096)
	for {
		n, err := l.server.Read(buf)
		r.mu.Lock()
		f := &l.flows[down]
		switch {
		case f.fails != nil || l.closed:
		case n > 0 && r.swallow:
			r.swallow = false
			l.resetLocked(0)
		case n > 0:
			l.putLocked(down, shifted(buf[:n], heardTime, -r.ahead))
		}
		if err != nil {
			f.closed = true
			l.flows[up].gone = true
			l.wakeLocked()
		}
		r.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// Read returns arrived bytes, never more than a piece.
func (l *link) Read(p []byte) (int, error) {
	r := l.route
	r.mu.Lock()
	defer r.mu.Unlock()
	f := &l.flows[down]
	for {
		switch {
		case l.closed:
			return 0, l.wrap("read", net.ErrClosed)
		case f.fails != nil:
			return 0, l.wrap("read", f.fails)
		case l.overLocked(0):
			return 0, l.wrap("read", os.ErrDeadlineExceeded)
		case l.arrivedLocked(down):
			n := copy(p, f.pieces[0].data)
			if f.pieces[0].data = f.pieces[0].data[n:]; len(f.pieces[0].data) == 0 {
				f.pieces = f.pieces[1:]
			}
			return n, nil
		case len(f.pieces) == 0 && f.closed && !l.blockedLocked(down):
			return 0, io.EOF
		}
		l.awaitLocked(down, l.deadline[0])
	}
}

// Write never blocks: the room is unlimited.
func (l *link) Write(p []byte) (int, error) {
	r := l.route
	r.mu.Lock()
	defer r.mu.Unlock()
	switch f := &l.flows[up]; {
	case l.closed:
		return 0, l.wrap("write", net.ErrClosed)
	case l.flows[down].fails != nil:
		return 0, l.wrap("write", syscall.EPIPE)
	case l.overLocked(1):
		return 0, l.wrap("write", os.ErrDeadlineExceeded)
	case f.gone && !l.blockedLocked(down):
		return 0, l.wrap("write", syscall.EPIPE)
	}
	l.putLocked(up, shifted(p, sentTime, r.ahead))
	return len(p), nil
}

// Close ends the connection after the bytes written.
func (l *link) Close() error {
	r := l.route
	r.mu.Lock()
	defer r.mu.Unlock()
	l.closed = true
	l.flows[up].closed = true
	l.flows[down].pieces = nil
	l.forgetLocked()
	l.wakeLocked()
	return nil
}

func (l *link) wrap(op string, err error) error {
	return &net.OpError{Op: op, Net: "tcp", Source: address(l.route.name), Addr: l.addr, Err: err}
}

func (l *link) overLocked(i int) bool {
	return !l.deadline[i].IsZero() && !time.Now().Before(l.deadline[i])
}

func (l *link) setDeadline(t time.Time, which ...int) error {
	r := l.route
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, i := range which {
		l.deadline[i] = t
	}
	if f := &l.flows[down]; !t.IsZero() && (f.rings.IsZero() || t.Before(f.rings)) {
		f.changed.Broadcast() // a Write never waits
	}
	return nil
}

func (l *link) SetDeadline(t time.Time) error      { return l.setDeadline(t, 0, 1) }
func (l *link) SetReadDeadline(t time.Time) error  { return l.setDeadline(t, 0) }
func (l *link) SetWriteDeadline(t time.Time) error { return l.setDeadline(t, 1) }
func (l *link) LocalAddr() net.Addr                { return address(l.route.name) }
func (l *link) RemoteAddr() net.Addr               { return l.addr }

type address string

func (a address) Network() string { return "tcp" }
func (a address) String() string  { return string(a) }
