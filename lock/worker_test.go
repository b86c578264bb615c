package lock_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/locktorture"
	"github.com/lockwire/lockwire/lock"
)

// workerEnv is the environment variable that makes the test program a worker: a process that locks and logs what it
// sees. Its value is the orders in JSON.
const workerEnv = "LOCKWIRE_LOCK_WORKER"

// orders say what a worker process is to do.
type orders struct {
	Process    int
	Kind       string // of the locks: one of the trades; "" is reentrant
	Network    string
	Addr       string
	Protocol   int
	Lease      time.Duration // of the client
	Seed       uint64
	Names      []string
	Goroutines int // that lock at random until the input ends; 0 to do what the input says
	// Careless workers rely on a lock until they release it, whatever they are told and however long its lease was. What else
	// they do wrong is in the trades.
	Careless bool
}

func (o orders) env() string {
	text, err := json.Marshal(o)
	if err != nil {
		panic(err)
	}
	return workerEnv + "=" + string(text)
}

// worker is the inside of a worker process.
type worker struct {
	orders
	trade *trade
	round atomic.Int64 // of a trade that has rounds
	log   *locktorture.Log
	locks *lock.Client
	wg    sync.WaitGroup
}

// work is the main function of a worker process.
func work(text string) int {
	w := &worker{}
	if err := json.Unmarshal([]byte(text), &w.orders); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	if w.Kind == "" {
		w.Kind = "reentrant"
	}
	w.trade = tradeOf(w.Kind)
	w.log = locktorture.NewLog(os.Stdout, w.Process)
	before := countResources()
	if err := w.run(); err != nil {
		w.fail("%v", err)
		return 1
	}
	if left, ok := resourcesBack(before); !ok {
		w.fail("at the end %+v, at the start %+v", left, before)
		return 1
	}
	return 0
}

func (w *worker) fail(format string, args ...any) {
	w.log.Add(locktorture.Event{Kind: locktorture.Failed, Text: fmt.Sprintf(format, args...)})
}

func (w *worker) run() error {
	pool, err := w.open()
	if err != nil {
		return err
	}
	cfg := w.trade.config
	cfg.Lease = w.Lease
	if w.locks, err = lock.New(pool, cfg); err != nil {
		return err
	}
	w.log.Add(locktorture.Event{Kind: locktorture.Note, Text: "ready"})
	if w.Goroutines > 0 {
		w.torture()
	} else {
		w.obey()
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	return errors.Join(w.locks.CloseContext(ctx), pool.Close()) // nothing may be lost by an end in order
}

// open connects, however often it takes: there may be faults from the start.
func (w *worker) open() (*conn.Pool, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	limit := min(w.Lease, 5*time.Second)
	cfg := conn.Config{
		Network: w.Network, Addr: w.Addr, Protocol: w.Protocol, ClientName: fmt.Sprintf("worker-%d", w.Process),
		DialTimeout: limit, Timeout: limit, PingInterval: limit,
	}
	for {
		pool, err := conn.Open(ctx, cfg)
		if err == nil || ctx.Err() != nil {
			return pool, err
		}
	}
}

// torture locks at random in many goroutines until the input ends, and then once more in each.
func (w *worker) torture() {
	ctx, cancel := context.WithCancel(context.Background())
	for g := range w.Goroutines {
		w.wg.Go(func() {
			rng := rand.New(rand.NewPCG(w.Seed, uint64(w.Process)<<32|uint64(g)))
			for ctx.Err() == nil {
				w.trade.turn(w, ctx, rng)
			}
			if w.trade.once != nil {
				w.trade.once(w, rng)
			}
		})
	}
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
	}
	cancel()
	w.wg.Wait()
}

// obey does what the input says until it ends: "lock NAME" takes a lock and keeps it, "unlock NAME" gives it back.
func (w *worker) obey() {
	held := map[string]context.CancelFunc{}
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		verb, name, _ := strings.Cut(lines.Text(), " ")
		if verb == "unlock" {
			held[name]()
			continue
		}
		var end context.Context
		end, held[name] = context.WithCancel(context.Background())
		w.wg.Go(func() {
			ctx, cancel := context.WithTimeout(end, patience)
			defer cancel()
			if g, err := w.take(ctx, ask{name: name}); err == nil {
				w.hold(end, g)
				w.give(g)
			}
		})
	}
	for _, end := range held {
		end()
	}
	w.wg.Wait()
}

// pause waits for d or the end of ctx.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// resources is what a process must have given back at the end.
type resources struct{ Goroutines, Files int }

func countResources() resources {
	// The runtime keeps two files for waiting from the first use of a pipe or socket on: count them always.
	if r, w, err := os.Pipe(); err == nil {
		r.Close()
		w.Close()
	}
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return resources{runtime.NumGoroutine(), 0} // not Linux
	}
	return resources{runtime.NumGoroutine(), len(files)}
}

// resourcesBack waits until no more is in use than before, and reports false with what is if that does not come about.
func resourcesBack(before resources) (resources, bool) {
	var after resources
	ok := eventually(patience, func() bool {
		after = countResources()
		return after.Goroutines <= before.Goroutines && after.Files <= before.Files
	})
	return after, ok
}

// eventually asks until the answer is yes, and reports false if it has not been for so long.
func eventually(limit time.Duration, holds func() bool) bool {
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-deadline.C:
			return holds()
		}
	}
	return true
}

// upTo is a random duration below d.
func upTo(rng *rand.Rand, d time.Duration) time.Duration { return time.Duration(rng.Int64N(int64(d))) }
