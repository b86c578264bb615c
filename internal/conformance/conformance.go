// Package conformance has the requirements of every lock kind on every server, as tests with a server as an argument: real
// servers, and miniredis in a module apart.
package conformance

import (
	"context"
	"errors"
	"iter"
	"slices"
	"testing"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/lock"
)

// Locker has the methods common to the exclusive lock kinds.
type Locker interface {
	Lock(ctx context.Context, opts ...lock.Option) (*lock.Lease, error)
	TryLock(ctx context.Context, opts ...lock.Option) (*lock.Lease, error)
	Do(ctx context.Context, fn func(context.Context) error, opts ...lock.Option) error
	ForceUnlock(ctx context.Context) (bool, error)
	Info(ctx context.Context) (lock.Info, error)
}

// Server is a server to test on.
type Server struct {
	// Config connects to the server.
	Config conn.Config
	// Command runs a command apart from what is tested, and returns the reply as text.
	Command func(t *testing.T, args ...string) string
	// More returns two more empty servers, for locks on several servers.
	More func(t *testing.T) []Server
}

type row struct {
	name      string
	lock      func(c *lock.Client, name string) Locker
	reentrant bool
	silent    bool       // nobody is told of a release: waiters look by themselves
	stays     string     // the key that stays after the release
	lose      [][]string // commands by which the server loses the lock; nil: the deletion of its key
	// rival is a lock that excludes lock, for kinds with several holders at once; else nil.
	rival   func(c *lock.Client, name string) Locker
	servers bool // on several servers
	// many takes the place of lock: the clients belong to a single process, each client on a server of its own if several
	// servers exist.
	many func(clients []*lock.Client, name string) Locker
}

// deleted is what a lost lock of a row is, where the row does not say.
var deleted = [][]string{{"DEL", "job"}}

var kinds = []row{
	{name: "Reentrant", reentrant: true, lock: func(c *lock.Client, name string) Locker { return c.Reentrant(name) }},
	{name: "Fenced", reentrant: true, stays: "redisson_lock_token:{job}",
		lock: func(c *lock.Client, name string) Locker { return c.Fenced(name) }},
	{name: "NonReentrant", lock: func(c *lock.Client, name string) Locker { return c.NonReentrant(name) }},
	{name: "Fair", reentrant: true, lock: func(c *lock.Client, name string) Locker { return c.Fair(name) }},
	{name: "NonReentrantFair", lock: func(c *lock.Client, name string) Locker { return c.NonReentrantFair(name) }},
	{name: "Spin", reentrant: true, silent: true,
		lock: func(c *lock.Client, name string) Locker { return c.Spin(name, lock.Backoff{}) }},
	{name: "PermitSemaphore", stays: "job", lock: onePermit, lose: [][]string{{"DEL", "{job}:timeout"}, {"SET", "job", "1"}}},
	{name: "ReadLock", lock: readLock, reentrant: true, rival: writeLock},
	{name: "WriteLock", lock: writeLock, reentrant: true},
	{name: "WriteLockAmongReaders", lock: writeLock, reentrant: true, rival: readLock},
	{name: "FasterMulti", reentrant: true, lock: func(c *lock.Client, name string) Locker { return c.FasterMulti(name, "1", "2") }},
	{name: "Plain", silent: true, lock: func(c *lock.Client, name string) Locker { return c.Plain(name) }},
	{name: "Multi", reentrant: true, lose: [][]string{{"DEL", "job"}, {"DEL", "job:2"}}, many: func(clients []*lock.Client, name string) Locker {
		return newMulti(clients[0].Reentrant(name), clients[0].Reentrant(name+":2"))
	}},
	{name: "MultiOnServers", servers: true, many: func(clients []*lock.Client, name string) Locker {
		return newMulti(clients[0].Reentrant(name), clients[1].NonReentrant(name), clients[2].Reentrant(name))
	}},
	{name: "Redlock", servers: true, silent: true, many: func(clients []*lock.Client, name string) Locker {
		return newRedlock(clients[0].Reentrant(name), clients[1].Reentrant(name), clients[2].Reentrant(name))
	}},
	{name: "RedlockPlain", servers: true, silent: true, many: func(clients []*lock.Client, name string) Locker {
		return newRedlock(clients[0].Plain(name), clients[1].Plain(name), clients[2].Plain(name))
	}},
}

func readLock(c *lock.Client, name string) Locker { return c.ReadWrite(name).Read() }

func writeLock(c *lock.Client, name string) Locker { return c.ReadWrite(name).Write() }

var properties = []struct {
	name      string
	reentrant bool // only for reentrant kinds
	test      func(t *testing.T, s *stage)
}{
	{"LockAndUnlock", false, lockAndUnlock},
	{"Exclusion", false, exclusion},
	{"WakesAnotherClient", false, wakesAnotherClient},
	{"LeaseEnds", false, leaseEnds},
	{"Renewal", false, renewal},
	{"LossIsTold", false, lossIsTold},
	{"CancelledWait", false, cancelledWait},
	{"Force", false, force},
	{"WrongType", false, wrongType},
	{"UnlockByAStranger", false, unlockByAStranger},
	{"Reentry", true, reentry},
}

// Kinds yields the kinds with the tests of each. start returns a server with nothing in it, whose time passes as the test's does.
func Kinds() iter.Seq2[string, func(t *testing.T, start func(t *testing.T) Server)] {
	return func(yield func(string, func(*testing.T, func(*testing.T) Server)) bool) {
		var names []string
		for _, kind := range kinds {
			names = append(names, kind.name)
		}
		for _, property := range synchronizers {
			if !slices.Contains(names, property.kind) {
				names = append(names, property.kind)
			}
		}
		for _, name := range names {
			if !yield(name, func(t *testing.T, start func(*testing.T) Server) { testKind(t, name, start) }) {
				return
			}
		}
	}
}

