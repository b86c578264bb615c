package lock_test

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/lock"
	"github.com/lockwire/lockwire/lock/internal/kinds"
)

// heldUp are requests that take something, each with the kind and the operation of its script.
var heldUp = []struct {
	name, kind, operation string
	try                   func(ctx context.Context, c *lock.Client, o lock.Owner) error
}{
	{"reentrant", "reentrant", "acquire", trying((*lock.Client).Reentrant)},
	{"reentrant, owner", "reentrant", "acquire", tryingAs((*lock.Client).Reentrant)},
	{"nonreentrant", "nonreentrant", "acquire", tryingAs((*lock.Client).NonReentrant)},
	{"spin", "spin", "acquire", trying(func(c *lock.Client, name string) *lock.Spin { return c.Spin(name, lock.Backoff{}) })},
	{"fenced", "fenced", "acquire", trying((*lock.Client).Fenced)},
	{"fenced, owner", "fenced", "acquire", tryingAs((*lock.Client).Fenced)},
	{"plain", "plain", "acquire", trying((*lock.Client).Plain)},
	{"plain, owner", "plain", "acquire", tryingAs((*lock.Client).Plain)},
	{"fair", "fair", "acquire", trying((*lock.Client).Fair)},
	{"fair, owner", "fair", "acquire", tryingAs((*lock.Client).Fair)},
	{"fair, waiting", "fair", "acquire", waiting((*lock.Client).Fair)},
	{"nonreentrantfair", "nonreentrantfair", "acquire", tryingAs((*lock.Client).NonReentrantFair)},
	{"nonreentrantfair, waiting", "nonreentrantfair", "acquire", waiting((*lock.Client).NonReentrantFair)},
	{"read", "read", "acquire", trying(readHalf)},
	{"read, owner", "read", "acquire", tryingAs(readHalf)},
	{"read, waiting", "read", "acquire", waiting(readHalf)},
	{"write", "write", "acquire", trying(writeHalf)},
	{"write, owner", "write", "acquire", tryingAs(writeHalf)},
	{"write, waiting", "write", "acquire", waiting(writeHalf)},
	{"downgrade", "write", "downgrade", func(ctx context.Context, c *lock.Client, _ lock.Owner) error { return downgrade(ctx, c) }},
	{"downgrade, owner", "write", "downgrade", func(ctx context.Context, c *lock.Client, o lock.Owner) error {
		return downgrade(ctx, c, lock.As(o))
	}},
	{"hand-over", "reentrant", "handover", handingOver((*lock.Client).Reentrant)},
	{"hand-over, fenced", "fenced", "handover", handingOver((*lock.Client).Fenced)},
	{"hand-over, nonreentrant", "nonreentrant", "handover", handingOver((*lock.Client).NonReentrant)},
	{"fastermulti", "fastermulti", "acquire", trying(func(c *lock.Client, name string) *lock.FasterMulti { return c.FasterMulti(name, "1", "2") })},
	{"permits", "permits", "acquire", func(ctx context.Context, c *lock.Client, _ lock.Owner) error {
		_, err := c.PermitSemaphore("job").TryAcquireMany(ctx, 2)
		return err
	}},
	{"permits, forever", "permits", "acquire", func(ctx context.Context, c *lock.Client, _ lock.Owner) error {
		_, err := c.PermitSemaphore("job").TryAcquire(ctx, lock.Forever())
		return err
	}},
	{"semaphore", "semaphore", "acquire", func(ctx context.Context, c *lock.Client, _ lock.Owner) error {
		return c.Semaphore("job").TryAcquire(ctx, 2)
	}},
	{"semaphore, waiting", "semaphore", "acquire", func(ctx context.Context, c *lock.Client, _ lock.Owner) error {
		if err := c.Semaphore("job").Acquire(ctx, 2); err != nil {
			return err
		}
		_ = c.Semaphore("job").Release(ctx, 2) // what came of the second attempt
		return context.Canceled
	}},
}

type try = func(ctx context.Context, c *lock.Client, o lock.Owner) error

func readHalf(c *lock.Client, name string) *lock.ReadLock   { return c.ReadWrite(name).Read() }
func writeHalf(c *lock.Client, name string) *lock.WriteLock { return c.ReadWrite(name).Write() }

func trying[L goldenLock](of func(*lock.Client, string) L) try {
	return func(ctx context.Context, c *lock.Client, _ lock.Owner) error {
		_, err := of(c, "job").TryLock(ctx)
		return err
	}
}

