package faultproxy

import (
	"context"
	"net"
	"sync"
	"time"
)

// queued is the number of pieces under way in a direction above which reading stops.
const queued = 1024

// link is a client's connection and the corresponding connection to the server.
type link struct {
	p      *Proxy
	client net.Conn
	match  matcher
	ctx    context.Context // ends with the link
	cancel context.CancelFunc

	mu     sync.Mutex
	server net.Conn // nil before the dial
	ended  bool
}

// piece is a request, a reply or a mere run of bytes on its way.
type piece struct {
	raw []byte
	due time.Time
	act act
}

// act is the effect of a piece's arrival.
type act uint8

const (
	actWrite act = iota
	actCut
	actEnd // end of file
)

func newLink(p *Proxy, client net.Conn) *link {
	l := &link{p: p, client: client}
	l.ctx, l.cancel = context.WithCancel(p.ctx)
	return l
}

// run dials the server and hands on until both directions have ended.
func (l *link) run() {
	defer func() {
		l.end(false)
		l.p.mu.Lock()
		delete(l.p.links, l)
		l.p.mu.Unlock()
	}()
	var d net.Dialer
	server, err := d.DialContext(l.ctx, l.p.network, l.p.target)
	if err != nil {
		return
	}
	l.mu.Lock()
	l.server = server
	if l.ended {
		_ = server.Close()
	}
	l.mu.Unlock()

	up, down := make(chan piece, queued), make(chan piece, queued)
	var wg sync.WaitGroup
	wg.Go(func() { l.carryRequests(newFramer(l.client), lane{l: l, out: up}) })
	wg.Go(func() { l.carryReplies(newFramer(server), lane{l: l, out: down}) })
	wg.Go(func() { l.write(server, up) })
	wg.Go(func() { l.write(l.client, down) })
	wg.Wait()
}

// end closes both connections; with reset, the peers see a failure.
func (l *link) end(reset bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return
	}
	l.ended = true
	l.cancel()
	for _, nc := range []net.Conn{l.client, l.server} {
		if tcp, ok := nc.(*net.TCPConn); ok && reset {
			_ = tcp.SetLinger(0)
		}
		if nc != nil {
			_ = nc.Close()
		}
	}
}

// lane is the pieces of a direction.
type lane struct {
	l    *link
	out  chan<- piece
	last time.Time // when the last piece arrives
}

// send puts a piece on its way, with the extra delay hold. It returns false after the end of the link.
func (w *lane) send(raw []byte, act act, hold time.Duration) bool {
	due := time.Now().Add(w.l.p.travel())
	if due.Before(w.last) {
		due = w.last
	}
	w.last = due.Add(hold)
	select {
	case w.out <- piece{raw, w.last, act}:
		return true
	case <-w.l.ctx.Done():
		return false
	}
}

// finish ends a direction at the end of its stream, unless the end is swallowed too.
func (w *lane) finish(dir Direction) {
	if w.l.p.swallows(dir) {
		<-w.l.ctx.Done()
		return
	}
	w.send(nil, actEnd, 0)
}

func (l *link) carryRequests(f *framer, w lane) {
	defer close(w.out)
	for {
		raw, v, _, err := f.next()
		if err != nil {
			w.finish(ToServer)
			return
		}
		swallowed := l.p.swallows(ToServer)
		cmd := command(v)
		var verdict Verdict
		if cmd != nil {
			verdict = l.p.judge(cmd)
		}
		if swallowed || verdict.Fate == Swallow {
			l.p.countLost()
			continue
		}
		if verdict.Fate == CutBefore {
			w.send(nil, actCut, verdict.Delay)
			return
		}
		if cmd != nil {
			l.match.expect(cmd, verdict.Fate)
		}
		if !w.send(raw, actWrite, verdict.Delay) {
			return
		}
	}
}

func (l *link) carryReplies(f *framer, w lane) {
	defer close(w.out)
	for {
		raw, v, whole, err := f.next()
		if err != nil {
			w.finish(ToClient)
			return
		}
		fate := Deliver
		if whole {
			fate = l.match.fateOf(v)
		}
		if fate == CutAfter {
			w.send(nil, actCut, 0)
			return
		}
		if fate == LoseReply || l.p.swallows(ToClient) {
			l.p.countLost()
			continue
		}
		if !w.send(raw, actWrite, 0) {
			return
		}
	}
}

// write delivers pieces when due.
func (l *link) write(to net.Conn, in <-chan piece) {
	for pc := range in {
		if !l.wait(time.Until(pc.due)) {
			return
		}
		switch pc.act {
		case actCut:
			l.end(false)
			return
		case actEnd:
			l.endWrite(to)
			return
		}
		if !l.writeSliced(to, pc.raw) {
			l.end(false)
			return
		}
	}
}

// endWrite passes on the end of a stream. A server at the end of its stream has closed the connection; a client may have
// requests under way.
func (l *link) endWrite(to net.Conn) {
	half, ok := to.(interface{ CloseWrite() error })
	if to == l.client || !ok {
		l.end(false)
		return
	}
	_ = half.CloseWrite()
}

func (l *link) writeSliced(to net.Conn, raw []byte) bool {
	for {
		n, pause := l.p.slicing()
		if n <= 0 || n >= len(raw) {
			_, err := to.Write(raw)
			return err == nil
		}
		if _, err := to.Write(raw[:n]); err != nil || !l.wait(pause) {
			return false
		}
		raw = raw[n:]
	}
}

// wait lets d pass. It returns false at the end of the link.
func (l *link) wait(d time.Duration) bool {
	if d <= 0 {
		return l.ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-l.ctx.Done():
		return false
	}
}
