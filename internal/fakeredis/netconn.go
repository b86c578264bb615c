package fakeredis

import (
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// half is a direction of a connection: bytes written at an end arrive at the opposite end after the latency. Nothing here
// blocks except a sync.Cond, so that a waiting goroutine counts as durably blocked in a synctest bubble.
type half struct {
	latency func() time.Duration
	max     int           // bytes written and not yet read; 0: no bound
	ended   chan struct{} // closed as soon as either end is

	mu       sync.Mutex
	changed  *sync.Cond
	chunks   []chunk
	size     int
	pause    time.Duration // held back before the next chunk
	last     time.Time     // departure of the last chunk
	closed   bool          // by the writer: end of file behind the chunks
	eof      time.Time     // arrival of the end of file
	dropped  bool          // by the reader: nothing more is taken
	reset    bool
	readBy   time.Time
	writeBy  time.Time
	readWake *time.Timer
	sendWake *time.Timer
}

// chunk is a piece of the stream. sent is the time of leaving the writer, due the time of reaching the reader.
type chunk struct {
	data      []byte
	sent, due time.Time
}

func newHalf(latency func() time.Duration, max int) *half {
	h := &half{latency: latency, max: max, ended: make(chan struct{})}
	h.changed = sync.NewCond(&h.mu)
	return h
}

func (h *half) read(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for {
		now := time.Now()
		switch {
		case h.dropped:
			return 0, net.ErrClosed
		case h.reset:
			return 0, errReset
		case over(h.readBy, now):
			return 0, os.ErrDeadlineExceeded
		case len(p) == 0:
			return 0, nil
		case len(h.chunks) > 0 && !h.chunks[0].due.After(now):
			return h.takeLocked(p), nil
		case len(h.chunks) == 0 && h.closed && !h.eof.After(now):
			return 0, io.EOF
		}
		h.readWake = wakeLocked(h, h.readWake, now, h.nextLocked(), h.readBy)
		h.changed.Wait()
	}
}

// nextLocked is when the reader finds something new, or zero if nothing is under way.
func (h *half) nextLocked() time.Time {
	switch {
	case len(h.chunks) > 0:
		return h.chunks[0].due
	case h.closed:
		return h.eof
	}
	return time.Time{}
}

// takeLocked never joins two chunks: pieces stay pieces.
func (h *half) takeLocked(p []byte) int {
	n := copy(p, h.chunks[0].data)
	h.chunks[0].data = h.chunks[0].data[n:]
	if len(h.chunks[0].data) == 0 {
		h.chunks = h.chunks[1:]
	}
	h.size -= n
	h.changed.Broadcast()
	return n
}

func (h *half) write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	done := 0
	for {
		now := time.Now()
		switch {
		case h.closed:
			return done, net.ErrClosed
		case h.reset:
			return done, errReset
		case h.dropped:
			return done, errPipe
		case over(h.writeBy, now):
			return done, os.ErrDeadlineExceeded
		}
		done += h.putLocked(p[done:], now)
		if done == len(p) {
			return done, nil
		}
		h.sendWake = wakeLocked(h, h.sendWake, now, time.Time{}, h.writeBy)
		h.changed.Wait()
	}
}

// putLocked takes as much of p as the room allows.
func (h *half) putLocked(p []byte, now time.Time) int {
	n := len(p)
	if h.max > 0 {
		n = min(n, h.max-h.size)
	}
	if n == 0 {
		return 0
	}
	sent := h.departureLocked(now)
	h.chunks = append(h.chunks, chunk{append([]byte(nil), p[:n]...), sent, h.arrivalLocked(sent)})
	h.size += n
	h.changed.Broadcast()
	return n
}

func (h *half) departureLocked(now time.Time) time.Time {
	sent := now
	if h.last.After(sent) {
		sent = h.last
	}
	sent = sent.Add(h.pause)
	h.pause, h.last = 0, sent
	return sent
}