func tryingAs[L goldenLock](of func(*lock.Client, string) L) try {
	return func(ctx context.Context, c *lock.Client, o lock.Owner) error {
		_, err := of(c, "job").TryLock(ctx, lock.As(o))
		return err
	}
}

// waiting is a Lock, which makes another attempt, behind a holder who stays for a while.
func waiting[L interface {
	goldenLock
	Lock(ctx context.Context, opts ...lock.Option) (*lock.Lease, error)
}](of func(*lock.Client, string) L) try {
	return func(ctx context.Context, c *lock.Client, _ lock.Owner) error {
		lease, err := of(c, "job").Lock(ctx)
		if err == nil {
			err = errors.Join(lease.Unlock(ctx), context.Canceled)
		}
		return err
	}
}

func downgrade(ctx context.Context, c *lock.Client, opts ...lock.Option) error {
	lease, err := c.ReadWrite("job").Write().TryLock(ctx, opts...)
	if err == nil {
		_, err = lease.Downgrade(ctx)
	}
	return err
}

// handingOver gives a lock to one who waits for it in this process, who gives it back.
func handingOver[L interface {
	goldenLock
	Lock(ctx context.Context, opts ...lock.Option) (*lock.Lease, error)
}](of func(*lock.Client, string) L) try {
	return func(ctx context.Context, c *lock.Client, _ lock.Owner) error {
		lease, err := of(c, "job").TryLock(ctx, lock.For(time.Minute))
		if err != nil {
			return err
		}
		heir := make(chan error)
		go func() { heir <- waiting(of)(ctx, c, lock.Owner{}) }()
		synctest.Wait()
		return errors.Join(lease.Unlock(ctx), <-heir)
	}
}

// harmless are the operations that take nothing, whenever they come.
var harmless = []string{"single", "undo", "renew", "info", "pass"}

// neverBack are the kinds whose owners never have the lock again: a late release finds nothing.
var neverBack = []string{"permits", "fastermulti"}

// Each script that takes or changes something is in heldUp or changes.
func TestHeldUpIsWhatThereIs(t *testing.T) {
	for kind, scripts := range kinds.All() {
		for operation := range scripts {
			if kind == kinds.Any || slices.Contains(harmless, operation) || operation == "acquire" && scripts["undo"] == nil ||
				operation == "release" && slices.Contains(neverBack, kind) {
				continue
			}
			found := slices.ContainsFunc(changes, func(c heldUpChange) bool { return c.kind == kind && c.operation == operation })
			for released := range releases {
				found = found || kinds.All()[released][operation] == scripts[operation]
			}
			for forced := range forces {
				found = found || kinds.All()[forced][operation] == scripts[operation]
			}
			for _, h := range heldUp {
				found = found || kinds.All()[h.kind][h.operation] == scripts[operation]
			}
			if !found {
				t.Errorf("what becomes of a late %s of kind %s is tested nowhere", operation, kind)
			}
		}
	}
}

// arrivals are how long a request is on its way.
var arrivals = []time.Duration{0, time.Second, 4900 * time.Millisecond, 5100 * time.Millisecond, 8 * time.Second, 21 * time.Second,
	30 * time.Second, 11 * time.Minute, time.Hour}

// holdUp has the first request for a script disappear along with its connection, and returns its arguments once that has happened.
func (w *world) holdUp(kind, operation string) (args func() []string) {
	var mu sync.Mutex
	var held []string
	w.srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
		mu.Lock()
		defer mu.Unlock()
		if held == nil && isScriptOf(kind, cmd, operation) {
			held = slices.Clone(cmd.Args)
			return fakeredis.Close()
		}
		return fakeredis.Run()
	})
	return func() []string {
		w.t.Helper()
		w.srv.Intercept(nil)
		mu.Lock()
		defer mu.Unlock()
		if held == nil {
			w.t.Fatalf("no %s was sent", operation)
		}
		return held
	}
}

