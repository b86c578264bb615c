package locktest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockwire/lockwire/lock"
)

// Holder is the holder of a lock in another process: see [Server.Hold].
type Holder struct {
	Owner string // as in lock.Info

	s    *Server
	name string
}

// stranger is the id of the clients behind Holders.
const stranger = "10c4e570-0000-4000-8000-000000000001"

// Hold takes the lock called name for another process, or fails the test if the lock is taken. The process may be a
// JVM with Redisson (RLock.lock in the thread 7) or a process of this package: both store the same. The lock becomes free
// after lease, or by [Holder.Release]; with a lease of 0 only by Release. At its end the Server releases what is held.
//
// Hold is for the kinds with a single owner: Reentrant, NonReentrant, Spin, Fenced and Fair. For further kinds, and for a
// holder with renewal and notice of loss, use a further [Server.Client].
func (s *Server) Hold(name string, lease time.Duration) *Holder {
	s.t.Helper()
	if n := s.fake.Do("EXISTS", name); n != int64(0) {
		s.t.Fatalf("locktest: Hold(%q): the lock is taken", name)
	}
	h := &Holder{Owner: stranger + ":7", s: s, name: name}
	s.fake.Do("HSET", name, h.Owner, "1")
	if lease > 0 {
		s.fake.Do("PEXPIRE", name, fmt.Sprint(lease.Milliseconds()))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.holders = append(s.holders, h)
	return h
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

// Lose makes the holder of lease lose the lock, and returns when lease.Err reports the loss with the given reason:
//
//   - lock.Forced: the server loses the lock.
//   - lock.Taken: another owner has the lock, as after [Server.Hold] without a lease.
//   - lock.Unreachable: the server is cut off until the lease has ended, for all clients. This takes as long as the lease.
//   - lock.Expired, lock.HeldTooLong: Lose waits for the end of a lease taken with lock.For, or with lock.AtMost up to an hour.
//   - lock.ClockJump: the machine of the Client sleeps past the end of the lease, and of all leases of the Client.
//   - lock.ClientClosed: the Client is closed.
//   - lock.PartLost: of a lease with Members, the first Member is lost by force, and the rest for this reason.
//
// Forced and Taken are for locks with a single owner. Of a lease with Members, Lose loses one Member for any reason but
// PartLost, and the rest as a consequence. For lock.ClockJump and lock.ClientClosed, the lease must be of a Client of this Server. Lose fails the test
// if the lease cannot be lost for the given reason.
func (s *Server) Lose(lease *lock.Lease, reason lock.Reason) {
	s.t.Helper()
	if err := lease.Err(); err != nil && !lostFor(err, reason) {
		s.t.Fatalf("locktest: Lose(%v): the lease is over: %v", reason, err)
	}
	if members := lease.Members(); len(members) > 0 {
		s.loseMembers(members, reason)
		return
	}
	s.lose(lease, reason)
	s.wantLost([]*lock.Lease{lease}, reason)
}

// loseMembers loses the first of members, and all of them if reason is about a Client. The order of the notices is open.
func (s *Server) loseMembers(members []*lock.Lease, reason lock.Reason) {
	s.t.Helper()
	if reason != lock.PartLost {
		s.lose(members[0], reason)
		s.wantLost(members, reason)
		return
	}
	s.lose(members[0], lock.Forced)
	s.wantLost(members[:1], lock.Forced)
	for i := range members[1:] {
		s.wantLost(members[1+i:2+i], lock.PartLost)
	}
}

func (s *Server) lose(lease *lock.Lease, reason lock.Reason) {
	s.t.Helper()
	switch reason {
	case lock.Forced, lock.Taken:
		s.take(lease, reason == lock.Taken)
	case lock.Unreachable:
		s.Cut()
		await(lease, time.Until(lease.ValidUntil()))
		s.Heal()
	case lock.Expired:
		await(lease, time.Until(lease.ValidUntil()))
	case lock.HeldTooLong:
		await(lease, time.Hour)
	case lock.ClockJump:
		if p := s.processOf(lease); p != nil {
			p.machine.Sleep(time.Until(lease.ValidUntil()))
		}
	case lock.ClientClosed:
		if p := s.processOf(lease); p != nil {
			_ = p.locks.Close()
		}
	}
}

// await waits for the loss of lease, little longer than most.
func await(lease *lock.Lease, most time.Duration) {
	timer := time.NewTimer(most + time.Second)
	defer timer.Stop()
	select {
	case <-lease.Lost():
	case <-timer.C:
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

// processOf is the process with the lease, nil for a process of another Server.
func (s *Server) processOf(lease *lock.Lease) *process {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.processes {
		if slices.ContainsFunc(p.locks.Held(), func(h lock.HeldLease) bool {
			return h.Owner == lease.Owner() && h.Name == lease.Name() && h.Kind == lease.Kind()
		}) {
			return p
		}
	}
	return nil
}

// wantLost fails the test unless one of leases is lost for reason.
func (s *Server) wantLost(leases []*lock.Lease, reason lock.Reason) {
	s.t.Helper()
	if !slices.ContainsFunc(leases, func(l *lock.Lease) bool { return lostFor(l.Err(), reason) }) {
		s.t.Fatalf("locktest: Lose(%v): the lease cannot be lost like this: its Err() is %v%s", reason, leases[0].Err(), needs(reason))
	}
}

// needs says how a lease that can be lost for a reason has to be taken; "" if in any way.
func needs(reason lock.Reason) string {
	switch reason {
	case lock.Expired:
		return "; take the lease with lock.For, because others are renewed"
	case lock.HeldTooLong:
		return "; take the lease with lock.AtMost"
	}
	return ""
}

func lostFor(err error, reason lock.Reason) bool {
	lost, ok := errors.AsType[*lock.LostError](err)
	return ok && lost.Reason == reason
}
