// Package locktest is a server for tests of programs with locks: in memory, without a socket, inside and outside
// testing/synctest.
//
//	func TestImport(t *testing.T) {
//		srv := locktest.NewServer(t)
//		locks := srv.Client(lock.Config{})       // for the code under test
//		other := srv.Hold("import", time.Minute) // somebody else has the lock
//		...
//	}
//
// In a bubble of testing/synctest no test waits for a lease, and every time is exact: create the Server there, and let time
// pass by time.Sleep. Outside a bubble time is real, and [Server.Advance] lets more of it pass.
//
// At the end of the test, the Server reports forgotten leases, calls still waiting, and remaining keys of locks.
// See [Server.Leaks].
//
// The Server knows the scripts of all kinds of locks, and the usual commands of programs with locks, as a single
// server without replicas, cluster or further Lua.
package locktest

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/internal/lockscripts"
	"github.com/lockwire/lockwire/lock"
	"github.com/lockwire/lockwire/lock/internal/machine"
)

// TB is the part of [testing.TB] used by this package.
type TB interface {
	Helper()
	Cleanup(func())
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// Server is a Redis server in memory. Any number of goroutines may call the methods. Client, Hold and Lose may fail the
// test with Fatalf, and belong in the goroutine of the test.
type Server struct {
	t    TB
	fake *fakeredis.Server

	mu        sync.Mutex // guards the following
	processes []*process
	holders   []*Holder
	acquires  map[string]bool // the digests of acquire scripts
	asked     map[string]bool // the KEYS of all acquires so far
	acquired  int             // acquires so far
	faults    map[int]fakeredis.Action
}

// process is a lock.Client with a pool and a machine of its own.
type process struct {
	*conn.Pool
	target  string
	machine machine.Machine
	locks   *lock.Client
}

// Machine is for lock.New.
func (p *process) Machine() *machine.Machine { return &p.machine }

// Target is the same for all processes of a Server, as for pools with one address. The target of the Pool is unknown,
// because the Pool has a function to dial.
func (p *process) Target() string { return p.target }

// NewServer starts a Server. At the end of the test the Server reports the result of [Server.Leaks] as errors of the test,
// and closes its Clients and itself.
func NewServer(t TB) *Server {
	s := &Server{t: t, fake: fakeredis.New(), acquires: map[string]bool{}, asked: map[string]bool{}, faults: map[int]fakeredis.Action{}}
	s.fake.Interpret(s.interpret)
	s.fake.Intercept(s.intercept)
	t.Cleanup(s.close)
	return s
}

// interpret notes the digests of acquires.
func (s *Server) interpret(source string) (func(*fakeredis.Call) any, error) {
	if strings.HasSuffix(lockscripts.Title(source), ", acquire") {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.acquires[fakeredis.Digest(source)] = true
	}
	return lockscripts.Interpret(source)
}

// Config returns the configuration for a conn.Open of the program under test.
func (s *Server) Config() conn.Config { return conn.Config{Dial: s.fake.Dial} }

// Client returns a Client on a new pool: a further process. The Server closes both at the end of the test;
// the test may close the Client before.
func (s *Server) Client(cfg lock.Config) *lock.Client {
	s.t.Helper()
	pool, err := conn.Open(context.Background(), s.Config())
	if err != nil {
		s.t.Fatalf("locktest: %v", err)
	}
	p := &process{Pool: pool, target: fmt.Sprintf("locktest %p", s)}
	if p.locks, err = lock.New(p, cfg); err != nil {
		_ = pool.Close()
		s.t.Fatalf("locktest: %v", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.processes = append(s.processes, p)
	return p.locks
}

// Advance lets d pass at once, outside testing/synctest: keys expire, and waiters look again. Meanwhile the Clients of this
// Server are suspended, as on a sleeping machine: a lease ending within d is lost with the reason lock.ClockJump.
// Timers and contexts go by the real time. In a bubble use time.Sleep instead.
func (s *Server) Advance(d time.Duration) {
	s.fake.Advance(d)
	s.mu.Lock()
	for _, p := range s.processes {
		p.machine.Sleep(d)
	}
	s.mu.Unlock()
	channels, _ := s.fake.Do("PUBSUB", "CHANNELS", "redisson_*").([]any)
	for _, channel := range channels {
		s.fake.Do("PUBLISH", channel.(string), "0")
	}
}

// close is the end of the test.
func (s *Server) close() {
	s.t.Helper()
	s.Heal()
	s.mu.Lock()
	processes, holders := s.processes, s.holders
	s.mu.Unlock()
	for _, h := range holders {
		h.Release()
	}
	for _, line := range s.Leaks() {
		s.t.Errorf("locktest: left over: %s", line)
	}
	for _, p := range processes {
		_ = p.locks.Close()
		_ = p.Pool.Close()
	}
	s.fake.Close()
}
