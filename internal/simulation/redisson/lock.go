package redisson

import (
	"context"
	_ "embed"
	"strings"
	"sync/atomic"
	"time"

	"github.com/lockwire/lockwire/resp"
	"github.com/lockwire/lockwire/script"
)

// Kind is a kind of lock.
type Kind string

// The kinds.
const (
	Plain  Kind = "RLock"
	Fair   Kind = "RFairLock"
	Fenced Kind = "RFencedLock"
	Read   Kind = "RReadLock"
	Write  Kind = "RWriteLock"
)

//go:embed lock_acquire.lua
var lockAcquireLua string

//go:embed lock_release.lua
var lockReleaseLua string

//go:embed lock_force.lua
var lockForceLua string

//go:embed fenced_acquire.lua
var fencedAcquireLua string

//go:embed fair_acquire.lua
var fairAcquireLua string

//go:embed fair_leave.lua
var fairLeaveLua string

//go:embed fair_release.lua
var fairReleaseLua string

//go:embed read_acquire.lua
var readAcquireLua string

//go:embed read_release.lua
var readReleaseLua string

//go:embed write_acquire.lua
var writeAcquireLua string

//go:embed write_release.lua
var writeReleaseLua string

var (
	lockAcquire   = script.New(lockAcquireLua)
	lockRelease   = script.New(lockReleaseLua)
	lockForce     = script.New(lockForceLua)
	fencedAcquire = script.New(fencedAcquireLua)
	fairAcquire   = script.New(fairAcquireLua)
	fairLeave     = script.New(fairLeaveLua)
	fairRelease   = script.New(fairReleaseLua)
	readAcquire   = script.New(readAcquireLua)
	readRelease   = script.New(readReleaseLua)
	writeAcquire  = script.New(writeAcquireLua)
	writeRelease  = script.New(writeReleaseLua)
)

// Request is how a lock is asked for.
type Request struct {
	Kind   Kind
	Name   string
	Thread int64
	Lease  time.Duration // 0: the watchdog's
	Try    bool          // tryLock without a wait
	// Wait is the longest time to wait; 0 is no limit.
	Wait time.Duration
}

// Hold is a held lock.
type Hold struct {
	client *Client
	kind   Kind
	name   string
	owner  string
	token  int64
	woken  bool
	since  time.Time    // before the successful request
	until  atomic.Int64 // in ns since since
}

// Owner is the owner on the server.
func (h *Hold) Owner() string { return h.owner }

// Token is the fencing token, or 0.
func (h *Hold) Token() int64 { return h.token }

// Since is a time before the server's grant.
func (h *Hold) Since() time.Time { return h.since }

// Woken reports whether a message caused the successful request.
func (h *Hold) Woken() bool { return h.woken }

// ValidUntil is the time until which the server certainly has the hold.
func (h *Hold) ValidUntil() time.Time { return h.since.Add(time.Duration(h.until.Load())) }

func (h *Hold) extend(start time.Time, lease time.Duration) {
	h.until.Store(int64(start.Add(lease).Sub(h.since)))
}

// Lock waits for a lock as Redisson does: it asks, subscribes, asks again, and waits for a message or for the end of the
// holder's lease. It returns nil without an error after the end of its time.
func (c *Client) Lock(ctx context.Context, r Request) (*Hold, error) {
	began := time.Now()
	h, _, err := c.attempt(ctx, r)
	if h != nil || err != nil || r.Try {
		return h, err
	}
	channel := c.channel(r)
	e, err := c.enter(ctx, channel, lockWakes)
	defer c.leave(channel, e)
	if err != nil {
		c.giveUp(ctx, r)
		return nil, err
	}
	for woken := false; ; {
		var left time.Duration
		if h, left, err = c.attempt(ctx, r); h != nil || err != nil {
			if h != nil {
				h.woken = woken
			}
			return h, err
		}
		if r.Wait > 0 {
			rest := r.Wait - time.Since(began)
			if rest <= 0 {
				c.giveUp(ctx, r)
				return nil, nil
			}
			if left < 0 || left > rest {
				left = rest
			}
		}
		if woken, err = c.wait(ctx, e, left); err != nil {
			c.giveUp(ctx, r)
			return nil, err
		}
	}
}

// lockWakes is how many waiters a lock's message wakes.
func lockWakes(payload string, parked int) (n int, saves bool) {
	if payload == "0" {
		return 1, true
	}
	return parked, false
}

func (c *Client) channel(r Request) string {
	switch r.Kind {
	case Fair:
		return prefixed("redisson_lock__channel", r.Name) + ":" + owner(c.id, r.Thread)
	case Read, Write:
		return prefixed("redisson_rwlock", r.Name)
	}
	return prefixed("redisson_lock__channel", r.Name)
}

func (r Request) queueWait() time.Duration {
	if r.Wait > 0 {
		return r.Wait
	}
	return fairWait
}

