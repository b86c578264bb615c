package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"sync/atomic"
	"time"

	"github.com/lockwire/lockwire"
	"github.com/lockwire/lockwire/lock"
	"github.com/lockwire/lockwire/resp"
)

// workerVariable makes this program a worker.
const workerVariable = "LOCKWIRE_DEMO_WORKER"

func isWorker() bool { return os.Getenv(workerVariable) != "" }

const (
	// workerGrace is the time for a worker to end after the end of its input, in whatever wait.
	workerGrace = 2 * time.Second
	// counterLife is the life of the counter after its last increment, if nobody is left to remove the key.
	counterLife = 2 * time.Minute
)

// workerMain contends for the lock until the end of in, at the latest the end of the parent process.
func workerMain(in io.Reader, out io.Writer) int {
	signal.Ignore(os.Interrupt) // Ctrl-C goes to all processes; the demo ends the workers
	w := &worker{reports: json.NewEncoder(out), begin: make(chan struct{})}
	if err := w.run(json.NewDecoder(in)); err != nil {
		w.reports.Encode(report{Kind: failed, At: now(), Text: err.Error()})
		return 1
	}
	return 0
}

type worker struct {
	assignment
	reports *json.Encoder
	order   atomic.Value  // of order
	begin   chan struct{} // closed with the first order

	locks *lockwire.Client
	lock  *lock.Reentrant
	owner lock.Owner
}

func (w *worker) run(orders *json.Decoder) error {
	if err := orders.Decode(&w.assignment); err != nil {
		return fmt.Errorf("reading the assignment: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go w.listen(orders, cancel)

	var err error
	if w.locks, err = lockwire.Open(ctx, w.URL, lockwire.Config{Lock: lock.Config{Lease: w.Lease}}); err != nil {
		return err
	}
	defer w.locks.Close()
	w.lock, w.owner = w.locks.Reentrant(w.Lock), w.locks.NewOwner()

	err = w.reports.Encode(report{Kind: ready, At: now(), Owner: w.locks.ID()})
	select {
	case <-w.begin:
	case <-ctx.Done():
	}
	for err == nil && ctx.Err() == nil {
		err = w.turn(ctx)
	}
	return err
}

// listen takes orders until the end of the input, and lives as long as the process.
func (w *worker) listen(orders *json.Decoder, cancel context.CancelFunc) {
	for {
		var o order
		if orders.Decode(&o) != nil {
			cancel()
			time.AfterFunc(workerGrace, func() { os.Exit(1) })
			return
		}
		if w.order.Swap(o) == nil {
			close(w.begin)
		}
	}
}

// turn takes the lock, increments the counter, releases the lock and rests. The end of ctx ends the waiting and the
// pauses, never the work in between.
func (w *worker) turn(ctx context.Context) error {
	asked := now()
	lease, err := w.lock.Lock(ctx, lock.As(w.owner))
	switch {
	case err != nil && ctx.Err() != nil:
		return nil
	case err != nil:
		return err
	}
	from := now()
	o := w.order.Load().(order)
	holds := int64(1)
	if o == takeTurns {
		holds += rand.Int64N(3)
	}
	work, cancel := lease.Context(context.WithoutCancel(ctx))
	defer cancel()
	end := report{Kind: released, Owner: lease.Owner()}
	err = w.deeper(work, holds-1, func(work context.Context) error {
		value, err := w.read(work)
		if err != nil {
			return err
		}
		err = w.reports.Encode(report{
			Kind: acquired, At: from, Asked: asked, Owner: lease.Owner(), Holds: holds, Value: value, Stays: o == stay,
		})
		if err != nil {
			return err
		}
		switch o {
		case takeTurns:
			pause(ctx, 80*time.Millisecond, 240*time.Millisecond)
		case stay:
			return untilDone(ctx, work)
		}
		end.Value, end.Wrote = value+1, true
		return w.write(work, value+1)
	})
	end.At = now()
	if err = errors.Join(err, lease.Unlock(ctx)); err != nil {
		return err
	}
	if err := w.reports.Encode(end); err != nil {
		return err
	}
	if o == takeTurns {
		pause(ctx, 100*time.Millisecond, 300*time.Millisecond)
	} else {
		pause(ctx, 0, 4*time.Millisecond)
	}
	return nil
}

// deeper runs fn under n further holds of the lock, as in functions that lock and call functions that lock.
func (w *worker) deeper(ctx context.Context, n int64, fn func(context.Context) error) error {
	if n == 0 {
		return fn(ctx)
	}
	return w.lock.Do(ctx, func(ctx context.Context) error {
		return w.deeper(ctx, n-1, fn)
	}, lock.As(w.owner))
}

// read and write are two commands, so that two simultaneous workers lose an increment.
func (w *worker) read(ctx context.Context) (int64, error) {
	return resp.As[int64](w.locks.Server().Send(ctx, resp.Cmd("GET", w.Counter)))
}

func (w *worker) write(ctx context.Context, value int64) error {
	_, err := w.locks.Server().Send(ctx, resp.Cmd("SET", w.Counter, value, "PX", counterLife.Milliseconds()))
	return err
}

// untilDone waits for the end of ctx, and is an error if work, the lease's, ends first.
func untilDone(ctx, work context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-work.Done():
		return context.Cause(work)
	}
}

// pause waits for a random time between shortest and longest, or for the end of ctx.
func pause(ctx context.Context, shortest, longest time.Duration) {
	timer := time.NewTimer(shortest + rand.N(longest-shortest))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
