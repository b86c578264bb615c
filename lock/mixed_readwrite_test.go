package lock_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/lockwire/lockwire/lock"
)

// mixed is a read-write lock that our owners and Redisson's threads share, and who should have what.
type mixed struct {
	t       *testing.T
	w       *world
	ours    []lock.Owner
	clients []*lock.Client
	theirs  []*redissonThread
	leases  map[string][]*lock.Lease // of ours, by owner and half
	holds   map[string]int           // by owner and half
}

// Redisson's rules and ours, on the same lock in any order, agree about who has it: what the one grants the other respects,
// and what the one leaves the other can release.
func TestSharedWithRedisson(t *testing.T) {
	for seed := range uint64(20) {
		inVirtualTime(t, func(t *testing.T, w *world) {
			m := &mixed{t: t, w: w, leases: map[string][]*lock.Lease{}, holds: map[string]int{}}
			for i := range 2 {
				c := w.client(lock.Config{})
				m.clients = append(m.clients, c)
				m.ours = append(m.ours, c.NewOwner())
				m.theirs = append(m.theirs, w.redisson(fmt.Sprint("java:", i)))
			}
			random := rand.New(rand.NewPCG(seed, 1))
			for range 400 {
				m.step(random)
				m.check()
				if t.Failed() {
					t.Fatalf("seed %d", seed)
				}
			}
			for range 3 { // what is held is released
				for who := range 4 {
					for _, part := range []string{"write", "read"} {
						for m.holds[m.name(who)+part] > 0 {
							m.release(who, part)
						}
					}
				}
			}
			w.free()
		})
	}
}

func (m *mixed) name(who int) string {
	if who < 2 {
		return m.ours[who].String()
	}
	return m.theirs[who-2].owner
}

func (m *mixed) step(random *rand.Rand) {
	who, part := random.IntN(4), []string{"read", "write"}[random.IntN(2)]
	if random.IntN(2) == 0 {
		m.acquire(who, part)
	} else if m.holds[m.name(who)+part] > 0 {
		m.release(who, part)
	}
	if random.IntN(3) == 0 {
		m.w.sleep(time.Duration(random.IntN(1000)) * time.Millisecond)
	}
}

// allowed reports whether who may have the lock in that way now.
func (m *mixed) allowed(who int, part string) bool {
	for key, n := range m.holds {
		other := key != m.name(who)+"read" && key != m.name(who)+"write"
		switch {
		case n == 0:
		case part == "write" && other,
			part == "write" && key == m.name(who)+"read" && m.holds[m.name(who)+"write"] == 0,
			part == "read" && other && key[len(key)-5:] == "write":
			return false
		}
	}
	return true
}

// leaseOfAll is longer than a walk takes.
const leaseOfAll = time.Hour

func (m *mixed) acquire(who int, part string) {
	m.t.Helper()
	key, granted := m.name(who)+part, false
	if who < 2 {
		lease, err := halves(m.clients[who])[part].TryLock(m.t.Context(), lock.As(m.ours[who]), lock.For(leaseOfAll))
		if granted = err == nil; granted {
			m.leases[key] = append(m.leases[key], lease)
		}
	} else if r := m.theirs[who-2]; part == "read" {
		granted = r.readLock(leaseOfAll) == nil
	} else {
		granted = r.writeLock(leaseOfAll) == nil
	}
	if granted != m.allowed(who, part) {
		m.t.Errorf("%s asks to %s, and is granted %v, with holds %v", m.name(who), part, granted, m.holds)
	}
	if granted {
		m.holds[key]++
	}
}

func (m *mixed) release(who int, part string) {
	m.t.Helper()
	key := m.name(who) + part
	m.holds[key]--
	switch {
	case who < 2:
		last := len(m.leases[key]) - 1
		lease := m.leases[key][last]
		m.leases[key] = m.leases[key][:last]
		if err := lease.Unlock(m.t.Context()); err != nil {
			m.t.Errorf("%s releases %s: %v", m.name(who), part, err)
		}
	case part == "read" && m.theirs[who-2].readUnlock() == nil, part == "write" && m.theirs[who-2].writeUnlock(leaseOfAll) == nil:
		m.t.Errorf("%s releases %s, and Redisson says that it had nothing", m.name(who), part)
	}
}

// check compares the server's hash, and the keys of the readers' leases, with who should have what.
func (m *mixed) check() {
	m.t.Helper()
	held := false
	for who := range 4 {
		owner := m.name(who)
		reads, writes := m.holds[owner+"read"], m.holds[owner+"write"]
		held = held || reads+writes > 0
		for field, want := range map[string]int{owner: reads, owner + ":write": writes} {
			got, _ := m.w.srv.Do("HGET", "job", field).(string)
			if number(got) != int64(want) {
				m.t.Errorf("%s has %q holds on the server, want %d", field, got, want)
			}
		}
		for n := range 5 {
			if left := m.w.timeoutLeft("job", owner, int64(n+1)); (left > 0) != (n < reads) {
				m.t.Errorf("%s with %d read holds: the lease of the %d. is %v", owner, reads, n+1, left)
			}
		}
	}
	if left := m.w.ttl("job"); held != (left > time.Minute) {
		m.t.Errorf("the lock lasts %v with holds %v", left, m.holds)
	}
}
