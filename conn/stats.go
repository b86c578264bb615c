package conn

// Stats are the numbers of a Pool at one moment, and its counters since Open.
type Stats struct {
	Shared   int // shared connections that are open
	InFlight int // calls on any connection that have no answer yet, with those whose caller has left

	// Exclusive connections: Open = Idle + Lent + Dialing, which is at most Config.MaxConns. Those that are waited
	// for after their return count as lent.
	Open, Idle, Lent, Dialing int

	Waiting int // callers that wait for an exclusive connection

	Dials      uint64 // begun, of both kinds
	DialErrors uint64
	Lost       uint64 // connections that failed
	Switches   uint64 // times that sentinels named another server as the master
	Retries    uint64 // attempts of calls after their first
	PushesLost uint64 // dropped, as OnPush was too slow
}

// Stats returns the numbers of this moment. It is cheap enough to be called every second.
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
		PushesLost: p.pushes.lost(),
	}
	for _, slot := range p.slots {
		if slot.ready() != nil {
			s.Shared++
		}
	}
	for l := range p.links {
		s.InFlight += l.outstanding()
	}
	return s
}
