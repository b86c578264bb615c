package lock

import (
	"context"
	_ "embed"
	"fmt"
	"time"

	"github.com/lockwire/lockwire/resp"
	"github.com/lockwire/lockwire/script"
)

//go:embed semaphore_acquire.lua
var semaphoreAcquire string

//go:embed semaphore_undo.lua
var semaphoreUndo string

//go:embed semaphore_info.lua
var semaphoreInfo string

//go:embed semaphore_set.lua
var semaphoreSet string

//go:embed semaphore_add.lua
var semaphoreAdd string

//go:embed semaphore_drain.lua
var semaphoreDrain string

var semaphoreKind = &lazy[*kind]{make: newSemaphoreKind}

func newSemaphoreKind() *kind {
	return &kind{
		name:    "semaphore",
		channel: semaphoreChannel,
		args:    func(_ *Client, r request) []any { return []any{r.permits, r.setup} },
		parse:   parseSemaphore,
		owner:   func(*Client, request) string { return "" },
		others:  next,
		unowned: true,
		permits: true,
		acquire: script.New(semaphoreAcquire),
		undo:    script.New(semaphoreUndo),
		info:    script.New(semaphoreInfo),
		more: map[string]*script.Script{
			"set":   script.New(semaphoreSet),
			"add":   script.New(semaphoreAdd),
			"drain": script.New(semaphoreDrain),
		},
	}
}

// Semaphore is Redisson's RSemaphore (getSemaphore): a number of permits that callers take and give back. Nobody knows who
// has a permit: one whose holder died is lost, and anybody may give back what he never took. [PermitSemaphore] is the one to
// prefer where that is not asked for.
//
// A Semaphore never changes, and may be shared by any number of goroutines. The callers of one Client that wait are served in
// the order in which they came, so that one that wants many permits gets them in the end; those behind it wait with it. Between
// Clients there is no order, and TryAcquire passes everybody.
type Semaphore struct{ handle Handle }

// Semaphore returns the semaphore of that name, which is its key on the server. What is wrong with a name is said by the
// first call that uses it.
func (c *Client) Semaphore(name string) *Semaphore {
	return &Semaphore{c.handle(semaphoreKind.get(), name)}
}

// Name returns the semaphore's name.
func (s *Semaphore) Name() string { return s.handle.Name() }

// Acquire takes n permits, waiting for as long as ctx allows until there are so many at once. When ctx ends first, the error
// is its error and its cause together with [ErrNotAcquired], or, if the server has not answered once, what went wrong; what had
// been sent then is taken back in the background, and given back once if it had taken permits. A semaphore that nobody has set
// up is [ErrNotSet], unless [WaitForSetup] says to wait for that too; it is the only option that a Semaphore has. n is 0 at
// least, which returns nil at once, and 2³¹-1 at most.
func (s *Semaphore) Acquire(ctx context.Context, n int, opts ...Option) error {
	w, err := s.acquire(ctx, n, opts)
	if w != nil {
		_, err = w.wait(ctx)
	}
	return err
}

// acquire takes n permits, or returns what has to wait for them.
//
//go:noinline
func (s *Semaphore) acquire(ctx context.Context, n int, opts []Option) (*waiter, error) {
	r, err := s.request(n, opts)
	if err != nil || n == 0 {
		return nil, err
	}
	return s.handle.client.obtain(ctx, &r)
}

// TryAcquire takes n permits if there are so many now, and returns [ErrNotAcquired] if not. It asks the server once and does
// not stand in line with those who wait. n and opts are those of Acquire.
func (s *Semaphore) TryAcquire(ctx context.Context, n int, opts ...Option) error {
	r, err := s.request(n, opts)
	if err != nil || n == 0 {
		return err
	}
	return s.handle.client.tryObtain(ctx, &r)
}

func (s *Semaphore) request(n int, opts []Option) (request, error) {
	if err := s.count("permits", n, 0); err != nil {
		return request{}, err
	}
	r, err := s.handle.client.newRequest(s.handle.target, opts)
	r.permits, r.lease = n, changeFor
	return r, err
}

// count checks the name, and a number.
func (s *Semaphore) count(what string, n, least int) error {
	if s.handle.err != nil {
		return s.handle.err
	}
	return checkCount(what, n, least)
}

