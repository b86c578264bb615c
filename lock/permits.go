package lock

import (
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/lockwire/lockwire/resp"
	"github.com/lockwire/lockwire/script"
)

//go:embed permits_acquire.lua
var permitsAcquire string

//go:embed permits_release.lua
var permitsRelease string

//go:embed permits_undo.lua
var permitsUndo string

//go:embed permits_renew.lua
var permitsRenew string

//go:embed permits_force.lua
var permitsForce string

//go:embed permits_info.lua
var permitsInfo string

//go:embed permits_add.lua
var permitsAdd string

//go:embed permits_give.lua
var permitsGive string

//go:embed permits_lease.lua
var permitsLease string

var permitsKind = &lazy[*kind]{make: newPermitsKind}

func newPermitsKind() *kind {
	return &kind{
		name:    "permits",
		channel: semaphoreChannel,
		keys:    permitsKeys,
		lease:   func(name string) string { return permitsKeys(name)[0] },
		args:    func(c *Client, r request) []any { return []any{c.publishing(r.target), r.setup, r.lease == forever} },
		parse:   parsePermits,
		owner:   func(_ *Client, r request) string { return newPermits(r.permits) },
		show:    func(owner string) string { return strings.Join(permitIDs(owner), ",") },
		others:  next,
		permits: true,
		parted:  true,
		acquire: script.New(permitsAcquire),
		release: script.New(permitsRelease),
		undo:    script.New(permitsUndo),
		renew:   script.New(permitsRenew),
		force:   script.New(permitsForce),
		info:    script.New(permitsInfo),
		more: map[string]*script.Script{
			"set":   script.New(semaphoreSet),
			"add":   script.New(permitsAdd),
			"lease": script.New(permitsLease),
			"give":  script.New(permitsGive),
		},
	}
}

const (
	permitSize = 16 // of the id of a permit, in bytes
	// maxPermits is how many permits one lease has at most: the server does nothing else while it counts them.
	maxPermits = 1000
)

// PermitSemaphore is Redisson's RPermitExpirableSemaphore (getPermitExpirableSemaphore): a number of permits, each of which is
// taken for a lease and has an id. A permit whose holder died is free again when its lease ends.
//
// What an Acquire returns is a [Lease], with all that goes with it: the watchdog renews it unless [For] or [Forever] says
// otherwise, and its holder is told when it is lost. A Lease over several permits is lost with the first of them; the rest
// stays taken until Unlock gives it back, or its lease ends.
//
// A PermitSemaphore never changes, and may be shared by any number of goroutines. Those who wait are served as those of a
// [Semaphore] are.
type PermitSemaphore struct{ handle Handle }

// PermitSemaphore returns the semaphore of that name, which is its key on the server. What is wrong with a name is said by
// the first call that uses it.
func (c *Client) PermitSemaphore(name string) *PermitSemaphore {
	return &PermitSemaphore{c.handle(permitsKind.get(), name)}
}

// Name returns the semaphore's name.
func (s *PermitSemaphore) Name() string { return s.handle.Name() }

// Acquire takes a permit, waiting for one for as long as ctx allows, as [Handle.Lock] does for a lock. A semaphore that nobody
// has set up is [ErrNotSet], unless [WaitForSetup] says to wait for that too. The other options are [For] and [Forever].
func (s *PermitSemaphore) Acquire(ctx context.Context, opts ...Option) (*Lease, error) {
	return s.AcquireMany(ctx, 1, opts...)
}

// TryAcquire takes a permit if one is free now, and returns [ErrNotAcquired] if not, as [Handle.TryLock] does for a lock. It does
// not stand in line with those who wait. The options are those of Acquire.
func (s *PermitSemaphore) TryAcquire(ctx context.Context, opts ...Option) (*Lease, error) {
	return s.TryAcquireMany(ctx, 1, opts...)
}

// AcquireMany is Acquire of n permits at once, 1 to 1000, under one Lease.
func (s *PermitSemaphore) AcquireMany(ctx context.Context, n int, opts ...Option) (*Lease, error) {
	opts, err := s.options(n, opts)
	if err != nil {
		return nil, err
	}
	return s.handle.Lock(ctx, opts...)
}

// TryAcquireMany is TryAcquire of n permits at once, 1 to 1000, under one Lease.
func (s *PermitSemaphore) TryAcquireMany(ctx context.Context, n int, opts ...Option) (*Lease, error) {
	opts, err := s.options(n, opts)
	if err != nil {
		return nil, err
	}
	return s.handle.client.tryLock(ctx, s.handle.target, opts)
}