// attempt asks once. For a lock held elsewhere, it returns the time until the next look, below 0 if unknown.
func (c *Client) attempt(ctx context.Context, r Request) (*Hold, time.Duration, error) {
	lease := r.Lease
	if lease == 0 {
		lease = c.lease
	}
	h := &Hold{client: c, kind: r.Kind, name: r.Name, owner: owner(c.id, r.Thread), since: time.Now()}
	if r.Kind == Write {
		h.owner += ":write"
	}
	v, err := c.ask(context.WithoutCancel(ctx), r, h.owner, lease.Milliseconds())
	if err != nil {
		return nil, 0, err
	}
	if r.Kind == Fenced {
		if h.token, err = v.At(1).Int(); err != nil {
			return nil, 0, err
		}
		if v = v.At(0); h.token > 0 {
			v = resp.Value{}
		}
	}
	if !v.IsNull() {
		left, err := v.Int()
		return nil, time.Duration(left) * time.Millisecond, err
	}
	h.extend(h.since, lease)
	if r.Lease == 0 {
		c.renew(h)
	}
	return h, 0, nil
}

func (c *Client) ask(ctx context.Context, r Request, owner string, lease int64) (resp.Value, error) {
	switch r.Kind {
	case Fair:
		keys := []string{r.Name, prefixed("redisson_lock_queue", r.Name), prefixed("redisson_lock_timeout", r.Name)}
		return fairAcquire.Run(ctx, c.pool, keys, lease, owner, r.queueWait().Milliseconds(), time.Now().UnixMilli(), !r.Try)
	case Fenced:
		return fencedAcquire.Run(ctx, c.pool, []string{r.Name, prefixed("redisson_lock_token", r.Name)}, lease, owner)
	case Read:
		return readAcquire.Run(ctx, c.pool, []string{r.Name, holdPrefix(r.Name, owner)}, lease, owner)
	case Write:
		return writeAcquire.Run(ctx, c.pool, []string{r.Name}, lease, owner)
	}
	return lockAcquire.Run(ctx, c.pool, []string{r.Name}, lease, owner)
}

// holdPrefix is the prefix of the keys of a reader's holds.
func holdPrefix(name, owner string) string { return "{" + name + "}:" + owner + ":rwlock_timeout" }

// giveUp takes a waiter out of the queue of a fair lock.
func (c *Client) giveUp(ctx context.Context, r Request) {
	if r.Kind != Fair {
		return
	}
	keys := []string{prefixed("redisson_lock_queue", r.Name), prefixed("redisson_lock_timeout", r.Name)}
	_, _ = fairLeave.Run(context.WithoutCancel(ctx), c.pool, keys, owner(c.id, r.Thread), r.queueWait().Milliseconds())
}

// Unlock releases a hold. It is ErrNotOwner if the server does not have the hold.
func (h *Hold) Unlock(ctx context.Context) error {
	c := h.client
	c.forget(h)
	ctx = context.WithoutCancel(ctx)
	latch := prefixed("redisson_unlock_latch", h.name) + ":" + requestID()
	lease, life := c.lease.Milliseconds(), latchLife.Milliseconds()
	var v resp.Value
	var err error
	switch channel := prefixed("redisson_lock__channel", h.name); h.kind {
	case Fair:
		keys := []string{h.name, prefixed("redisson_lock_queue", h.name), prefixed("redisson_lock_timeout", h.name), channel, latch}
		v, err = fairRelease.Run(ctx, c.pool, keys, 0, lease, h.owner, time.Now().UnixMilli(), publish, life)
	case Read:
		keys := []string{h.name, prefixed("redisson_rwlock", h.name), holdPrefix(h.name, h.owner), "{" + h.name + "}", latch}
		v, err = readRelease.Run(ctx, c.pool, keys, 0, h.owner, publish, life)
	case Write:
		v, err = writeRelease.Run(ctx, c.pool, []string{h.name, prefixed("redisson_rwlock", h.name), latch}, 1, lease, h.owner, publish, life)
	default:
		v, err = lockRelease.Run(ctx, c.pool, []string{h.name, channel, latch}, 0, lease, h.owner, publish, life)
	}
	if err != nil {
		return err
	}
	_, _ = c.pool.Do(ctx, "DEL", latch)
	if v.IsNull() {
		return ErrNotOwner
	}
	return nil
}

// Force frees a lock of any holder, and reports whether the lock was held.
func (c *Client) Force(ctx context.Context, name string) (bool, error) {
	v, err := lockForce.Run(ctx, c.pool, []string{name, prefixed("redisson_lock__channel", name)}, 0, publish)
	if err != nil {
		return false, err
	}
	n, err := v.Int()
	return n == 1, err
}

// reader reports whether the hold is a reader's, whose renewal is another.
func (h *Hold) reader() bool { return h.kind == Read && !strings.HasSuffix(h.owner, ":write") }

// Of is a hold for a thread without holds to try to unlock.
func (c *Client) Of(kind Kind, name string, thread int64) *Hold {
	h := &Hold{client: c, kind: kind, name: name, owner: owner(c.id, thread), since: time.Now()}
	if kind == Write {
		h.owner += ":write"
	}
	return h
}