// arrivalLocked keeps the order of the stream when the latency goes down while bytes are under way.
func (h *half) arrivalLocked(sent time.Time) time.Time {
	due := sent.Add(h.latency())
	if n := len(h.chunks); n > 0 && h.chunks[n-1].due.After(due) {
		due = h.chunks[n-1].due
	}
	return due
}

// delay holds back the next write, and everything later, for d.
func (h *half) delay(d time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pause += d
}

// closeWrite ends the stream after the bytes sent; bytes still held back are lost.
func (h *half) closeWrite() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return
	}
	now := time.Now()
	for n := len(h.chunks); n > 0 && h.chunks[n-1].sent.After(now); n = len(h.chunks) {
		h.size -= len(h.chunks[n-1].data)
		h.chunks = h.chunks[:n-1]
	}
	h.closed, h.eof = true, h.arrivalLocked(now)
	h.endLocked()
}

// closeRead drops unread bytes; the writer's next write fails.
func (h *half) closeRead() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.dropped, h.chunks, h.size = true, nil, 0
	h.endLocked()
}

// abort makes both ends fail at once, as a TCP reset does.
func (h *half) abort() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.reset, h.chunks, h.size = true, nil, 0
	h.endLocked()
}

func (h *half) endLocked() {
	select {
	case <-h.ended:
	default:
		close(h.ended)
	}
	stop(h.readWake)
	stop(h.sendWake)
	h.changed.Broadcast()
}

func (h *half) setReadDeadline(t time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.readBy = t
	h.changed.Broadcast()
}

func (h *half) setWriteDeadline(t time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.writeBy = t
	h.changed.Broadcast()
}

func over(deadline, now time.Time) bool { return !deadline.IsZero() && !now.Before(deadline) }

func stop(t *time.Timer) {
	if t != nil {
		t.Stop()
	}
}

// wakeLocked arms t for the earlier of two instants, of which zero means never, before its caller waits on h.changed.
func wakeLocked(h *half, t *time.Timer, now, a, b time.Time) *time.Timer {
	at := a
	if at.IsZero() || (!b.IsZero() && b.Before(at)) {
		at = b
	}
	switch {
	case at.IsZero():
		stop(t)
	case t == nil:
		return time.AfterFunc(at.Sub(now), h.wake)
	default:
		t.Reset(at.Sub(now))
	}
	return t
}

func (h *half) wake() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.changed.Broadcast()
}

// memConn is an end of a connection in memory.
type memConn struct {
	in, out       *half
	local, remote memAddr
}

type memAddr struct{ network, addr string }

func (a memAddr) Network() string { return a.network }
func (a memAddr) String() string  { return a.addr }

func (c *memConn) Read(p []byte) (int, error) {
	n, err := c.in.read(p)
	return n, c.wrap("read", err)
}

func (c *memConn) Write(p []byte) (int, error) {
	n, err := c.out.write(p)
	return n, c.wrap("write", err)
}

func (c *memConn) wrap(op string, err error) error {
	if err == nil || err == io.EOF {
		return err
	}
	return &net.OpError{Op: op, Net: c.local.network, Source: c.local, Addr: c.remote, Err: err}
}

func (c *memConn) Close() error {
	c.in.closeRead()
	c.out.closeWrite()
	return nil
}

func (c *memConn) reset() {
	c.in.abort()
	c.out.abort()
}

func (c *memConn) LocalAddr() net.Addr  { return c.local }
func (c *memConn) RemoteAddr() net.Addr { return c.remote }

func (c *memConn) SetDeadline(t time.Time) error {
	c.in.setReadDeadline(t)
	c.out.setWriteDeadline(t)
	return nil
}

func (c *memConn) SetReadDeadline(t time.Time) error {
	c.in.setReadDeadline(t)
	return nil
}

func (c *memConn) SetWriteDeadline(t time.Time) error {
	c.out.setWriteDeadline(t)
	return nil
}
