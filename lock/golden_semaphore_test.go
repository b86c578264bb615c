package lock_test

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/lockwire/lockwire/lock"
)

// number is argument i, a count.
func (c goldenCall) number(i int) int {
	n, _ := strconv.Atoi(c.args[i])
	return n
}

func (r *replay) client(call goldenCall) *lock.Client { return r.clients[call.caller[:1]] }

// did is the word for a call that has worked, or what went wrong.
func did(word string, err error) string {
	switch {
	case err == nil:
		return word
	case errors.Is(err, lock.ErrNotHeld):
		return "error RedisException"
	}
	return err.Error()
}

// yes is what a call reports, or what went wrong.
func yes(ok bool, err error) string { return fmt.Sprint(ok, ifError(err)) }

// got is whether something was acquired, or what went wrong.
func got(err error) string {
	if errors.Is(err, lock.ErrNotAcquired) {
		return "false"
	}
	return did("true", err)
}

// onSemaphore makes a method of what is done to a semaphore.
func onSemaphore(do func(ctx context.Context, s *lock.Semaphore, call goldenCall) string) goldenMethod {
	return func(r *replay, ctx context.Context, call goldenCall) string {
		return do(ctx, r.client(call).Semaphore(call.name), call)
	}
}

var goldenSemaphore = map[string]goldenMethod{
	"sem set": onSemaphore(func(ctx context.Context, s *lock.Semaphore, call goldenCall) string {
		return yes(s.TrySetPermits(ctx, call.number(0)))
	}),
	"sem setttl": onSemaphore(func(ctx context.Context, s *lock.Semaphore, call goldenCall) string {
		return yes(s.TrySetPermitsFor(ctx, call.number(0), call.ms(1)))
	}),
	"sem acquire": onSemaphore(func(ctx context.Context, s *lock.Semaphore, call goldenCall) string {
		return did("acquired", s.Acquire(ctx, call.number(0)))
	}),
	"sem try": onSemaphore(func(ctx context.Context, s *lock.Semaphore, call goldenCall) string {
		if len(call.args) == 1 {
			return got(s.TryAcquire(ctx, call.number(0)))
		}
		ctx, cancel := context.WithTimeout(ctx, call.ms(1))
		defer cancel()
		return got(s.Acquire(ctx, call.number(0)))
	}),
	"sem release": onSemaphore(func(ctx context.Context, s *lock.Semaphore, call goldenCall) string {
		return did("released", s.Release(ctx, call.number(0)))
	}),
	"sem relexists": onSemaphore(func(ctx context.Context, s *lock.Semaphore, call goldenCall) string {
		return yes(s.ReleaseIfExists(ctx, call.number(0)))
	}),
	"sem add": onSemaphore(func(ctx context.Context, s *lock.Semaphore, call goldenCall) string {
		return did("added", s.AddPermits(ctx, call.number(0)))
	}),
	"sem avail": onSemaphore(func(ctx context.Context, s *lock.Semaphore, _ goldenCall) string { return count(s.Available(ctx)) }),
	"sem drain": onSemaphore(func(ctx context.Context, s *lock.Semaphore, _ goldenCall) string { return count(s.DrainPermits(ctx)) }),
}

func count(n int, err error) string { return fmt.Sprint(n, ifError(err)) }

// onPermits makes a method of what is done to a semaphore whose permits have ids.
func onPermits(do func(ctx context.Context, s *lock.PermitSemaphore, call goldenCall) string) goldenMethod {
	return func(r *replay, ctx context.Context, call goldenCall) string {
		return do(ctx, r.client(call).PermitSemaphore(call.name), call)
	}
}

// onIDs is onPermits with the ids that the first argument names. It is done as by the other client: what a client has a Lease
// of, it does not change by id.
func onIDs(do func(ctx context.Context, s *lock.PermitSemaphore, call goldenCall, ids []string) string) goldenMethod {
	return func(r *replay, ctx context.Context, call goldenCall) string {
		other := r.clients[map[string]string{"A": "B", "B": "A"}[call.caller[:1]]]
		var ids []string
		for name := range strings.SplitSeq(call.args[0], ",") {
			ids = append(ids, r.idOf(name))
		}
		return do(ctx, other.PermitSemaphore(call.name), call, ids)
	}
}

// idOf returns the id of the permit that has that name in the file.
func (r *replay) idOf(name string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	for raw, alias := range r.aliases {
		if alias == name {
			return hex.EncodeToString([]byte(raw))
		}
	}
	return "unknown"
}