// What is held up on its way takes nothing when it comes at last, as soon or as late as may be, whatever the clocks say.
func TestHeldUpAcquireTakesNothing(t *testing.T) {
	for _, h := range heldUp {
		for _, ahead := range []time.Duration{0, -time.Hour, 3 * time.Second} {
			for _, after := range arrivals {
				t.Run(fmt.Sprint(h.name, " ", after, " ", ahead), func(t *testing.T) {
					inVirtualTime(t, func(t *testing.T, w *world) {
						w.srv.Clock(ahead)
						c := w.client(lock.Config{PreferWriters: true})
						o := c.NewOwner()
						if h.kind == "permits" || h.kind == "semaphore" {
							w.srv.Do("SET", "job", "3")
						}
						args := w.holdUp(h.kind, h.operation)
						ctx, cancel := context.WithTimeout(t.Context(), time.Second)
						defer cancel()
						if err := h.try(ctx, c, o); err == nil {
							t.Fatal("the request succeeded without an answer")
						}
						late := args()
						w.sleep(after)
						w.srv.Do(late...)
						w.sleep(100 * time.Millisecond)
						left := slices.DeleteFunc(w.left(), func(key string) bool {
							return key == "redisson_lock_token:{job}" || key == "job" && w.srv.Do("TYPE", key) == fakeredis.Status("string") && w.srv.Do("GET", key) == "3"
						})
						if len(left) > 0 {
							t.Errorf("%q are taken by nobody", left)
						}
						again, cancel := context.WithTimeout(t.Context(), time.Second)
						defer cancel()
						if err := h.try(again, c, o); err != nil && !errors.Is(err, context.Canceled) {
							t.Errorf("the request again: %v", err)
						}
						state := func() []string {
							return slices.DeleteFunc(w.srv.Dump(), func(line string) bool { return strings.Contains(line, " redisson_unlock_latch:") })
						}
						synctest.Wait()
						before := state()
						if w.srv.Do(late...); !slices.Equal(state(), before) {
							t.Errorf("coming once more it makes %q of %q", state(), before)
						}
					})
				})
			}
		}
	}
}

// releases are the kinds whose owners may have the lock again.
var releases = map[string]func(c *lock.Client) goldenLock{
	"reentrant": func(c *lock.Client) goldenLock { return c.Reentrant("job") },
	"plain":     func(c *lock.Client) goldenLock { return c.Plain("job") },
	"fair":      func(c *lock.Client) goldenLock { return c.Fair("job") },
	"read":      func(c *lock.Client) goldenLock { return c.ReadWrite("job").Read() },
	"write":     func(c *lock.Client) goldenLock { return c.ReadWrite("job").Write() },
}

// A release that has been repeated gives back nothing else when its first request comes, however late that is: not what the same
// owner has taken since.
func TestHeldUpReleaseReleasesNothingElse(t *testing.T) {
	for kind, of := range releases {
		for _, ahead := range []time.Duration{0, -time.Hour, 3 * time.Second, time.Hour} {
			for _, after := range arrivals {
				t.Run(fmt.Sprint(kind, " ", after, " ", ahead), func(t *testing.T) {
					inVirtualTime(t, func(t *testing.T, w *world) {
						w.srv.Clock(ahead)
						c := w.client(lock.Config{})
						o := lock.As(c.NewOwner())
						mustUnlock(t, mustHave(t, of(c), o)) // what time the server has is known from now on, if it says so
						lease := mustHave(t, of(c), o)
						args := w.holdUp(kind, "release")
						mustUnlock(t, lease)
						late := args()
						again := mustHave(t, of(c), o)
						w.sleep(after)
						w.srv.Do(late...)
						if err := again.Check(t.Context()); err != nil {
							t.Errorf("the next hold of the owner: %v", err)
						}
						mustUnlock(t, again)
					})
				})
			}
		}
	}
}

// changes are the changes of synchronizers, with what somebody else does between a change and one more arrival of it.
type heldUpChange struct {
	kind, operation string
	try             func(t *testing.T, c *lock.Client) error
	between         []string
}

var permitID = strings.Repeat("p", 16)

