package lock_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockwire/lockwire/internal/redistest"
	"github.com/lockwire/lockwire/lock"
)

// commandCalls is how often a server has run each command, by its name.
func commandCalls(t *testing.T, s *redistest.Server) func(command string) int64 {
	t.Helper()
	text, _ := s.Do("INFO", "commandstats").Text()
	return func(command string) int64 {
		_, rest, _ := strings.Cut(text, "cmdstat_"+command+":calls=")
		count, _, _ := strings.Cut(rest, ",")
		return number(count)
	}
}

// pings asks s without a pause until it is called, which returns the longest time that an answer took.
func pings(t *testing.T, s *redistest.Server) (stop func() time.Duration) {
	t.Helper()
	pool := redistest.Open(t, s.Config())
	ctx, cancel := context.WithCancel(t.Context())
	var worst time.Duration
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			start := time.Now()
			if _, err := pool.Do(ctx, "PING"); err == nil {
				worst = max(worst, time.Since(start))
			}
		}
	})
	return func() time.Duration { cancel(); wg.Wait(); return worst }
}

// Many join the queue of a fair lock, over several processes, and are served in turn: what that takes of the server for each
// does not grow with their number.
func TestServerFairCrowd(t *testing.T) {
	redistest.Run(t, func(t *testing.T, s *redistest.Server) {
		const waiters, processes = 1000, 4
		var clients []*lock.Client
		for range processes {
			c, err := lock.New(redistest.Open(t, s.Config()), lock.Config{})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			clients = append(clients, c)
		}
		holder := mustLockFair(t, clients[0])
		worst := pings(t, s)
		start := time.Now()
		var wg sync.WaitGroup
		for i := range waiters {
			wg.Go(func() {
				if lease, err := clients[i%processes].Fair("job").Lock(t.Context()); err != nil {
					t.Error(err)
				} else if err := lease.Unlock(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		line := func() int64 { n, _ := s.Do("LLEN", jobQueue).Int(); return n }
		channels := func() int { return s.Do("PUBSUB", "CHANNELS", jobChannel+":*").Len() }
		if !eventually(patience, func() bool { return line() == waiters && channels() == waiters }) {
			t.Fatalf("%d wait and %d listen, want %d", line(), channels(), waiters)
		}
		joined := time.Since(start)
		count := commandCalls(t, s)
		if n := count("lrange") + count("zrange"); n > 2*waiters {
			t.Errorf("to join %d waiters have the queue or the times read %d times", waiters, n)
		}
		s.Do("CONFIG", "RESETSTAT")
		start = time.Now()
		mustUnlock(t, holder)
		wg.Wait()
		count = commandCalls(t, s)
		if n := count("zadd"); n > 40*waiters {
			t.Errorf("to serve %d waiters sets %d times", waiters, n)
		}
		t.Logf("%d joined in %v and were served in %v, %v; a PING took %v at most", waiters, joined, time.Since(start),
			fmt.Sprint(count("zadd"), " ZADD"), worst())
	})
}

// Many readers of a lock leave, in the order in which they came and in the opposite one: the server asks after the leases of
// others now and then.
func TestServerReaderCrowd(t *testing.T) {
	redistest.Run(t, func(t *testing.T, s *redistest.Server) {
		const readers = 1000
		c, err := lock.New(redistest.Open(t, s.Config()), lock.Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		for _, backwards := range []bool{false, true} {
			var leases []*lock.Lease
			for range readers {
				leases = append(leases, mustRead(t, c))
			}
			if backwards {
				slices.Reverse(leases)
			}
			s.Do("CONFIG", "RESETSTAT")
			for _, l := range leases {
				mustUnlock(t, l)
			}
			if n := commandCalls(t, s)("pttl"); n > 60*readers {
				t.Errorf("for %d readers to leave the server has asked %d times how long a lease lasts", readers, n)
			}
			if n, _ := s.Do("EXISTS", "job").Int(); n != 0 {
				t.Error("nobody reads, and the lock is taken")
			}
		}
	})
}