func testKind(t *testing.T, name string, start func(t *testing.T) Server) {
	run := func(property string, kind row, test func(*testing.T, *stage)) {
		t.Run(property, func(t *testing.T) {
			s := newStage(t, start(t), kind)
			test(t, s)
			s.nothingLeft()
		})
	}
	for _, kind := range kinds {
		for _, property := range properties {
			if kind.name == name && (kind.reentrant || !property.reentrant) {
				run(property.name, kind, property.test)
			}
		}
	}
	for _, property := range synchronizers {
		if property.kind == name {
			run(property.name, row{stays: "job"}, property.test)
		}
	}
}

// patience bounds every wait of a test.
const patience = 3 * time.Minute

// stage is the servers of a test, nearly always a single server, with their clients.
type stage struct {
	t       *testing.T
	servers []Server
	kind    row
	peers   map[*lock.Client][]*lock.Client // the clients of a process, by its first client
}

func newStage(t *testing.T, first Server, kind row) *stage {
	s := &stage{t: t, servers: []Server{first}, kind: kind, peers: map[*lock.Client][]*lock.Client{}}
	if kind.servers {
		s.servers = append(s.servers, first.More(t)...)
	}
	return s
}

// command runs a command on all servers, and returns the first server's reply.
func (s *stage) command(args ...string) string {
	s.t.Helper()
	first := ""
	for i, server := range s.servers {
		if reply := server.Command(s.t, args...); i == 0 {
			first = reply
		}
	}
	return first
}

// waiting is how many calls wait in the process of c.
func (s *stage) waiting(c *lock.Client) (n int) {
	for _, peer := range s.peers[c] {
		n += peer.Stats().Waiting
	}
	return n
}

// listening reports whether a server has a listener.
func (s *stage) listening() bool {
	return slices.ContainsFunc(s.servers, func(server Server) bool { return server.Command(s.t, "PUBSUB", "CHANNELS") != "[]" })
}

// client returns a client with new connections, a connection for each server, as a further process would have.
func (s *stage) client(cfg lock.Config) *lock.Client {
	s.t.Helper()
	var all []*lock.Client
	for _, server := range s.servers {
		all = append(all, s.clientOf(server, cfg))
	}
	s.peers[all[0]] = all
	return all[0]
}

// open returns the lock under test for the process of c.
func (s *stage) open(c *lock.Client) Locker {
	if s.kind.many != nil {
		return s.kind.many(s.peers[c], "job")
	}
	return s.kind.lock(c, "job")
}

func (s *stage) clientOf(server Server, cfg lock.Config) *lock.Client {
	s.t.Helper()
	pool, err := conn.Open(s.t.Context(), server.Config)
	if err != nil {
		s.t.Fatal(err)
	}
	c, err := lock.New(pool, cfg)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		if err := errors.Join(c.Close(), pool.Close()); err != nil {
			s.t.Errorf("Close() = %v", err)
		}
	})
	return c
}

// lose makes the server lose the lock.
func (s *stage) lose() {
	s.t.Helper()
	commands := s.kind.lose
	if commands == nil {
		commands = deleted
	}
	for _, args := range commands {
		s.command(args...)
	}
}

// locker returns the lock under test for a new client.
func (s *stage) locker(cfg lock.Config) Locker { return s.open(s.client(cfg)) }

// rival returns a lock that excludes the lock under test, for a new client: as a rule the same lock.
func (s *stage) rival() Locker { return s.rivalOf(s.client(lock.Config{})) }

func (s *stage) rivalOf(c *lock.Client) Locker {
	if s.kind.rival == nil {
		return s.open(c)
	}
	return s.kind.rival(c, "job")
}

func (s *stage) lock(l Locker, opts ...lock.Option) *lock.Lease {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	lease, err := l.Lock(ctx, opts...)
	if err != nil {
		s.t.Fatalf("Lock() = %v", err)
	}
	return lease
}

func (s *stage) unlock(l *lock.Lease) {
	s.t.Helper()
	if err := l.Unlock(s.t.Context()); err != nil {
		s.t.Fatalf("Unlock() = %v", err)
	}
}

func (s *stage) wantErr(what string, err, want error) {
	s.t.Helper()
	if !errors.Is(err, want) {
		s.t.Fatalf("%s = %v, want %v", what, err, want)
	}
}

// eventually waits until done reports true.
func (s *stage) eventually(what string, done func() bool) {
	s.t.Helper()
	s.within(patience, what, done)
}

func (s *stage) within(limit time.Duration, what string, done func() bool) {
	s.t.Helper()
	timeout := time.After(limit)
	for !done() {
		select {
		case <-timeout:
			s.t.Fatalf("%s has not come true", what)
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// nothingLeft fails the test unless the server ends up with no key and no subscription. The latch of a request without an answer
// stays there for 20 s.
func (s *stage) nothingLeft() {
	s.t.Helper()
	for _, server := range s.servers {
		s.within(2*patience, "that no key is left", func() bool {
			if s.kind.stays != "" { // a request that is granted late, and undone, makes it again
				s.command("DEL", s.kind.stays)
			}
			return server.Command(s.t, "DBSIZE") == "0"
		})
		s.eventually("that no subscription is left", func() bool { return server.Command(s.t, "PUBSUB", "CHANNELS") == "[]" })
	}
}
