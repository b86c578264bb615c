// Package faultproxy is a proxy between a client and a Redis server that makes the network fail.
//
// It listens on a port of 127.0.0.1 and hands on whole requests and replies. To do so it follows the stream of each
// connection: it knows which reply belongs to which request, in RESP2 and RESP3, pushes and the confirmations of
// subscriptions included, so that one reply can be lost while all others arrive. A stream that is not RESP, such as TLS,
// is handed on as it comes, and so is what follows CLIENT REPLY or MONITOR as far as replies go: faults that look
// at commands do not work there, the others do.
//
// What is set applies to open connections and to later ones. All methods may be called from any goroutine.
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

// Direction is one of the two in which bytes go.
type Direction uint8

const (
	ToServer Direction = iota // requests
	ToClient                  // replies and pushes
)

// Proxy is a proxy in front of one server.
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

// New returns a proxy that listens, in front of the server at that address ("tcp" or "unix"). The server need not be
// there yet: a connection is closed if its server cannot be reached.
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

// Addr returns the address to dial, over "tcp". It stays the same.
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

// Refuse makes dials fail with "connection refused" and, when it is taken back, listens on the same port again. The
// error is that somebody else has taken the port meanwhile; Refuse(false) may then be tried again.
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

// Latency delays every request and every reply by d and up to jitter more, in each direction, in their order. What is
// under way already is not affected.
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

// HalfOpen swallows what goes in one direction, without closing anything: dials succeed and writes do. The end of a
// connection is swallowed too. Requests and replies are swallowed whole, so that a connection which is still there when
// HalfOpen is taken back can go on, though what was swallowed never comes. No network does that to a connection: where the
// order of requests matters, Cut before taking it back.
func (p *Proxy) HalfOpen(dir Direction, on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.halfOpen[dir] = on
}

// DropReply delivers the n-th request of that name from now on, over all connections, and swallows its reply: n is 1 for
// the next. It may be called for several requests of a name.
func (p *Proxy) DropReply(name string, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	name = strings.ToUpper(name)
	p.drops[name] = append(p.drops[name], p.seen[name]+n)
}

// Delay holds back every request of that name for d, and with it what follows on its connection. 0 is off.
func (p *Proxy) Delay(name string, d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delays[strings.ToUpper(name)] = d
}

// Intercept has fn decide about each request, in addition to DropReply and Delay. The calls are one at a time. cmd is the
// request's arguments, the name as the client wrote it first. nil takes fn away; Intercept waits for a call under way.
func (p *Proxy) Intercept(fn func(cmd []string) Verdict) {
	p.hookMu.Lock()
	defer p.hookMu.Unlock()
	p.hook = fn
}

// Count returns how many requests of that name came, whatever became of them. The case of the name does not matter.
func (p *Proxy) Count(name string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seen[strings.ToUpper(name)]
}

// Stats counts what a proxy has seen.
type Stats struct {
	Accepted int // connections since New
	Open     int // connections now
	Lost     int // requests and replies that were swallowed, whatever for
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
