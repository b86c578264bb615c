package lock_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/lock"
)

// Who waits gets the lock in the order in which the server saw them come, whatever process they are in.
func ExampleClient_Fair() {
	ctx := context.Background()
	pool, locks := connect(ctx)
	defer pool.Close()
	defer locks.Close()

	lease, err := locks.Fair("printer").Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	info, err := locks.Fair("printer").Info(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("waiting:", len(info.Queue))
	fmt.Println("unlock:", lease.Unlock(ctx))
	// Output:
	// waiting: 0
	// unlock: <nil>
}

// Each holder has a larger token than those before it. Package fence shows what to do with it.
func ExampleClient_Fenced() {
	ctx := context.Background()
	pool, locks := connect(ctx)
	defer pool.Close()
	defer locks.Close()

	last := int64(0)
	for range 3 {
		lease, err := locks.Fenced("ledger").Lock(ctx)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("larger:", lease.Token() > last)
		last = lease.Token()
		if err := lease.Unlock(ctx); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// larger: true
	// larger: true
	// larger: true
}

// An order and its customer are locked together, at the cost of one lock. Another order of the same customer has to wait.
func ExampleClient_FasterMulti() {
	ctx := context.Background()
	pool, locks := connect(ctx)
	defer pool.Close()
	defer locks.Close()

	lease, err := locks.FasterMulti("accounts", "order:17", "customer:3").Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	_, err = locks.FasterMulti("accounts", "order:18", "customer:3").TryLock(ctx)
	fmt.Println("the same customer:", errors.Is(err, lock.ErrNotAcquired))
	other, err := locks.FasterMulti("accounts", "order:19", "customer:4").TryLock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("another customer:", other.Unlock(ctx))
	fmt.Println("unlock:", lease.Unlock(ctx))
	// Output:
	// the same customer: true
	// another customer: <nil>
	// unlock: <nil>
}

// An Owner with an order takes the order again, together with its customer.
func ExampleClient_FasterMulti_owner() {
	ctx := context.Background()
	pool, locks := connect(ctx)
	defer pool.Close()
	defer locks.Close()

	owner := locks.NewOwner()
	order, err := locks.FasterMulti("accounts", "order:17").Lock(ctx, lock.As(owner))
	if err != nil {
		log.Fatal(err)
	}
	both, err := locks.FasterMulti("accounts", "order:17", "customer:3").Lock(ctx, lock.As(owner))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("unlock both:", both.Unlock(ctx))
	fmt.Println("the order is held:", order.Check(ctx))
	fmt.Println("unlock the order:", order.Unlock(ctx))
	// Output:
	// unlock both: <nil>
	// the order is held: <nil>
	// unlock the order: <nil>
}

// A waiter of a Spin lock looks every 5 ms, without pub/sub.
func ExampleClient_Spin() {
	ctx := context.Background()
	pool, locks := connect(ctx)
	defer pool.Close()
	defer locks.Close()

	tick := locks.Spin("tick", lock.ConstantBackoff(5*time.Millisecond))
	err := tick.Do(ctx, func(ctx context.Context) error { return ctx.Err() })
	fmt.Println(err)
	// Output: <nil>
}

// An owner is told at once that it has the lock, where a Reentrant would count another hold.
func ExampleClient_NonReentrant() {
	ctx := context.Background()
	pool, locks := connect(ctx)
	defer pool.Close()
	defer locks.Close()

	me := lock.As(locks.NewOwner())
	lease, err := locks.NonReentrant("import").Lock(ctx, me)
	if err != nil {
		log.Fatal(err)
	}
	defer lease.Unlock(ctx)
	_, err = locks.NonReentrant("import").Lock(ctx, me)
	fmt.Println(errors.Is(err, lock.ErrReentry))
	// Output: true
}

// The same for a lock whose waiters are served in order.
func ExampleClient_NonReentrantFair() {
	ctx := context.Background()
	pool, locks := connect(ctx)
	defer pool.Close()
	defer locks.Close()

	err := locks.NonReentrantFair("import").Do(ctx, func(ctx context.Context) error { return ctx.Err() })
	fmt.Println(err)
	// Output: <nil>
}

// What an operator asks: which locks are taken, and by whom.
func ExampleClient_List() {
	ctx := context.Background()
	pool, locks := connect(ctx)
	defer pool.Close()
	defer locks.Close()

	lease, err := locks.Reentrant("list:orders").Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer lease.Unlock(ctx)
	for l, err := range locks.List(ctx, "list:*") {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(l.Name, l.Shape, l.Info.Holders[0].Owner == lease.Owner())
	}
	// Output: list:orders lock true
}

func ExampleReadWrite() {
	ctx := context.Background()
	pool, locks := connect(ctx)
	defer pool.Close()
	defer locks.Close()

	prices := locks.ReadWrite("prices")
	first, err := prices.Read().Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	second, err := prices.Read().Lock(ctx) // beside the first
	if err != nil {
		log.Fatal(err)
	}
	_, err = prices.Write().TryLock(ctx)
	fmt.Println("write:", errors.Is(err, lock.ErrNotAcquired))
	fmt.Println(first.Unlock(ctx), second.Unlock(ctx))
	err = prices.Write().Do(ctx, func(context.Context) error {
		info, err := prices.Write().Info(ctx)
		fmt.Println("mode:", info.Mode)
		return err
	})
	fmt.Println(err)
	// Output:
	// write: true
	// <nil> <nil>
	// mode: write
	// <nil>
}

func ExampleReadLock() {
	ctx := context.Background()
	pool, locks := connect(ctx)
	defer pool.Close()
	defer locks.Close()

	catalogue := locks.ReadWrite("catalogue").Read()
	err := catalogue.Do(ctx, func(ctx context.Context) error {
		info, err := catalogue.Info(ctx)
		fmt.Println(info.Mode, len(info.Holders))
		return err
	})
	fmt.Println(err)
	// Output:
	// read 1
	// <nil>
}

func ExampleWriteLock() {
	ctx := context.Background()
	pool, locks := connect(ctx)
	defer pool.Close()
	defer locks.Close()

	// An owner that reads would wait for itself.
	me, ledger := locks.NewOwner(), locks.ReadWrite("ledger")
	err := ledger.Read().Do(ctx, func(ctx context.Context) error {
		_, err := ledger.Write().Lock(ctx, lock.As(me))
		return err
	}, lock.As(me))
	fmt.Println(errors.Is(err, lock.ErrUpgrade))
	// Output: true
}

func ExampleLease_Downgrade() {
	ctx := context.Background()
	pool, locks := connect(ctx)
	defer pool.Close()
	defer locks.Close()

	index := locks.ReadWrite("index")
	write, err := index.Write().Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	// Rebuild, and then let others read while this one still does: no writer comes in between.
	read, err := write.Downgrade(ctx)
	if err != nil {
		log.Fatal(err)
	}
	other, err := index.Read().TryLock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(other.Unlock(ctx), read.Unlock(ctx))
	// Output: <nil> <nil>
}

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