// permits names the permits of a lease as the file does, by the order in which they were taken.
func (r *replay) permits(lease *lock.Lease, err error) []string {
	if err != nil {
		return []string{map[bool]string{true: "null", false: err.Error()}[errors.Is(err, lock.ErrNotAcquired)]}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	known := 0
	for _, alias := range r.aliases {
		if strings.HasPrefix(alias, "P") {
			known++
		}
	}
	var names []string
	for _, id := range lease.PermitIDs() {
		raw, _ := hex.DecodeString(id)
		known++
		names = append(names, fmt.Sprint("P", known))
		r.aliases[string(raw)] = names[len(names)-1]
	}
	return names
}

// permitLease is the lease that argument i asks for; Redisson's permits have none without one.
func permitLease(call goldenCall, i int) lock.Option {
	if len(call.args) <= i {
		return lock.Forever()
	}
	return lock.For(call.ms(i))
}

var goldenPermits = map[string]goldenMethod{
	"pexsem set": onPermits(func(ctx context.Context, s *lock.PermitSemaphore, call goldenCall) string {
		return yes(s.TrySetPermits(ctx, call.number(0)))
	}),
	"pexsem setpermits": onPermits(func(ctx context.Context, s *lock.PermitSemaphore, call goldenCall) string {
		return did("set", s.SetPermits(ctx, call.number(0)))
	}),
	"pexsem add": onPermits(func(ctx context.Context, s *lock.PermitSemaphore, call goldenCall) string {
		return did("added", s.AddPermits(ctx, call.number(0)))
	}),
	"pexsem avail": onPermits(func(ctx context.Context, s *lock.PermitSemaphore, _ goldenCall) string {
		return count(s.Available(ctx))
	}),
	"pexsem permits":  onPermits(func(ctx context.Context, s *lock.PermitSemaphore, _ goldenCall) string { return count(s.Permits(ctx)) }),
	"pexsem acquired": onPermits(func(ctx context.Context, s *lock.PermitSemaphore, _ goldenCall) string { return count(s.Acquired(ctx)) }),
	"pexsem acquire": func(r *replay, ctx context.Context, call goldenCall) string {
		return r.permits(r.client(call).PermitSemaphore(call.name).Acquire(ctx, permitLease(call, 0)))[0]
	},
	"pexsem acquiren": func(r *replay, ctx context.Context, call goldenCall) string {
		lease, err := r.client(call).PermitSemaphore(call.name).AcquireMany(ctx, call.number(0), permitLease(call, 1))
		return "[" + strings.Join(r.permits(lease, err), ",") + "]"
	},
	"pexsem try": func(r *replay, ctx context.Context, call goldenCall) string {
		s := r.client(call).PermitSemaphore(call.name)
		if len(call.args) == 0 {
			return r.permits(s.TryAcquire(ctx, lock.Forever()))[0]
		}
		ctx, cancel := context.WithTimeout(ctx, call.ms(0))
		defer cancel()
		return r.permits(s.Acquire(ctx, permitLease(call, 1)))[0]
	},
	"pexsem release": onIDs(func(ctx context.Context, s *lock.PermitSemaphore, _ goldenCall, ids []string) string {
		return did("released", s.Release(ctx, ids...))
	}),
	"pexsem releasen": onIDs(func(ctx context.Context, s *lock.PermitSemaphore, _ goldenCall, ids []string) string {
		return did("released", s.Release(ctx, ids...))
	}),
	"pexsem tryrelease": onIDs(func(ctx context.Context, s *lock.PermitSemaphore, _ goldenCall, ids []string) string {
		err := s.Release(ctx, ids...)
		return map[bool]string{true: "false", false: did("true", err)}[errors.Is(err, lock.ErrNotHeld)]
	}),
	"pexsem update": onIDs(func(ctx context.Context, s *lock.PermitSemaphore, call goldenCall, ids []string) string {
		return did("true", s.UpdateLease(ctx, ids[0], call.ms(1)))
	}),
	"pexsem lease": onIDs(func(ctx context.Context, s *lock.PermitSemaphore, _ goldenCall, ids []string) string {
		left, err := s.LeaseOf(ctx, ids[0])
		return fmt.Sprint(int64(left/time.Millisecond), ifError(err))
	}),
}

// onLatch makes a method of what is done to a countdown latch.
func onLatch(do func(ctx context.Context, l *lock.CountDownLatch, call goldenCall) string) goldenMethod {
	return func(r *replay, ctx context.Context, call goldenCall) string {
		return do(ctx, r.client(call).CountDownLatch(call.name), call)
	}
}

var goldenLatch = map[string]goldenMethod{
	"latch set": onLatch(func(ctx context.Context, l *lock.CountDownLatch, call goldenCall) string {
		return yes(l.TrySetCount(ctx, call.number(0)))
	}),
	"latch down": onLatch(func(ctx context.Context, l *lock.CountDownLatch, _ goldenCall) string {
		return did("down", l.CountDown(ctx))
	}),
	"latch count": onLatch(func(ctx context.Context, l *lock.CountDownLatch, _ goldenCall) string { return count(l.Count(ctx)) }),
	"latch await": onLatch(func(ctx context.Context, l *lock.CountDownLatch, call goldenCall) string {
		if len(call.args) > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, call.ms(0))
			defer cancel()
		}
		return got(l.Wait(ctx))
	}),
}
