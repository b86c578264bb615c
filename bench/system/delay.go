package system

import (
	"net"
	"runtime"
	"sync"
	"time"
)

// Delay stands between clients and a server and makes each round trip longer by a fixed time, half of it in each
// direction.
type Delay struct {
	Addr string

	target   string
	listener net.Listener
	there    *line
	back     *line
	running  sync.WaitGroup

	mu    sync.Mutex // guards the following
	ended bool
	conns []net.Conn
}

// StartDelay listens on a new port. Stop ends the delay.
func StartDelay(target string, roundTrip time.Duration) (*Delay, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	d := &Delay{
		Addr: listener.Addr().String(), target: target, listener: listener,
		there: newLine(roundTrip / 2), back: newLine(roundTrip - roundTrip/2),
	}
	d.running.Go(d.there.run)
	d.running.Go(d.back.run)
	d.running.Go(d.accept)
	return d, nil
}

// Stop ends all connections and returns when nothing runs any more.
func (d *Delay) Stop() {
	d.listener.Close()
	d.mu.Lock()
	d.ended = true
	for _, c := range d.conns {
		c.Close()
	}
	d.mu.Unlock()
	d.there.close()
	d.back.close()
	d.running.Wait()
}

func (d *Delay) accept() {
	for {
		client, err := d.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", d.target)
		if err != nil {
			client.Close()
			continue
		}
		d.mu.Lock()
		d.conns = append(d.conns, client, server)
		if d.ended {
			client.Close()
			server.Close()
		}
		d.mu.Unlock()
		d.running.Go(func() { d.there.read(client, server) })
		d.running.Go(func() { d.back.read(server, client) })
	}
}

// line carries the bytes of all connections in a single direction. The delay is constant, so packets leave in the order of
// arrival.
type line struct {
	delay   time.Duration
	packets chan packet
	done    chan struct{}
}

// packet is the result of a single read. Without bytes it is the end of its connection.
type packet struct {
	to    net.Conn
	bytes []byte
	due   time.Time
}

// largestPacket limits a read, and packetsUnderWay the packets waiting for their time.
const (
	largestPacket   = 64 << 10
	packetsUnderWay = 4096
)

func newLine(delay time.Duration) *line {
	return &line{delay: delay, packets: make(chan packet, packetsUnderWay), done: make(chan struct{})}
}

func (l *line) close() { close(l.done) }

// read reads from a connection until its end.
func (l *line) read(from, to net.Conn) {
	buf := make([]byte, largestPacket)
	for {
		n, err := from.Read(buf)
		p := packet{to: to, bytes: append([]byte(nil), buf[:n]...), due: time.Now().Add(l.delay)}
		if n == 0 && err == nil {
			continue
		}
		select {
		case l.packets <- p:
		case <-l.done:
			return
		}
		if err != nil {
			if n > 0 {
				l.end(to)
			}
			return
		}
	}
}

func (l *line) end(to net.Conn) {
	select {
	case l.packets <- packet{to: to, due: time.Now().Add(l.delay)}:
	case <-l.done:
	}
}

// run writes each packet when due. It has a thread of its own, since a timer of the runtime may be a millisecond late.
func (l *line) run() {
	runtime.LockOSThread()
	exactSleep() // the locked thread ends with its goroutine
	for {
		select {
		case p := <-l.packets:
			if !l.waitUntil(p.due) {
				return
			}
			if len(p.bytes) == 0 {
				p.to.Close()
				continue
			}
			p.to.Write(p.bytes) // the reader sees a broken connection
		case <-l.done:
			return
		}
	}
}

// longestSleep is the longest time before run notices its end.
const longestSleep = 10 * time.Millisecond

// waitUntil returns false if the line is closed before.
func (l *line) waitUntil(due time.Time) bool {
	for d := time.Until(due); d > 0; d = time.Until(due) {
		select {
		case <-l.done:
			return false
		default:
			sleep(min(d, longestSleep))
		}
	}
	return true
}