func (s *PermitSemaphore) options(n int, opts []Option) ([]Option, error) {
	if s.handle.err != nil {
		return nil, s.handle.err
	}
	if n < 1 || n > maxPermits {
		return nil, invalidf("%d permits", n)
	}
	return append([]Option{{permits: n}}, opts...), nil
}

// Do runs fn while it has a permit, with a context that ends when that is lost, and gives it back. It waits as Acquire does, and
// its error is that of [Handle.Do].
func (s *PermitSemaphore) Do(ctx context.Context, fn func(context.Context) error, opts ...Option) error {
	lease, err := s.Acquire(ctx, opts...)
	if err != nil {
		return err
	}
	return lease.run(ctx, fn)
}

// ReleaseAll frees all permits that are taken, whoever has them, and reports whether there were any. A holder in this process is
// told at once, one of another client of this package within a second, as [Handle.ForceUnlock] says, any other at its next
// renewal or Check, and by the end of its lease at the latest; of one that asked for
// [Forever], at Check or Unlock.
func (s *PermitSemaphore) ReleaseAll(ctx context.Context) (bool, error) {
	return s.handle.ForceUnlock(ctx)
}

// Info tells how many permits are free, how many are taken, and for how long, as the server sees it at one instant. Each Holder
// is a permit, by its id; they are listed as their leases end, and no more than 1000 of them. Remaining is the time until so many
// leases have ended that a permit is free.
func (s *PermitSemaphore) Info(ctx context.Context) (Info, error) { return s.handle.Info(ctx) }

// Available returns how many permits are free: less than 0 when SetPermits or AddPermits has taken away more than were, and 0
// when nobody has set the semaphore up.
func (s *PermitSemaphore) Available(ctx context.Context) (int, error) {
	info, err := s.Info(ctx)
	return info.Permits.Free, err
}

// Acquired returns how many permits are taken.
func (s *PermitSemaphore) Acquired(ctx context.Context) (int, error) {
	info, err := s.Info(ctx)
	return info.Permits.Taken, err
}

// Permits returns how many permits there are, free or taken, and 0 when nobody has set the semaphore up.
func (s *PermitSemaphore) Permits(ctx context.Context) (int, error) {
	info, err := s.Info(ctx)
	if !info.Permits.Set {
		return 0, err
	}
	return info.Permits.Free + info.Permits.Taken, err
}

// newPermits returns the ids of n new permits, one behind the other: the owner of a lease.
func newPermits(n int) string {
	ids := make([]byte, n*permitSize)
	rand.Read(ids)
	return string(ids)
}

// permitIDs returns ids as Redisson shows them.
func permitIDs(owner string) []string {
	list := make([]string, 0, len(owner)/permitSize)
	for ; len(owner) >= permitSize; owner = owner[permitSize:] {
		list = append(list, hex.EncodeToString([]byte(owner[:permitSize])))
	}
	return list
}

// PermitIDs returns the ids of the lease's permits, 32 hexadecimal digits each, as Redisson has them; nil if the lease is not
// of a [PermitSemaphore].
func (l *Lease) PermitIDs() []string {
	if l.target.kind != permitsKind.get() {
		return nil
	}
	return permitIDs(l.owner)
}

// parsePermits is what a reply says of: whether there is a semaphore, how many permits are free and taken, and of each that is
// taken the id and the remaining lease in ms.
func parsePermits(v resp.Value) (Info, error) {
	var numbers [3]int64
	for i := range numbers {
		n, err := v.At(i).Int()
		if err != nil {
			return Info{}, fmt.Errorf("lock: info: %w", err)
		}
		numbers[i] = n
	}
	info := Info{Permits: Permits{Set: numbers[0] == 1, Free: int(numbers[1]), Taken: int(numbers[2])}}
	if info.Locked = info.Permits.Set && info.Permits.Free <= 0; info.Locked {
		info.Remaining = noTTL
	}
	for i := 3; i+1 < v.Len(); i += 2 {
		id, err := v.At(i).Text()
		if err != nil {
			return Info{}, fmt.Errorf("lock: info: %w", err)
		}
		left, err := v.At(i + 1).Int()
		if err != nil {
			return Info{}, fmt.Errorf("lock: info: %w", err)
		}
		if info.Locked && len(info.Holders) == -info.Permits.Free {
			info.Remaining = milliseconds(left)
		}
		info.Holders = append(info.Holders, Holder{Owner: hex.EncodeToString([]byte(id)), Holds: 1, Remaining: milliseconds(left)})
	}
	return info, nil
}
