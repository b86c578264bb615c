package leader

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/netfail"
	"github.com/lockwire/lockwire/lock"
	"github.com/lockwire/lockwire/resp"
)

// ErrExpiring is the cause of the function's context if the lease could not be renewed: the lease ends soon.
var ErrExpiring = errors.New("leader: the lease is about to end")

const (
	// minPause and maxPause bound the pause before the next campaign.
	minPause, maxPause = 250 * time.Millisecond, 10 * time.Second
	// withdrawWait is the maximum wait for the deletion of the published address.
	withdrawWait = time.Second
)

// Run waits until this process leads, and then calls fn. Run calls fn again whenever this process leads again after a
// loss, in the goroutine of the caller, and never twice at once.
//
// The context passed to fn derives from ctx and ends with a cause:
//
//   - when ctx ends: the cause of ctx
//   - Config.StopBefore before the end of a lease without renewal: [ErrExpiring]
//   - when the lock is lost in another way: a [*lock.LostError]
//
// Run releases the lock after fn has returned, and returns in these cases:
//
//   - ctx has ended: the cause of ctx, joined with an error of fn for another reason
//   - fn has returned before its context ended: the error of fn, joined with errors of a loss and of the release
//   - the lock cannot be acquired, for a lasting reason, such as an invalid name, a closed Client, a missing
//     permission or a certificate that does not verify: the error of the acquire
//
// After a loss the error of fn is only logged. If fn panics, the lock is released and the panic continues.
func Run(ctx context.Context, locks *lock.Client, name string, cfg Config, fn func(context.Context) error) error {
	e := &election{locks: locks, name: name, cfg: cfg, fn: fn}
	failures := 0
	for {
		over, err := e.term(ctx)
		switch {
		case over:
			return err
		case err != nil:
			e.warn("campaign failed", "error", err)
			failures++
		default:
			failures = 0
		}
		if netfail.Sleep(ctx, netfail.Backoff(failures, minPause, maxPause)) != nil {
			return context.Cause(ctx)
		}
	}
}

type election struct {
	locks *lock.Client
	name  string
	cfg   Config
	fn    func(context.Context) error
}

func (e *election) warn(text string, args ...any) {
	if e.cfg.Logger != nil {
		e.cfg.Logger.Warn("leader: "+text, append([]any{"name", e.name}, args...)...)
	}
}

// term waits for the leadership and leads until fn has returned. over reports whether err is the result of Run. Otherwise
// Run campaigns again, and err is the failure of this campaign, nil after a loss.
func (e *election) term(ctx context.Context) (over bool, err error) {
	begin := time.Now()
	lease, err := e.locks.Fenced(e.name).Lock(ctx, lock.Standby())
	if err != nil {
		return e.failed(ctx, err)
	}
	released := false
	defer func() {
		if !released { // fn has panicked
			e.withdraw(ctx, lease)
			_ = lease.Unlock(ctx)
		}
	}()
	valid := time.Until(lease.ValidUntil())
	stopBefore, err := e.cfg.stopBefore(valid, time.Since(begin))
	if err == nil {
		err = e.publish(ctx, lease, valid-stopBefore)
	}
	if err != nil {
		released = true
		if errors.Is(err, conn.ErrUncertain) {
			e.withdraw(ctx, lease)
		}
		return e.failed(ctx, errors.Join(err, lease.Unlock(ctx)))
	}
	cause, err := e.lead(ctx, lease, stopBefore)
	if lease.Err() == nil && cause != ErrExpiring {
		e.withdraw(ctx, lease)
	}
	lost := lease.Err()
	unlock := lease.Unlock(ctx)
	released = true
	if lost != nil && errors.Is(unlock, lock.ErrNotHeld) {
		unlock = nil // lost says the same
	}
	switch {
	case cause == nil:
		return true, errors.Join(err, lost, unlock)
	case ctx.Err() != nil:
		if errors.Is(err, ctx.Err()) || errors.Is(err, context.Cause(ctx)) {
			err = nil
		}
		return true, errors.Join(context.Cause(ctx), err, lost, unlock)
	}
	e.warn("leadership lost", "reason", cause, "error", err)
	return false, nil
}

// lead calls fn, and returns the cause of the end of fn's context, nil if fn returned before, and the error of fn.
func (e *election) lead(ctx context.Context, lease *lock.Lease, stopBefore time.Duration) (cause, err error) {
	held, cancel := lease.Context(context.WithValue(ctx, tokenKey{}, lease.Token()))
	defer cancel()
	work, stop := context.WithCancelCause(held)
	defer stop(nil)
	returned := make(chan struct{})
	var watch sync.WaitGroup
	defer watch.Wait()
	defer close(returned)
	e.cfg.Health.begin(e.name, work.Done())
	defer e.cfg.Health.end()
	watch.Go(func() {
		if endOfTerm(work, lease, stopBefore, returned) {
			stop(ErrExpiring)
		}
		if work.Err() != nil {
			e.cfg.Health.stopped()
		}
	})
	err = e.fn(work)
	return context.Cause(work), err
}

// endOfTerm waits until work ends, fn has returned, or the lease ends within stopBefore, and reports whether the last is
// true. Without stopBefore the context of the lease is enough.
func endOfTerm(work context.Context, lease *lock.Lease, stopBefore time.Duration, returned <-chan struct{}) bool {
	for {
		var soon <-chan time.Time
		if stopBefore > 0 {
			left := time.Until(lease.ValidUntil()) - stopBefore
			if left <= 0 {
				return true
			}
			soon = time.After(left)
		}
		select {
		case <-soon:
		case <-work.Done():
			return false
		case <-returned:
			return false
		}
	}
}

// failed decides what the error of a campaign means.
func (e *election) failed(ctx context.Context, err error) (over bool, _ error) {
	if ctx.Err() != nil {
		return true, context.Cause(ctx)
	}
	return !passing(err), err
}

// passing reports whether a later campaign may succeed after a campaign with the error err.
func passing(err error) bool {
	for _, final := range []error{lock.ErrInvalid, lock.ErrWrongType, lock.ErrClosed, conn.ErrClosed, conn.ErrRefused} {
		if errors.Is(err, final) {
			return false
		}
	}
	if errors.Is(err, conn.ErrNotSent) && netfail.Dial(err) == netfail.Final {
		return false
	}
	reply, answered := errors.AsType[resp.Error](err)
	return !answered || !netfail.Denied(reply)
}

type tokenKey struct{}

// Token returns the fencing token of the leader whose function got ctx, or a context derived from ctx; 0 for any other
// context.
func Token(ctx context.Context) int64 {
	token, _ := ctx.Value(tokenKey{}).(int64)
	return token
}
