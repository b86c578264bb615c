package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockwire/lockwire/lock"
	"github.com/lockwire/lockwire/resp"
)

// otherKinds are the kinds of locks that lockwire run does not have.
var otherKinds = []string{"nonreentrant", "nonreentrantfair", "fastermulti", "semaphore", "latch"}

// errExists: a semaphore or a latch has the name that the doctor would have taken.
var errExists = errors.New("the name is in use")

// checkKinds rejects a kind of which the doctor knows nothing.
func checkKinds(wanted []string) error {
	known := slices.Concat(kinds, otherKinds)
	for _, kind := range wanted {
		if !slices.Contains(known, kind) {
			return fmt.Errorf("%q is none of %s", kind, strings.Join(known, ", "))
		}
	}
	return nil
}

// tryKinds takes and releases a lock of each of the kinds.
func (e *examination) tryKinds(prefix string, kinds []string) {
	for _, kind := range kinds {
		ctx, cancel := context.WithTimeout(e.ctx, 5*time.Second) // another doctor may be here
		err := e.tryKind(ctx, kind, prefix+kind)
		cancel()
		switch {
		case errors.Is(err, errExists), errors.Is(err, lock.ErrInvalid): // a latch has no name with braces
			e.add("info", "kind "+kind, "not tried: %v", err)
		case err != nil:
			e.fail("kind "+kind, err)
		default:
			e.add("ok", "kind "+kind, "taken and released")
		}
	}
	for _, text := range e.warnings.take() {
		e.add("warn", "locks", "%s", text)
	}
}

func (e *examination) tryKind(ctx context.Context, kind, name string) error {
	switch kind {
	case "semaphore":
		return e.trySemaphore(ctx, name)
	case "latch":
		return e.tryLatch(ctx, name)
	case "permit":
		if err := created(e.client.PermitSemaphore(name).TrySetPermits(ctx, 1)); err != nil {
			return err
		}
		defer e.remove(name)
	}
	lease, err := e.locker(kind, name).Lock(ctx)
	if err != nil {
		return err
	}
	return lease.Unlock(e.ctx)
}

func (e *examination) locker(kind, name string) locker {
	switch kind {
	case "nonreentrant":
		return e.client.NonReentrant(name)
	case "nonreentrantfair":
		return e.client.NonReentrantFair(name)
	case "fastermulti":
		return e.client.FasterMulti(name, "a", "b")
	}
	return lockerOf(e.client, kind, name)
}

func (e *examination) trySemaphore(ctx context.Context, name string) error {
	s := e.client.Semaphore(name)
	if err := created(s.TrySetPermits(ctx, 1)); err != nil {
		return err
	}
	defer e.remove(name)
	if err := s.Acquire(ctx, 1); err != nil {
		return err
	}
	return s.Release(e.ctx, 1)
}

func (e *examination) tryLatch(ctx context.Context, name string) error {
	l := e.client.CountDownLatch(name)
	if err := created(l.TrySetCount(ctx, 1)); err != nil {
		return err
	}
	defer e.remove(name)
	if err := l.CountDown(ctx); err != nil {
		return err
	}
	return l.Wait(ctx)
}

// created returns errExists if a semaphore or a latch was there before.
func created(set bool, err error) error {
	if err == nil && !set {
		return errExists
	}
	return err
}

// remove deletes the key of a semaphore or a latch.
func (e *examination) remove(name string) {
	_, _ = e.client.Server().Send(e.ctx, resp.Cmd("DEL", name))
}
