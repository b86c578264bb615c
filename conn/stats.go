package conn

// Stats holds the state of a Pool at one moment, and its counters since Open.
type Stats struct {
	Shared   int // open shared connections
	InFlight int // calls without an answer on all connections, including abandoned calls

	// Exclusive connections: Open = Idle + Lent + Dialing, at most Config.MaxConns. A returned connection with
	// replies outstanding counts as lent.
	Open, Idle, Lent, Dialing int

	Waiting int // callers waiting for an exclusive connection

	Dials      uint64 // dials of shared and exclusive connections
	DialErrors uint64
	Lost       uint64 // failed connections
	Switches   uint64 // changes of the master, named by sentinels
	Retries    uint64 // attempts after the first of a call
	PushesLost uint64 // pushes dropped because OnPush was too slow
}

// Stats returns the current numbers. It is cheap enough for a call per second.
func (p *Pool) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.countLocked()
}

func (p *Pool) countLocked() Stats {
	s := Stats{
		Open:       p.openLocked(),
		Idle:       len(p.idle),
		Lent:       p.lent,
		Dialing:    p.dialing,
		Waiting:    p.queue.Len(),
		Dials:      p.dials,
		DialErrors: p.dialErrors,
		Lost:       p.lostLinks,
		Switches:   p.switches,
		Retries:    p.retries.Load(),
		PushesLost: p.pushes.droppedCount(),
	}
	for _, c := range p.sharedConns {
		if c.ready() != nil {
			s.Shared++
		}
	}
	for l := range p.links {
		s.InFlight += l.Outstanding()
	}
	return s
}
