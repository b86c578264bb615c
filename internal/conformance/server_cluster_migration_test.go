package conformance_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockwire/lockwire/internal/redistest"
	"github.com/lockwire/lockwire/lock"
)

// halfMigrated are locks of all kinds in slots that migrate, of which some have been moved and others not.
type halfMigrated struct {
	t        *testing.T
	c        *redistest.Cluster
	from, to *redistest.Server
	locks    *lock.Client
	held     map[string]*lock.Lease
}

// kindsToHold are what can be held, each by a name.
func kindsToHold(locks *lock.Client) map[string]func(name string) locker {
	return map[string]func(name string) locker{
		"reentrant":    func(name string) locker { return locks.Reentrant(name) },
		"fenced":       func(name string) locker { return locks.Fenced(name) },
		"fair":         func(name string) locker { return locks.Fair(name) },
		"spin":         func(name string) locker { return locks.Spin(name, lock.Backoff{}) },
		"nonreentrant": func(name string) locker { return locks.NonReentrant(name) },
		"plain":        func(name string) locker { return locks.Plain(name) },
		"read":         func(name string) locker { return locks.ReadWrite(name).Read() },
		"write":        func(name string) locker { return locks.ReadWrite(name).Write() },
	}
}

// hold takes a lock of each kind under names made of prefix, with braces around it if they are to be in one slot, some of them
// more than once, and a permit.
func (h *halfMigrated) hold(prefix string, together bool) (names []string) {
	name := func(kind string) string {
		if together {
			return "{" + prefix + "}" + kind
		}
		return namesOf(h.c, h.from, prefix+kind, 1)[0]
	}
	for kind, open := range kindsToHold(h.locks) {
		n := name(kind)
		h.held[n] = lockIn(h.t, open(n))
		names = append(names, n)
	}
	n := name("owned")
	owner := h.locks.NewOwner()
	h.held[n] = lockIn(h.t, h.locks.Reentrant(n), lock.As(owner))
	h.held[n+" again"] = lockIn(h.t, h.locks.Reentrant(n), lock.As(owner))
	names = append(names, n)
	for _, half := range []string{"nested", "beneath"} {
		n = name(half)
		both, owner := h.locks.ReadWrite(n), h.locks.NewOwner()
		if half == "beneath" {
			h.held[n+" written"] = lockIn(h.t, both.Write(), lock.As(owner))
			h.held[n+" again"] = lockIn(h.t, both.Write(), lock.As(owner))
		}
		lockIn(h.t, both.Read(), lock.As(owner), lock.For(100*time.Millisecond)) // ends, and is not released
		h.held[n] = lockIn(h.t, both.Read(), lock.As(owner))
		h.held[n+" once more"] = lockIn(h.t, both.Read(), lock.As(owner))
		names = append(names, n)
	}
	n = name("permits")
	s := h.locks.PermitSemaphore(n)
	if _, err := s.TrySetPermits(h.t.Context(), 1); err != nil {
		h.t.Fatal(err)
	}
	lease, err := s.Acquire(h.t.Context())
	if err != nil {
		h.t.Fatal(err)
	}
	h.held[n] = lease
	return append(names, n)
}

// move moves all keys that the first node has of the locks, or the locks alone.
func (h *halfMigrated) move(names []string, alone bool) {
	h.t.Helper()
	host, port, err := net.SplitHostPort(h.to.Addr())
	if err != nil {
		h.t.Fatal(err)
	}
	for _, name := range names {
		keys, err := h.from.Try("KEYS", "*"+name+"*")
		if err != nil {
			h.t.Fatal(err)
		}
		for key := range keys.All() {
			k, _ := key.Text()
			if alone && k != name {
				continue
			}
			if _, err := h.from.Try("MIGRATE", host, port, k, 0, patience.Milliseconds()); err != nil {
				h.t.Fatal(err)
			}
		}
	}
}

// A slot that stays half migrated for longer than three leases costs nobody a lease, and keeps nobody from giving a lock back.
func TestSlotsHalfMigrated(t *testing.T) {
	redistest.RunClusters(t, redistest.Options{}, func(t *testing.T, c *redistest.Cluster, proto int) {
		const lease = 5 * time.Second
		acks := map[int]lock.Acks{2: lock.AcksAuto, 3: lock.AcksMajority}[proto]
		locks, _ := locksOf(t, c, lock.Config{Lease: lease, Acks: acks})
		masters := c.Masters()
		h := &halfMigrated{t, c, masters[0], masters[1], locks, make(map[string]*lock.Lease)}
		tag := namesOf(c, h.from, fmt.Sprintf("tag-%d-", proto), 1)[0]
		h.hold(tag, true)
		moves := append(h.hold(tag+"}moves{", true), h.hold(fmt.Sprintf("moves-%d-", proto), false)...)
		h.hold(fmt.Sprintf("stays-%d-", proto), false)
		splits := append(h.hold(tag+"}splits{", true), h.hold(fmt.Sprintf("splits-%d-", proto), false)...)
		for slot := range h.slots() {
			if err := c.BeginMove(slot, h.from, h.to); err != nil {
				t.Fatal(err)
			}
		}
		h.move(moves, false)
		h.move(splits, true)
		<-time.After(3*lease + lease/5)
		h.unlockAll()
		h.useAll()
		for slot := range h.slots() {
			for more := true; more; {
				var err error
				if more, err = c.MoveKeys(slot, h.from, h.to, 100); err != nil {
					t.Fatal(err)
				}
			}
			if err := c.EndMove(slot, h.to); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// unlockAll gives all locks back, each of which is held yet. Unlock waits for no longer than its lease lasts: if the server does not
// confirm until then, Unlock says so.
func (h *halfMigrated) unlockAll() {
	var wg sync.WaitGroup
	defer wg.Wait()
	for name, l := range h.held {
		if err := l.Err(); err != nil {
			h.t.Errorf("%s: %v", name, err)
			continue
		}
		wg.Go(func() { h.unlock(name, l) })
	}
}

// useAll takes locks again, looks at them and frees them by force: those that have one key on the server, which is free.
func (h *halfMigrated) useAll() {
	owner := h.locks.NewOwner()
	for name := range h.held {
		for kind, open := range kindsToHold(h.locks) {
			if !strings.Contains(name, kind) || kind == "fenced" || strings.Contains(name, "splits") {
				continue
			}
			l := open(name)
			lease := lockIn(h.t, l, lock.As(owner))
			h.unlock(name, lease)
			lockIn(h.t, l)
			if info, err := l.(interface {
				Info(context.Context) (lock.Info, error)
			}).Info(h.t.Context()); err != nil || !info.Locked {
				h.t.Errorf("Info of %s = %+v, %v", name, info, err)
			}
			if forced, err := l.(interface {
				ForceUnlock(context.Context) (bool, error)
			}).ForceUnlock(h.t.Context()); err != nil || !forced {
				h.t.Errorf("ForceUnlock of %s = %v, %v", name, forced, err)
			}
			break
		}
	}
}

func (h *halfMigrated) unlock(name string, l *lock.Lease) {
	if err := l.Unlock(h.t.Context()); err != nil {
		h.t.Errorf("Unlock of %s: %v", name, err)
	}
}

func (h *halfMigrated) slots() map[int]bool {
	slots := make(map[int]bool)
	for name := range h.held {
		name, _, _ = strings.Cut(name, " ")
		slots[slotOf(name)] = true
	}
	return slots
}
