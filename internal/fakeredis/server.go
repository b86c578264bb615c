// Package fakeredis is a Redis server in memory, for tests in virtual time.
//
// Its connections are values of net.Conn without a socket, and its clock is time.Now, so inside a testing/synctest bubble a
// lease of thirty seconds ends without any wait. Replies look as in Redis 7.0. Rare behaviour of a real server happens on
// demand: [Server.Intercept] decides for each command about its run, its answer, and the fate of the connection.
//
//	srv := fakeredis.New()
//	defer srv.Close()
//	pool, err := conn.Open(ctx, conn.Config{Dial: srv.Dial})
//
// The server has no Lua: a script is a Go function registered for its source with [Server.Script], or made from the source by
// an interpreter given to [Server.Interpret].
//
// Make a Server for a bubble inside the bubble. It starts a goroutine for each connection and joins the goroutines in Close.
package fakeredis

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// Version is the server's version in HELLO and INFO.
const Version = "7.0.15"

const defaultBuffer = 256 << 10

// Server is a Redis server in memory. Any goroutine may call its methods, and so may an interceptor, except [Server.Close] and
// [Server.Intercept], which would wait for the interceptor.
type Server struct {
	commands map[string]*command // constant after New
	latency  atomic.Int64        // of a single direction, in ns
	ahead    atomic.Int64

	hookMu sync.Mutex // held while hook runs
	hook   func(Cmd) Action

	wg sync.WaitGroup // a goroutine for each connection

	mu          sync.Mutex // guards the following, and runs a command at a time
	tick        chan struct{}
	closed      bool
	refuse      bool
	unreachable bool
	mute        bool
	stall       chan struct{}
	maxClients  int
	buffer      int
	piece       int
	pause       time.Duration
	tls         *tls.Config
	users       map[string]string
	replicas    int
	full        bool
	denied      []string
	dials       int
	lastID      int64
	conns       map[int64]*conn
	log         []Cmd
	counts      map[string]int
	messages    []Message
	dbs         [16]db
	channels    map[string][]*conn
	patterns    map[string][]*conn
	shards      map[string][]*conn
	waiters     []*waiter
	sources     map[string]func(*Call) any
	interpret   func(source string) (func(*Call) any, error)
	scripts     map[string]*script
	cursors     map[uint64]string
	notify      notifications
	expiry      *time.Timer // for events of expired keys; nil: never set
	runID       string
	started     time.Time

	still     atomic.Bool // stalled
	network   *Network    // nil: the server knows no peer; constant after Join, like addr
	addr      string
	down      bool // killed
	repl      replication
	published []Message // by the running command
	sentinel  *sentinel // nil: the server is none; constant
	cluster   *cluster  // nil: the server is no node of a cluster; constant
}

// New returns a Server with no data, no connection and no goroutine.
func New() *Server {
	s := &Server{
		commands: commandTable(),
		buffer:   defaultBuffer,
		conns:    map[int64]*conn{},
		counts:   map[string]int{},
		sources:  map[string]func(*Call) any{},
	}
	s.forgetLocked()
	return s
}

// forgetLocked makes the server as empty as a new process.
func (s *Server) forgetLocked() {
	for i := range s.dbs {
		s.dbs[i] = db{index: i, keys: map[string]*entry{}}
		if s.network != nil {
			s.dbs[i].changed = map[string]bool{}
		}
	}
	s.channels, s.patterns, s.shards = map[string][]*conn{}, map[string][]*conn{}, map[string][]*conn{}
	s.scripts, s.cursors, s.waiters = map[string]*script{}, map[uint64]string{}, nil
	s.runID, s.started = newRunID(), time.Now()
	s.published = nil
	s.repl.begin()
}

// Dial connects to the server, for the Dial field of conn.Config; network and addr only appear in the connection's addresses.
// Dial takes a round trip of [Server.Latency].
func (s *Server) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	fail := func(err error) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Net: network, Addr: memAddr{network, addr}, Err: err}
	}
	s.mu.Lock()
	s.dials++
	unreachable := s.unreachable
	s.tickLocked()
	s.mu.Unlock()
	if unreachable {
		<-ctx.Done()
	}
	if d := 2 * s.oneWay(); d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	if ctx.Err() != nil {
		return fail(context.Cause(ctx))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.refuse || s.down {
		return fail(errRefused)
	}
	return s.acceptLocked(network, addr), nil
}

func (s *Server) oneWay() time.Duration { return time.Duration(s.latency.Load()) }

func (s *Server) acceptLocked(network, addr string) *memConn {
	s.lastID++
	local := memAddr{network, "127.0.0.1:" + strconv.FormatInt(50000+s.lastID%10000, 10)}
	remote := memAddr{network, addr}
	up, down := newHalf(s.oneWay, s.buffer), newHalf(s.oneWay, 0)
	client := &memConn{in: down, out: up, local: local, remote: remote}
	server := &memConn{in: up, out: down, local: remote, remote: local}
	if s.maxClients > 0 && len(s.conns) >= s.maxClients {
		_, _ = server.Write(appendReply(nil, Err("ERR max number of clients reached"), 2))
		_ = server.Close()
		return client
	}
	c := newConn(s, s.lastID, server)
	if s.tls != nil {
		c.nc = tls.Server(server, s.tls)
	}
	s.conns[c.id] = c
	s.tickLocked()
	s.wg.Go(c.serve)
	return client
}

