// Package faultproxy is a proxy between a client and a Redis server that makes the network fail.
//
// The proxy listens on a port of 127.0.0.1 and hands on whole requests and replies. It follows the stream of each connection
// and knows which reply belongs to which request, in RESP2 and RESP3, including pushes and the confirmations of subscriptions,
// so that a single reply can be lost while all further replies arrive. A stream that is not RESP, such as TLS, is handed on
// unchanged, as are replies after CLIENT REPLY or MONITOR: faults about commands do not work there, all further faults do.
//
// Settings apply to open and to later connections. Any goroutine may call any method.
package faultproxy

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"time"
)

// Direction is a direction of bytes.
type Direction uint8

const (
	ToServer Direction = iota // requests
	ToClient                  // replies and pushes
)

// Proxy is a proxy in front of a server.
type Proxy struct {
	network, target string // constant, as addr and ctx
	addr            string
	ctx             context.Context
	cancel          context.CancelFunc
	wg              sync.WaitGroup // the accept loop and two goroutines for each direction of a connection

	hookMu sync.Mutex // held while hook runs
	hook   func(cmd []string) Verdict

	mu       sync.Mutex // guards the following
	listener net.Listener
	links    map[*link]bool
	latency  time.Duration
	jitter   time.Duration
	slice    int
	pause    time.Duration
	halfOpen [2]bool
	drops    map[string][]int // by name: the numbers of those requests, counted by seen, whose reply is to be lost
	delays   map[string]time.Duration
	seen     map[string]int
	accepted int
	lost     int
}

// New returns a listening proxy in front of the server at an address ("tcp" or "unix"). The server need not run yet: a
// connection without a reachable server is closed.
func New(network, addr string) (*Proxy, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("faultproxy: %w", err)
	}
	p := &Proxy{
		network: network,
		target:  addr,
		addr:    ln.Addr().String(),
		links:   map[*link]bool{},
		drops:   map[string][]int{},
		delays:  map[string]time.Duration{},
		seen:    map[string]int{},
	}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.listenLocked(ln)
	return p, nil
}

// Addr returns the address to dial, over "tcp". The address never changes.
func (p *Proxy) Addr() string { return p.addr }

// Close stops listening, closes all connections and returns when the proxy's goroutines have ended. It may be called
// twice.
func (p *Proxy) Close() {
	p.cancel()
	p.mu.Lock()
	p.deafenLocked()
	p.endAllLocked(false)
	p.mu.Unlock()
	p.wg.Wait()
}

func (p *Proxy) listenLocked(ln net.Listener) {
	p.listener = ln
	p.wg.Go(func() { p.accept(ln) })
}

func (p *Proxy) deafenLocked() {
	if p.listener != nil {
		_ = p.listener.Close()
		p.listener = nil
	}
}

func (p *Proxy) accept(ln net.Listener) {
	for {
		nc, err := ln.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		if p.listener != ln {
			p.mu.Unlock()
			_ = nc.Close()
			return
		}
		p.accepted++
		l := newLink(p, nc)
		p.links[l] = true
		p.wg.Go(l.run)
		p.mu.Unlock()
	}
}

// Refuse makes dials fail with "connection refused" and, taken back, listens on the same port again. An error means that the
// port was taken meanwhile; Refuse(false) may then be tried again.
func (p *Proxy) Refuse(on bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if on {
		p.deafenLocked()
		return nil
	}
	if p.listener != nil || p.ctx.Err() != nil {
		return nil
	}
	ln, err := net.Listen("tcp", p.addr)
	if err != nil {
		return fmt.Errorf("faultproxy: %w", err)
	}
	p.listenLocked(ln)
	return nil
}

// Cut closes all connections, to the client and to the server. What is under way is lost.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.endAllLocked(false)
}

// Reset is Cut by a TCP reset: both sides see "connection reset by peer".
func (p *Proxy) Reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.endAllLocked(true)
}

func (p *Proxy) endAllLocked(reset bool) {
	for l := range p.links {
		l.end(reset)
	}
}

// Latency delays every request and every reply by d and up to jitter more, in each direction, in their order. Pieces under way
// are not affected.
func (p *Proxy) Latency(d, jitter time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.latency, p.jitter = d, jitter
}

// Slice writes at most n bytes at a time, in both directions, and pauses in between. 0 is off.
func (p *Proxy) Slice(n int, pause time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.slice, p.pause = n, pause
}

// HalfOpen swallows the bytes of a direction, without closing anything: dials and writes succeed. The end of a connection is
// swallowed too. HalfOpen swallows whole requests and replies, so a surviving connection can go on after HalfOpen(false),
// although the swallowed pieces never come. No network behaves so: where the order of requests matters, Cut before
// HalfOpen(false).
func (p *Proxy) HalfOpen(dir Direction, on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.halfOpen[dir] = on
}

// DropReply delivers the n-th request of a name from now on, over all connections, and swallows its reply: n is 1 for the next
// request. Several requests of a name may be dropped.
func (p *Proxy) DropReply(name string, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	name = strings.ToUpper(name)
	p.drops[name] = append(p.drops[name], p.seen[name]+n)
}

// Delay holds back every request of a name for d, together with later pieces of its connection. 0 is off.
func (p *Proxy) Delay(name string, d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delays[strings.ToUpper(name)] = d
}

// Intercept lets fn decide about each request, in addition to DropReply and Delay, a call at a time. cmd is the request's
// arguments, first the name as the client wrote it. nil removes fn; Intercept waits for a call under way.
func (p *Proxy) Intercept(fn func(cmd []string) Verdict) {
	p.hookMu.Lock()
	defer p.hookMu.Unlock()
	p.hook = fn
}

// Count returns the number of requests of a name, whatever their fate. The case of the name does not matter.
func (p *Proxy) Count(name string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seen[strings.ToUpper(name)]
}

// Stats has the counts of a proxy.
type Stats struct {
	Accepted int // connections since New
	Open     int // connections now
	Lost     int // swallowed requests and replies, for whatever reason
}

// Stats returns the counts.
func (p *Proxy) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	return Stats{Accepted: p.accepted, Open: len(p.links), Lost: p.lost}
}

// travel is how long the next piece takes.
func (p *Proxy) travel() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	d := p.latency
	if p.jitter > 0 {
		d += rand.N(p.jitter)
	}
	return d
}

func (p *Proxy) swallows(dir Direction) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.halfOpen[dir]
}

func (p *Proxy) slicing() (n int, pause time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.slice, p.pause
}
