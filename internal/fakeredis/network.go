package fakeredis

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"
)

// Network carries the messages between servers: replication, and the questions of sentinels. Clients do not use a Network.
// Between two nodes all messages arrive in order; a blocked message, or a message to a paused server, arrives afterwards.
type Network struct {
	delay func(from, to string) time.Duration // constant, like the following

	mu      sync.Mutex // guards the following; taken with a server's mu held
	nodes   map[string]*Server
	paths   map[direction]*path
	blocked map[direction]bool
	resting bool
}

// direction is the way from an address to an address.
type direction struct{ from, to string }

// path is the messages under way in a direction.
type path struct {
	network *Network
	to      *Server
	way     direction
	order   sync.Mutex // held during a delivery; taken with no server's mu held
	queue   []letter   // guarded by the network's mu
}

// letter is something under way.
type letter struct {
	due    time.Time
	arrive func()
}

// NewNetwork returns a Network. delay returns the time of a message; it must not block.
func NewNetwork(delay func(from, to string) time.Duration) *Network {
	return &Network{delay: delay, nodes: map[string]*Server{}, paths: map[direction]*path{}, blocked: map[direction]bool{}}
}

// Join makes a server reachable at addr, host:port. Call Join before the first use of the server.
func (n *Network) Join(addr string, s *Server) {
	n.mu.Lock()
	n.nodes[addr] = s
	n.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.addr, s.network = addr, n
	for i := range s.dbs {
		s.dbs[i].changed = map[string]bool{}
	}
	s.repl.begin()
	if s.sentinel != nil {
		delete(s.sentinel.others, addr)
	}
	s.beatLocked()
}

// Block holds back all messages from an address to an address, or lets the messages go.
func (n *Network) Block(from, to string, on bool) {
	n.mu.Lock()
	n.blocked[direction{from, to}] = on
	n.mu.Unlock()
	if !on {
		n.flush()
	}
}

// flush delivers the due messages.
func (n *Network) flush() {
	n.mu.Lock()
	var all []*path
	for _, p := range n.paths {
		all = append(all, p)
	}
	n.mu.Unlock()
	slices.SortFunc(all, func(a, b *path) int {
		return cmp.Or(cmp.Compare(a.way.from, b.way.from), cmp.Compare(a.way.to, b.way.to))
	})
	for _, p := range all {
		p.deliver()
	}
}

// send calls arrive at the server at addr, with its mu held, after the delay and extra. The message is lost if the server is
// missing or does not run.
func (s *Server) send(addr string, extra time.Duration, arrive func(to *Server)) {
	s.post(addr, extra, arrive, nil)
}

// sendOr is send; it calls refused here, with mu held, if the server at addr does not run.
func (s *Server) sendOr(addr string, arrive func(to *Server), refused func()) {
	from := s.addr
	s.post(addr, 0, arrive, func(to *Server) {
		to.post(from, 0, func(*Server) { refused() }, nil)
	})
}

func (s *Server) post(addr string, extra time.Duration, arrive, missed func(to *Server)) {
	n := s.network
	n.mu.Lock()
	defer n.mu.Unlock()
	to := n.nodes[addr]
	if to == nil {
		return
	}
	way := direction{s.addr, addr}
	p := n.paths[way]
	if p == nil {
		p = &path{network: n, to: to, way: way}
		n.paths[way] = p
	}
	due := time.Now().Add(n.delay(s.addr, addr) + extra)
	if last := len(p.queue); last > 0 && p.queue[last-1].due.After(due) {
		due = p.queue[last-1].due
	}
	p.queue = append(p.queue, letter{due, func() {
		to.mu.Lock()
		defer to.mu.Unlock()
		switch {
		case to.closed:
		case !to.down:
			arrive(to)
		case missed != nil:
			missed(to)
		}
	}})
	time.AfterFunc(time.Until(due), p.deliver)
}

// deliver delivers the arrived messages.
func (p *path) deliver() {
	p.order.Lock()
	defer p.order.Unlock()
	for {
		p.network.mu.Lock()
		if len(p.queue) == 0 || p.queue[0].due.After(time.Now()) || p.network.blocked[p.way] || p.to.still.Load() {
			p.network.mu.Unlock()
			return
		}
		next := p.queue[0]
		p.queue = p.queue[1:]
		p.network.mu.Unlock()
		next.arrive()
	}
}

// beat is how often a server in a Network does what has to be done from time to time.
const beat = 100 * time.Millisecond

// beatLocked has the server's beats begin.
func (s *Server) beatLocked() {
	next := beat
	if s.sentinel != nil {
		next = beat/2 + s.sentinel.watch.Chance(beat)
	}
	time.AfterFunc(next, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.closed || s.network.isResting() {
			return
		}
		switch {
		case s.still.Load() || s.down:
		case s.sentinel != nil:
			s.sentinel.beat()
		case s.cluster != nil:
			s.replicateLocked()
			s.cluster.beat()
		default:
			s.replicateLocked()
		}
		s.beatLocked()
	})
}

// Rest ends what the servers do from time to time, for good: nothing is to happen any more.
func (n *Network) Rest() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.resting = true
}

func (n *Network) isResting() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.resting
}

// reaches reports whether two nodes reach each other.
func (n *Network) reaches(a, b string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return !n.blocked[direction{a, b}] && !n.blocked[direction{b, a}]
}

// Kill ends the server's process: its connections end, and dials are refused until Revive.
func (s *Server) Kill() {
	s.mu.Lock()
	for _, id := range sortedKeys(s.conns) {
		s.killLocked(s.conns[id], false)
	}
	s.leaveLocked()
	s.down = true
	s.mu.Unlock()
	s.Stall(false)
}

// Revive starts the server's process again, with the data on its disk or empty. The server follows its former master. A sentinel knows the servers,
// the other sentinels and the epochs.
func (s *Server) Revive(keep bool) {
	s.restart(keep)
	s.set(func() {
		s.down = false
		if s.cluster != nil {
			s.cluster.restarted()
		}
		if s.sentinel != nil {
			s.sentinel.restarted()
		}
	})
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