var changes = []heldUpChange{
	{"semaphore", "set", func(t *testing.T, c *lock.Client) error {
		_, err := c.Semaphore("job").TrySetPermits(t.Context(), 2)
		return err
	}, []string{"DEL", "job"}},
	{"semaphore", "add", func(t *testing.T, c *lock.Client) error { return c.Semaphore("job").AddPermits(t.Context(), 2) }, nil},
	{"semaphore", "add", func(t *testing.T, c *lock.Client) error { return c.Semaphore("job").Release(t.Context(), 2) }, nil},
	{"semaphore", "drain", func(t *testing.T, c *lock.Client) error {
		_, err := c.Semaphore("job").DrainPermits(t.Context())
		return err
	}, []string{"SET", "job", "4"}},
	{"permits", "set", func(t *testing.T, c *lock.Client) error {
		_, err := c.PermitSemaphore("job").TrySetPermits(t.Context(), 2)
		return err
	}, []string{"DEL", "job"}},
	{"permits", "add", func(t *testing.T, c *lock.Client) error { return c.PermitSemaphore("job").AddPermits(t.Context(), 2) }, nil},
	{"permits", "give", func(t *testing.T, c *lock.Client) error {
		return c.PermitSemaphore("job").Release(t.Context(), hex.EncodeToString([]byte(permitID)))
	}, []string{"ZADD", "{job}:timeout", "9000000000000", permitID}},
	{"permits", "lease", func(t *testing.T, c *lock.Client) error {
		err := c.PermitSemaphore("job").UpdateLease(t.Context(), hex.EncodeToString([]byte(permitID)), time.Hour)
		if errors.Is(err, conn.ErrUncertain) {
			return nil // it is not repeated
		}
		return err
	}, nil},
	{"latch", "set", func(t *testing.T, c *lock.Client) error {
		_, err := c.CountDownLatch("job").TrySetCount(t.Context(), 2)
		return err
	}, []string{"DEL", "job"}},
	{"latch", "down", func(t *testing.T, c *lock.Client) error { return c.CountDownLatch("job").CountDown(t.Context()) }, nil},
	{"latch", "delete", func(t *testing.T, c *lock.Client) error {
		_, err := c.CountDownLatch("job").Delete(t.Context())
		return err
	}, []string{"SET", "job", "2"}},
}

// A change that has been made by a repeat is not made once more when the first request for it comes, however late that is.
func TestHeldUpChangeChangesNothing(t *testing.T) {
	for _, h := range changes {
		for _, ahead := range []time.Duration{0, -time.Hour, 3 * time.Second, time.Hour} {
			for _, after := range arrivals {
				if h.operation == "lease" && (ahead < 0 || after < 5*time.Second) {
					continue // it is not repeated, and as good now as any other time until the server's clock says that it is late
				}
				t.Run(fmt.Sprint(h.kind, " ", h.operation, " ", after, " ", ahead), func(t *testing.T) {
					inVirtualTime(t, func(t *testing.T, w *world) {
						w.srv.Clock(ahead)
						if h.operation != "set" {
							w.srv.Do("SET", "job", "3")
							w.srv.Do("ZADD", "{job}:timeout", "9000000000000", permitID)
						}
						c := w.client(lock.Config{})
						args := w.holdUp(h.kind, h.operation)
						if err := h.try(t, c); err != nil {
							t.Fatal(err)
						}
						late := args()
						if h.between != nil {
							w.srv.Do(h.between...)
						}
						state := func() string {
							return fmt.Sprint(w.srv.Do("GET", "job"), w.srv.Do("ZRANGE", "{job}:timeout", "0", "-1", "WITHSCORES"))
						}
						w.sleep(after)
						before := state()
						w.srv.Do(late...)
						if got := state(); got != before {
							t.Errorf("a late %s makes %s of %s", h.operation, got, before)
						}
					})
				})
			}
		}
	}
}

// A server whose clock says something else refuses a request once, and no other after that.
func TestServersOfAnotherTime(t *testing.T) {
	for _, ahead := range []time.Duration{-time.Hour, -time.Minute, 4 * time.Second, time.Minute, time.Hour} {
		t.Run(ahead.String(), func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, w *world) {
				w.srv.Clock(ahead)
				c := w.client(lock.Config{})
				for range 3 {
					lockAndUnlock(t, c.Reentrant("job"))
				}
				want := 3
				if ahead > 5*time.Second {
					want = 4
				}
				n := 0
				for _, cmd := range w.srv.Log() {
					if isScript(cmd, "acquire") {
						n++
					}
				}
				if n != want {
					t.Errorf("%d acquires were sent, want %d", n, want)
				}
			})
		})
	}
}

// An undo that has been repeated takes nothing when it comes once more: neither a place in a queue that its owner has again, nor the
// lock.
func TestHeldUpUndoTakesNothing(t *testing.T) {
	for _, after := range arrivals {
		t.Run(after.String(), func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, w *world) {
				c := w.client(lock.Config{Lease: 3 * time.Hour})
				o := c.NewOwner()
				holder := mustHave(t, c.Fair("job"))
				args := w.holdUp("fair", "undo")
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if _, err := c.Fair("job").Lock(ctx, lock.As(o)); !errors.Is(err, lock.ErrNotAcquired) {
					t.Fatalf("Lock() = %v", err)
				}
				w.sleep(time.Second)
				late := args()
				again := w.waiter(c, lock.As(o))
				w.wantLine(o.String())
				w.sleep(after)
				w.srv.Do(late...)
				w.wantLine(o.String())
				mustUnlock(t, holder)
				lease := <-again
				w.srv.Do(late...)
				w.wantHolds("job", "1", lease)
				mustUnlock(t, lease)
			})
		})
	}
}

