package lock_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/lock"
)

// Two accounts are locked together, whichever of them another transfer names first.
func ExampleMulti() {
	ctx := context.Background()
	pool, locks := connect(ctx)
	defer pool.Close()
	defer locks.Close()

	both, err := lock.NewMulti(locks.Reentrant("account:7"), locks.Fenced("account:3"))
	if err != nil {
		log.Fatal(err)
	}
	lease, err := both.Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	work, stop := lease.Context(ctx) // ends if one of them is lost
	defer stop()
	parts := lease.Members() // in the order in which they were taken
	fmt.Println("held:", work.Err() == nil, len(parts), "tokens:", parts[0].Token() > 0, parts[1].Token() > 0)
	fmt.Println("unlock:", lease.Unlock(ctx))
	// Output:
	// held: true 2 tokens: true false
	// unlock: <nil>
}

// With one client for each of three, five or seven independent servers a lock survives the loss of some of them.
func ExampleRedlock() {
	ctx := context.Background()
	servers, closeAll := connectEach(ctx)
	defer closeAll()

	job, err := lock.NewRedlock(lock.RedlockConfig{},
		servers[0].Reentrant("job"), servers[1].Reentrant("job"), servers[2].Reentrant("job"))
	if err != nil {
		log.Fatal(err)
	}
	lease, err := job.Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	work, stop := lease.Context(ctx) // ends when there is no majority any more
	defer stop()
	fmt.Println("held:", work.Err() == nil, "by a majority:", len(lease.Members()) >= 2)
	fmt.Println("unlock:", lease.Unlock(ctx))
	// Output:
	// held: true by a majority: true
	// unlock: <nil>
}

// connectEach is what the example of Redlock begins with: clients of three servers, which are in memory here, and say that
// they have been up for an hour.
func connectEach(ctx context.Context) (clients []*lock.Client, closeAll func()) {
	var closers []io.Closer
	var servers []*fakeredis.Server
	for i := range 3 {
		srv, text := fakeredis.New(), fmt.Sprintf("run_id:%d\r\nuptime_in_seconds:3600", i)
		teach(srv)
		srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
			if cmd.Name == "INFO" {
				return fakeredis.Reply(fmt.Sprintf("$%d\r\n%s\r\n", len(text), text))
			}
			return fakeredis.Run()
		})
		pool, err := conn.Open(ctx, conn.Config{Dial: srv.Dial})
		if err != nil {
			log.Fatal(err)
		}
		c, err := lock.New(pool, lock.Config{})
		if err != nil {
			log.Fatal(err)
		}
		clients, closers, servers = append(clients, c), append(closers, c, pool), append(servers, srv)
	}
	return clients, func() {
		for _, c := range closers {
			if err := c.Close(); err != nil {
				log.Fatal(err)
			}
		}
		for _, srv := range servers {
			srv.Close()
		}
	}
}

// Two nodes on one server are no two votes.
func ExampleNewRedlock() {
	ctx := context.Background()
	pool, locks := connect(ctx)
	defer pool.Close()
	defer locks.Close()

	servers := []*lock.Client{locks, locks, locks}
	_, err := lock.NewRedlock(lock.RedlockConfig{},
		servers[0].Reentrant("job"), servers[1].Reentrant("job"), servers[2].Reentrant("job"))
	fmt.Println(err)
	// Output:
	// lock: invalid: a Redlock with two nodes on one server
}

// A plain lock is one that redsync and others take too.
func ExampleClient_Plain() {
	ctx := context.Background()
	pool, locks := connect(ctx)
	defer pool.Close()
	defer locks.Close()

	lease, err := locks.Plain("job").TryLock(ctx, lock.For(10*time.Second))
	if err != nil {
		log.Fatal(err)
	}
	defer lease.Unlock(ctx)
	v, err := pool.Do(ctx, "GET", "job")
	if err != nil {
		log.Fatal(err)
	}
	value, _ := v.Text()
	fmt.Println(value == lease.Owner())
	// Output: true
}
