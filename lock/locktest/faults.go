package locktest

import (
	"strconv"
	"strings"
	"time"

	"github.com/lockwire/lockwire/internal/fakeredis"
)

// Cut separates the server from all clients: connections break, and dials fail. The data stays, and keys expire.
func (s *Server) Cut() {
	s.fake.Refuse(true)
	s.fake.ResetConns(nil)
}

// Heal ends [Server.Cut].
func (s *Server) Heal() { s.fake.Refuse(false) }

// DropReply loses the reply to the n-th acquire from now on, 1 for the next: the server grants or refuses the lock, and
// the connection breaks. Acquires count for all kinds of locks, and so does each attempt of a waiter.
func (s *Server) DropReply(n int) { s.fault(n, fakeredis.RunThenClose().ThenReset()) }

// DelayReply delays the reply to the n-th acquire from now on by d, and the following replies on the connection.
func (s *Server) DelayReply(n int, d time.Duration) { s.fault(n, fakeredis.Run().Late(d)) }

func (s *Server) fault(n int, act fakeredis.Action) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults[s.acquired+n] = act
}

// intercept decides about each command.
func (s *Server) intercept(cmd fakeredis.Cmd) fakeredis.Action {
	if len(cmd.Args) < 2 {
		return fakeredis.Run()
	}
	digest := ""
	switch cmd.Name {
	case "EVALSHA":
		digest = strings.ToLower(cmd.Args[1])
	case "EVAL":
		digest = fakeredis.Digest(cmd.Args[1])
		_, _ = s.interpret(cmd.Args[1])
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.acquires[digest] {
		return fakeredis.Run()
	}
	for _, key := range keysOf(cmd.Args) {
		s.asked[key] = true
	}
	s.acquired++
	act := s.faults[s.acquired]
	delete(s.faults, s.acquired)
	return act
}

// keysOf returns the KEYS of an EVAL or EVALSHA.
func keysOf(args []string) []string {
	if len(args) < 3 {
		return nil
	}
	n, _ := strconv.Atoi(args[2])
	return args[3:max(3, min(3+n, len(args)))]
}