// Nor does a downgrade that was undone turn a later hold of its owner into another one.
func TestHeldUpDowngradeTakesNothing(t *testing.T) {
	for _, after := range arrivals {
		t.Run(after.String(), func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, w *world) {
				c := w.client(lock.Config{})
				o := c.NewOwner()
				args := w.holdUp("write", "downgrade")
				_, err := mustWrite(t, c, lock.As(o)).Downgrade(t.Context())
				wantErr(t, "Downgrade", err, lock.ErrUncertain)
				late := args()
				w.sleep(after)
				lease := mustWrite(t, c, lock.As(o))
				w.srv.Do(late...)
				w.wantHolds("job", "1", lease)
				mustUnlock(t, lease)
				w.sleep(latchLife)
				w.free()
			})
		})
	}
}

// heldBack are the acquires of all kinds: of a lock, or of one permit of one. Each returns what gives it back.
func heldBack() map[string]func(ctx context.Context, c *lock.Client) (give func(context.Context) error, err error) {
	type taker = func(ctx context.Context, c *lock.Client) (give func(context.Context) error, err error)
	all := make(map[string]taker)
	for i, name := range []string{"Reentrant", "Fenced", "Fair", "NonReentrant", "NonReentrantFair", "Spin", "Plain", "Read", "Write"} {
		all[name] = func(ctx context.Context, c *lock.Client) (func(context.Context) error, error) {
			lease, err := everyKind(c)[i].(goldenLock).Lock(ctx)
			if err != nil {
				return nil, err
			}
			return lease.Unlock, nil
		}
	}
	all["PermitSemaphore"] = func(ctx context.Context, c *lock.Client) (func(context.Context) error, error) {
		lease, err := c.PermitSemaphore("permits").Acquire(ctx)
		if err != nil {
			return nil, err
		}
		return lease.Unlock, nil
	}
	all["Semaphore"] = func(ctx context.Context, c *lock.Client) (func(context.Context) error, error) {
		err := c.Semaphore("semaphore").Acquire(ctx, 1)
		return func(ctx context.Context) error { return c.Semaphore("semaphore").Release(ctx, 1) }, err
	}
	return all
}

// Four clients wait for a lock, and the server holds their acquires back from its release on: for a while, until nobody wants them any
// more, or for ever. What the clients send is bounded, and the lock is free in the end.
func TestAcquiresHeldBack(t *testing.T) {
	for name, take := range heldBack() {
		for _, ends := range []string{"released", "cancelled", "never"} {
			t.Run(name+", "+ends, func(t *testing.T) {
				inVirtualTime(t, func(t *testing.T, w *world) { w.holdBack(take, ends) })
			})
		}
	}
}

func (w *world) holdBack(take func(ctx context.Context, c *lock.Client) (func(context.Context) error, error), ends string) {
	t := w.t
	holder := w.client(lock.Config{})
	if _, err := holder.Semaphore("semaphore").TrySetPermits(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	if _, err := holder.PermitSemaphore("permits").TrySetPermits(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	give, err := take(t.Context(), holder)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	for range 4 {
		c := w.client(lock.Config{})
		wg.Go(func() {
			if give, err := take(ctx, c); err == nil {
				_ = give(context.WithoutCancel(ctx))
			}
		})
	}
	w.sleep(100 * time.Millisecond)
	gate := make(chan struct{})
	w.srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
		if isAcquire(cmd) {
			return fakeredis.Wait(gate, fakeredis.Run())
		}
		return fakeredis.Run()
	})
	if err := give(t.Context()); err != nil {
		t.Error(err)
	}
	const held = 40 * time.Second // longer than a lease
	for range held / time.Second {
		before := w.srv.Count("EVALSHA") + w.srv.Count("EVAL") + w.srv.Count("HELLO")
		w.sleep(time.Second)
		if n := w.srv.Count("EVALSHA") + w.srv.Count("EVAL") + w.srv.Count("HELLO") - before; n > 20 {
			t.Fatalf("%d scripts and dials in a second", n)
		}
	}
	if ends == "cancelled" {
		cancel()
	}
	if ends != "released" {
		w.sleep(held)
	}
	w.srv.Intercept(nil)
	close(gate)
	wg.Wait()
	again, err := take(t.Context(), holder)
	if err != nil {
		t.Fatal(err)
	}
	if err := again(t.Context()); err != nil {
		t.Error(err)
	}
}