// Close refuses further dials, closes every connection and returns when the server's goroutines have ended. It may be
// called twice.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	s.expireLocked()
	for _, c := range s.conns {
		s.killLocked(c, false)
	}
	s.mu.Unlock()
	s.wg.Wait()
}

// killLocked closes a connection as the server would; commands sent before and not yet run never run.
func (s *Server) killLocked(c *conn, reset bool) {
	if c.dead {
		return
	}
	c.dead = true
	close(c.killed)
	if reset {
		c.mem.reset()
	}
	_ = c.mem.Close()
	c.unsubscribeAll()
	c.unwatch()
	s.waiters = slices.DeleteFunc(s.waiters, func(w *waiter) bool { return w.c == c })
	delete(s.conns, c.id)
	s.tickLocked()
}

// tickLocked wakes the callers of Await.
func (s *Server) tickLocked() {
	if s.tick != nil {
		close(s.tick)
		s.tick = nil
	}
}

// Await returns nil once done returns true, and the cause of ctx if ctx ends first. It calls done at once and again whenever a
// command was taken or a connection came or went. done is called without a lock and may use the Server.
func (s *Server) Await(ctx context.Context, done func() bool) error {
	for {
		s.mu.Lock()
		if s.tick == nil {
			s.tick = make(chan struct{})
		}
		tick := s.tick
		s.mu.Unlock()
		if done() {
			return nil
		}
		select {
		case <-tick:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Do runs a command on database 0 as a further client would, and returns its reply: int64, string, nil, []any, Status or Err.
// The command is neither logged nor intercepted, and never blocks: BLPOP of an empty list answers nil. Commands about a
// connection, such as SUBSCRIBE or MULTI, are errors.
func (s *Server) Do(args ...string) any {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.tickLocked()
	cmd, bad := s.lookup(args)
	if bad != "" {
		return bad
	}
	if cmd.flags&onConn != 0 {
		return Err("ERR " + cmd.name + " needs a connection")
	}
	if cmd.changesData() && s.repl.master != "" {
		return errReadOnly
	}
	x := &call{s: s, c: &conn{s: s, proto: 2, authed: true}, db: &s.dbs[0], cmd: cmd, args: args, now: nowMs(), inside: true}
	reply := plain(x.do())
	s.ranLocked(x.c)
	return reply
}

// ranLocked does the work after each command. WAIT concerns the writes of its own connection, as in Redis 8.0 and Valkey 9.
func (s *Server) ranLocked(c *conn) {
	before := s.repl.offset
	if s.propagateLocked(); s.repl.offset != before {
		c.offset = s.repl.offset
	}
	s.serveWaitersLocked()
	s.propagateLocked()
}

// nowMs is the clock of expiries: Unix time in whole milliseconds.
func nowMs() int64 { return time.Now().UnixMilli() }

// Conn describes a connection to the server.
type Conn struct {
	ID         int64  // as CLIENT ID answers; 1 is the first
	Name       string // as set by CLIENT SETNAME or HELLO
	DB         int
	Protocol   int // 2 or 3
	Subscribed int // channels, patterns and shard channels
}

// Conns lists the open connections, in the order of their dials.
func (s *Server) Conns() []Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []Conn
	for _, id := range slices.Sorted(maps.Keys(s.conns)) {
		list = append(list, s.conns[id].describe())
	}
	return list
}

// Dials returns the number of calls of Dial, including refused dials.
func (s *Server) Dials() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dials
}

// KillConns closes the connections for which which returns true, all if which is nil, and returns their number. The client
// still reads earlier bytes, then end of file. which must not call the Server.
func (s *Server) KillConns(which func(Conn) bool) int { return s.kill(which, false) }

// ResetConns is KillConns with a TCP reset: both ends fail at once and bytes under way are lost.
func (s *Server) ResetConns(which func(Conn) bool) int { return s.kill(which, true) }

func (s *Server) kill(which func(Conn) bool, reset bool) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, c := range s.conns {
		if which == nil || which(c.describe()) {
			s.killLocked(c, reset)
			n++
		}
	}
	return n
}

// Push sends raw bytes to a connection, between two replies: an unexpected push, a reply too many, or garbage. It returns false
// for an unknown connection.
func (s *Server) Push(id int64, raw string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.conns[id]
	if c == nil {
		return false
	}
	c.writeLocked([]byte(raw))
	return true
}

func newRunID() string {
	var id [20]byte
	rand.Read(id[:])
	return hex.EncodeToString(id[:])
}

// Restart forgets all data and scripts and closes all connections, like a server that died and came back empty: INFO gives a
// new run_id and the uptime 0. Settings by the Server's methods stay.
func (s *Server) Restart() { s.restart(false) }

// RestartWithData is Restart of a server with everything on its disk.
func (s *Server) RestartWithData() { s.restart(true) }

func (s *Server) restart(keep bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.conns {
		s.killLocked(c, false)
	}
	kept := s.dbs
	s.forgetLocked()
	for i := range kept {
		if keep {
			s.dbs[i].keys = kept[i].keys
		}
	}
}

// errUnknown is Redis' reply to an unknown command.
func errUnknown(args []string) Err {
	text := ""
	for _, arg := range args[1:] {
		if len(text) >= 128 {
			break
		}
		text += fmt.Sprintf("'%.*s' ", 128-len(text), arg)
	}
	return Err(fmt.Sprintf("ERR unknown command '%.128s', with args beginning with: %s", args[0], text))
}
