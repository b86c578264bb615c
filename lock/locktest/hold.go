package locktest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/lockwire/lockwire/lock"
)

// Holder is somebody else who has a lock: see [Server.Hold].
type Holder struct {
	Owner string // as in lock.Info

	s    *Server
	name string
}

// stranger is the id of the clients behind Holders.
const stranger = "10c4e570-0000-4000-8000-000000000001"

// Hold takes the lock called name for another process, or fails the test if the lock is taken. The process is as well a JVM
// with Redisson (RLock.lock in the thread 7) as one of this package, which store the same. The lock is free after lease,
// or with [Holder.Release]; with a lease of 0 only then.
//
// Hold is for the kinds with one owner: Reentrant, NonReentrant, Spin, Fenced and Fair. For others, and for a holder that
// renews its lease and hears of its loss, use a further [Server.Client].
func (s *Server) Hold(name string, lease time.Duration) *Holder {
	s.t.Helper()
	if n := s.fake.Do("EXISTS", name); n != int64(0) {
		s.t.Fatalf("locktest: Hold(%q): the lock is taken", name)
	}
	h := &Holder{Owner: stranger + ":7", s: s, name: name}
	h.take(lease)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.holders = append(s.holders, h)
	return h
}

func (h *Holder) take(lease time.Duration) {
	h.s.fake.Do("HSET", h.name, h.Owner, "1")
	if lease > 0 {
		h.s.fake.Do("PEXPIRE", h.name, fmt.Sprint(lease.Milliseconds()))
	}
}

// Release frees the lock and wakes its waiters, if the Holder still has the lock.
func (h *Holder) Release() {
	if h.s.fake.Do("HDEL", h.name, h.Owner) == int64(1) {
		tag := h.name
		if !strings.Contains(tag, "{") {
			tag = "{" + tag + "}"
		}
		h.s.fake.Do("PUBLISH", "redisson_lock__channel:"+tag, "0")
	}
}

// Lose makes the holder of lease lose its lock, and returns when lease.Err says so with this reason:
//
//   - lock.Forced: the lock is gone from the server.
//   - lock.Taken: another owner has the lock, as after [Server.Hold] without a lease.
//   - lock.Unreachable: the server is cut off until the lease has ended, for all clients. This takes as long as the lease.
//   - lock.Expired, lock.HeldTooLong: Lose waits for the end of a lease taken with lock.For, or lock.AtMost.
//   - lock.ClockJump: the machine of the Client sleeps past the end of the lease, and of the Client's other leases.
//   - lock.ClientClosed: the Client is closed.
//   - lock.PartLost: of a lease with Members, the first Member is lost by force, and the others for this reason.
//
// Forced and Taken are for locks with one owner. For any other reason Lose of a lease with Members loses the first Member. For lock.ClockJump and lock.ClientClosed, the
// lease must be of a Client of this Server. Lose fails the test if the lease cannot be lost for this reason, and does not
// know leases of semaphores and read-write locks.
func (s *Server) Lose(lease *lock.Lease, reason lock.Reason) {
	s.t.Helper()
	if err := lease.Err(); err != nil {
		s.t.Fatalf("locktest: Lose(%v): the lease is over: %v", reason, err)
	}
	if members := lease.Members(); len(members) > 0 {
		s.losePart(members, reason)
		return
	}
	switch reason {
	case lock.Forced, lock.Taken:
		s.take(lease, reason == lock.Taken)
	case lock.Unreachable:
		s.Cut()
		<-lease.Lost()
		s.Heal()
	case lock.Expired, lock.HeldTooLong:
		<-lease.Lost()
	case lock.ClockJump:
		if p := s.processOf(lease); p != nil {
			p.machine.Sleep(time.Until(lease.ValidUntil()))
		}
	case lock.ClientClosed:
		if p := s.processOf(lease); p != nil {
			_ = p.locks.Close()
		}
	}
	s.wantLost(lease, reason)
}

func (s *Server) losePart(members []*lock.Lease, reason lock.Reason) {
	s.t.Helper()
	if reason != lock.PartLost {
		s.Lose(members[0], reason)
		return
	}
	s.Lose(members[0], lock.Forced)
	for _, m := range members[1:] {
		s.wantLost(m, lock.PartLost)
	}
}

// take removes the lock of lease. If taken is set, a stranger has the lock then.
func (s *Server) take(lease *lock.Lease, taken bool) {
	s.t.Helper()
	if s.fake.Do("DEL", lease.Name()) != int64(1) {
		s.t.Fatalf("locktest: Lose: the server has no lock %q", lease.Name())
	}
	if taken {
		s.Hold(lease.Name(), 0)
	}
	_ = lease.Check(context.Background()) // tells the lease
}

// processOf is the process that has the lease, nil if none of this Server has it.
func (s *Server) processOf(lease *lock.Lease) *process {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.processes {
		if strings.HasPrefix(lease.Owner(), p.locks.ID()) {
			return p
		}
	}
	return nil
}

func (s *Server) wantLost(lease *lock.Lease, reason lock.Reason) {
	s.t.Helper()
	err := lease.Err()
	if lost, ok := errors.AsType[*lock.LostError](err); !ok || lost.Reason != reason {
		s.t.Fatalf("locktest: Lose(%v): the lease cannot be lost like this: its Err() is %v", reason, err)
	}
}