// Release gives n permits back. As in Redisson it does not know whether they had been taken, and sets the semaphore up with
// them if nobody has.
//
// It works under a cancelled context too, and waits for the server's confirmation for 10 s at most. It returns
// [ErrUncertain] if there is none by then, and goes on repeating in the background: the server adds the permits once,
// however often it is asked.
func (s *Semaphore) Release(ctx context.Context, n int) error {
	_, err := s.add(ctx, n, 0, false, true)
	return err
}

// ReleaseIfExists is Release for a semaphore that may have been deleted, or have expired: it reports false if there is none,
// and does not set it up.
func (s *Semaphore) ReleaseIfExists(ctx context.Context, n int) (bool, error) {
	return s.add(ctx, n, 0, true, true)
}

// AddPermits changes the number of free permits by n, which may be less than 0, and so may the number then be: permits are
// lacking until as many have been released. It sets the semaphore up if nobody has. It waits for the server's confirmation
// for as long as ctx allows, and 10 s at most; then it returns [ErrUncertain] and goes on in the background, and the permits
// are added once in the end.
func (s *Semaphore) AddPermits(ctx context.Context, n int) error {
	_, err := s.add(ctx, n, -maxCount, false, false)
	return err
}

func (s *Semaphore) add(ctx context.Context, n, least int, existing, givesBack bool) (bool, error) {
	if err := s.count("permits", n, least); err != nil {
		return false, err
	}
	if n == 0 && !existing {
		return true, nil
	}
	added, err := s.handle.client.change(ctx, s.handle.target, "add", givesBack, n, existing)
	return added == 1, err
}

// TrySetPermits sets the semaphore up with n permits, 0 at least, and reports false if somebody has done so before. How it
// waits is as in AddPermits; it reports true to the call that has set it up even when that had to be sent twice.
func (s *Semaphore) TrySetPermits(ctx context.Context, n int) (bool, error) {
	return s.set(ctx, n, 0)
}

// TrySetPermitsFor is TrySetPermits of a semaphore that is deleted after ttl, which counts in whole milliseconds. Those who
// wait for a permit then get [ErrNotSet], and who still has one does well to return it by ReleaseIfExists.
func (s *Semaphore) TrySetPermitsFor(ctx context.Context, n int, ttl time.Duration) (bool, error) {
	if ttl < time.Millisecond {
		return false, invalidf("a semaphore that lasts %v", ttl)
	}
	return s.set(ctx, n, ttl)
}

func (s *Semaphore) set(ctx context.Context, n int, ttl time.Duration) (bool, error) {
	if err := s.count("permits", n, 0); err != nil {
		return false, err
	}
	set, err := s.handle.client.change(ctx, s.handle.target, "set", false, n, ttl.Milliseconds())
	return set == 1, err
}

// DrainPermits takes all permits that are free and returns how many those were; 0 of a semaphore that nobody has set up. Where
// permits are lacking it adds them, and returns their number as one below 0, as Redisson does. How it waits is as in
// AddPermits: after [ErrUncertain] the permits are taken in the end, but nobody learns how many.
func (s *Semaphore) DrainPermits(ctx context.Context) (int, error) {
	if s.handle.err != nil {
		return 0, s.handle.err
	}
	n, err := s.handle.client.change(ctx, s.handle.target, "drain", false)
	return int(n), err
}

// Available returns how many permits are free: less than 0 when some are lacking, 0 also when nobody has set the semaphore up.
func (s *Semaphore) Available(ctx context.Context) (int, error) {
	info, err := s.Info(ctx)
	return info.Permits.Free, err
}

// Info tells how many permits are free, as the server sees it at one instant. Of a Semaphore nobody knows who has permits, nor
// how many are taken.
func (s *Semaphore) Info(ctx context.Context) (Info, error) { return s.handle.Info(ctx) }

func parseSemaphore(v resp.Value) (Info, error) {
	if v.Len() == 0 {
		return Info{}, nil
	}
	free, err := v.At(0).Int()
	if err != nil {
		return Info{}, fmt.Errorf("lock: info: %w", err)
	}
	info := Info{Locked: free <= 0, Permits: Permits{Set: true, Free: int(free)}}
	if info.Locked {
		info.Remaining = noTTL
	}
	return info, nil
}
