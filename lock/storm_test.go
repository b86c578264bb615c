package lock_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/lock"
)

// storm is a server in bad weather with workers who take locks on it, as owners and without.
type storm struct {
	*world
	stragglers sync.WaitGroup // requests that arrive after their connection has died
	over       chan struct{}  // closed when the weather is fine again
	held       atomic.Int64   // leases that were looked at and not lost

	mu  sync.Mutex // guards the following
	rng *rand.Rand
}

// Whatever goes wrong, a lease that has not been lost is one that the server has, and in the end nothing is left. What was
// lost with its connection may arrive seconds later all the same.
func TestLeasesAreWhatTheServerHas(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, w *world) {
				s := &storm{world: w, over: make(chan struct{}), rng: rand.New(rand.NewPCG(seed, 7))}
				var workers sync.WaitGroup
				for range 2 {
					c := w.clientOn(conn.Config{Conns: 1 + s.n(2)}, lock.Config{Lease: 4 * time.Second})
					for range 4 {
						workers.Go(func() { s.work(c) })
					}
				}
				w.srv.Intercept(s.fault)
				for range 60 {
					s.sleep(s.upTo(time.Second))
					s.gust()
				}
				w.srv.Intercept(nil)
				close(s.over)
				workers.Wait()
				s.stragglers.Wait()
				s.sleep(30 * time.Second)
				w.free()
				if n := s.held.Load(); n < 100 {
					t.Errorf("%d looks at leases that were held, want many", n)
				}
			})
		})
	}
}

// n is a random number below n.
func (s *storm) n(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rng.IntN(n)
}

// upTo is a random number of milliseconds, less than d.
func (s *storm) upTo(d time.Duration) time.Duration {
	return time.Duration(s.n(int(d.Milliseconds()))) * time.Millisecond
}

// work takes and gives back locks until the storm is over.
func (s *storm) work(c *lock.Client) {
	owner := c.NewOwner()
	for {
		select {
		case <-s.over:
			return
		case <-time.After(s.upTo(100 * time.Millisecond)):
		}
		s.turn(c, owner)
	}
}

// turn takes a lock, as an owner as often as not and then several times over, and gives back what it got. It looks at its
// leases all the time.
func (s *storm) turn(c *lock.Client, owner lock.Owner) {
	name := fmt.Sprint("lock", s.n(3))
	var opts []lock.Option
	holds := 1
	if s.n(2) == 0 {
		opts, holds = append(opts, lock.As(owner)), 1+s.n(3)
	}
	if s.n(3) == 0 {
		opts = append(opts, lock.For(time.Second+s.upTo(3*time.Second)))
	}
	var leases []*lock.Lease
	for range holds {
		ctx, cancel := context.WithTimeout(context.Background(), s.upTo(5*time.Second))
		if l, err := c.Reentrant(name).Lock(ctx, opts...); err == nil {
			leases = append(leases, l)
		}
		cancel()
		s.look(name, leases)
	}
	if s.n(10) == 0 {
		s.sleep(s.upTo(7 * time.Second))
	}
	for len(leases) > 0 {
		s.sleep(s.upTo(300 * time.Millisecond))
		s.look(name, leases)
		_ = leases[0].Unlock(context.Background()) // whatever it says, the others must stand
		leases = leases[1:]
		s.look(name, leases)
	}
}

// look fails the test if a lease says that it is held and the server does not have it.
func (s *storm) look(name string, leases []*lock.Lease) {
	for _, l := range leases {
		if l.Err() != nil {
			continue
		}
		s.held.Add(1)
		if s.srv.Do("HEXISTS", name, l.Owner()) != int64(1) && l.Err() == nil {
			s.t.Errorf("%v holds %s, and the server has %v", l.Owner(), name, s.srv.Do("HGETALL", name))
		}
	}
}

// fault is what becomes of one command.
func (s *storm) fault(cmd fakeredis.Cmd) fakeredis.Action {
	if !slices.Contains([]string{"EVALSHA", "EVAL", "SUBSCRIBE", "DEL"}, cmd.Name) {
		return fakeredis.Run()
	}
	switch s.n(40) {
	case 0:
		return fakeredis.RunThenClose()
	case 1:
		if d := s.upTo(4500 * time.Millisecond); cmd.Name != "SUBSCRIBE" {
			s.stragglers.Go(func() {
				s.sleep(d)
				s.srv.Do(cmd.Args...)
			})
		}
		return fakeredis.Close()
	case 2:
		return fakeredis.Delay(s.upTo(3*time.Second), fakeredis.Run())
	case 3:
		return fakeredis.Run().Late(s.upTo(3 * time.Second))
	case 4:
		return fakeredis.Run().ThenReset()
	}
	return fakeredis.Run()
}

// gust is something that happens to the server as a whole.
func (s *storm) gust() {
	switch s.n(8) {
	case 0:
		s.srv.KillConns(nil)
	case 1:
		s.srv.KillConns(func(c fakeredis.Conn) bool { return c.Subscribed > 0 })
	case 2:
		s.srv.Refuse(true)
		s.sleep(s.upTo(2 * time.Second))
		s.srv.Refuse(false)
	case 3:
		s.srv.Stall(true)
		s.sleep(s.upTo(3 * time.Second))
		s.srv.Stall(false)
	case 4:
		s.srv.Mute(true)
		s.sleep(s.upTo(2 * time.Second))
		s.srv.KillConns(nil) // no answer may be taken for that to what was swallowed
		s.srv.Mute(false)
	case 5:
		s.srv.Latency(s.upTo(30 * time.Millisecond))
	case 6:
		s.srv.Do("SCRIPT", "FLUSH")
	}
}
