package fakeredis

import (
	"crypto/tls"
	"time"
)

// Refuse makes further dials fail with "connection refused". Open connections stay.
func (s *Server) Refuse(on bool) { s.set(func() { s.refuse = on }) }

// Unreachable makes further dials wait until their context ends. Open connections stay.
func (s *Server) Unreachable(on bool) { s.set(func() { s.unreachable = on }) }

// Mute makes the server read everything and do nothing: no command runs then or later, nothing is answered or published. Dials
// succeed. To a client, a mute server looks like a peer behind a network that swallows packets.
func (s *Server) Mute(on bool) { s.set(func() { s.mute = on }) }

// Stall makes the server stop reading, as SIGSTOP does: dials succeed, a client's writes succeed until the connection's
// buffer is full, and all of it runs when Stall ends, before what other servers of a [Network] have sent meanwhile.
func (s *Server) Stall(on bool) {
	s.set(func() {
		switch {
		case on && s.stall == nil && !s.down:
			s.stall = make(chan struct{})
			s.still.Store(true)
		case !on && s.stall != nil:
			close(s.stall)
			s.stall = nil
			s.still.Store(false)
		}
	})
	if !on && s.network != nil {
		time.AfterFunc(time.Microsecond, s.network.flush)
	}
}

// Latency sets how long bytes travel in each direction from now on; 0, the default, is no time. Dial takes a round trip.
func (s *Server) Latency(oneWay time.Duration) { s.latency.Store(int64(oneWay)) }

// Clock moves the clock of TIME by an offset. Keys expire as before; points in time in commands refer to the moved clock.
func (s *Server) Clock(ahead time.Duration) { s.ahead.Store(int64(ahead)) }

// Advance lets d pass for the server, in no time: keys expire that much earlier, and TIME says d more.
func (s *Server) Advance(d time.Duration) {
	s.ahead.Add(int64(d))
	s.set(func() {
		for i := range s.dbs {
			for _, e := range s.dbs[i].keys {
				if e.until != 0 {
					e.until = max(1, e.until-d.Milliseconds())
				}
			}
		}
		s.expireLocked()
	})
}

// epoch is 1970 by the clock of commands, in Unix ms.
func (s *Server) epoch() int64 { return -time.Duration(s.ahead.Load()).Milliseconds() }

// SplitReplies makes the server send in pieces of n bytes, a piece every pause. With a pause of 0 the pieces arrive together
// but are still read separately. 0 is off.
func (s *Server) SplitReplies(n int, pause time.Duration) {
	s.set(func() { s.piece, s.pause = n, pause })
}

// Buffer sets the number of unread bytes above which a client's writes on later connections block. The default is 256 KiB, 0 is
// no bound. The server's output is not bounded.
func (s *Server) Buffer(n int) { s.set(func() { s.buffer = n }) }

// MaxClients makes the server answer a connection above n with an error and close it. 0, the default, is no limit.
func (s *Server) MaxClients(n int) { s.set(func() { s.maxClients = n }) }

// TLS makes later connections speak TLS with cfg, nil plain RESP.
func (s *Server) TLS(cfg *tls.Config) { s.set(func() { s.tls = cfg }) }

// User adds a user. The password of the user "default" is the password of AUTH with a single argument; later connections must
// then authenticate.
func (s *Server) User(name, password string) {
	s.set(func() {
		if s.users == nil {
			s.users = map[string]string{}
		}
		s.users[name] = password
	})
}

// Replicas sets the number counted by WAIT at a server without a [Network]. WAIT answers at once if the number suffices, else
// at its timeout. The default is 0.
func (s *Server) Replicas(n int) { s.set(func() { s.replicas = n }) }

func (s *Server) set(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}
