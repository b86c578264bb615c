package redisson

import (
	"context"
	_ "embed"
	"strconv"
	"time"

	"github.com/lockwire/lockwire/script"
)

//go:embed semaphore_acquire.lua
var semaphoreAcquireLua string

//go:embed semaphore_release.lua
var semaphoreReleaseLua string

var (
	semaphoreAcquire = script.New(semaphoreAcquireLua)
	semaphoreRelease = script.New(semaphoreReleaseLua)
)

// Acquire waits for permits for as long as wait says, and reports success.
func (c *Client) Acquire(ctx context.Context, name string, n int, wait time.Duration) (bool, error) {
	began := time.Now()
	got, err := c.tryAcquire(ctx, name, n)
	if got || err != nil || wait <= 0 {
		return got, err
	}
	channel := prefixed("redisson_sc", name)
	e, err := c.enter(ctx, channel, c.permitsWake(channel))
	defer c.leave(channel, e)
	if err != nil {
		return false, err
	}
	for {
		if got, err := c.tryAcquire(ctx, name, n); got || err != nil {
			return got, err
		}
		rest := wait - time.Since(began)
		if rest <= 0 {
			return false, nil
		}
		if _, err := c.wait(ctx, e, rest); err != nil {
			return false, err
		}
	}
}

// permitsWake: a message with the number of permits wakes as many subscribed waiters.
func (c *Client) permitsWake(channel string) func(string, int) (int, bool) {
	return func(payload string, _ int) (int, bool) {
		n, _ := strconv.Atoi(payload)
		return min(n, c.entries[channel].refsOr0()), true
	}
}

func (e *entry) refsOr0() int {
	if e == nil {
		return 0
	}
	return e.refs
}

func (c *Client) tryAcquire(ctx context.Context, name string, n int) (bool, error) {
	v, err := semaphoreAcquire.Run(context.WithoutCancel(ctx), c.pool, []string{name}, n)
	if err != nil {
		return false, err
	}
	got, err := v.Int()
	return got == 1, err
}

// Release gives permits back.
func (c *Client) Release(ctx context.Context, name string, n int) error {
	_, err := semaphoreRelease.Run(context.WithoutCancel(ctx), c.pool, []string{name, prefixed("redisson_sc", name)}, n, publish)
	return err
}
