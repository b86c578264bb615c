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

// goldenFiles are the files of testdata/redisson that are replayed. A kind takes part by a line here and its methods in
// goldenMethods.
var goldenFiles = map[string]goldenFile{
	"lock.txt":         {},
	"watchdog.txt":     {virtual: true},
	"spin.txt":         {},
	"semaphore.txt":    {},
	"pexsem.txt":       {},
	"latch.txt":        {},
	"fenced.txt":       {cfg: lock.Config{PlainTokens: true}, differs: fencedDifferences},
	"readwrite.txt":    {stands: "24", differs: readWriteDifferences},
	"watchdog-rw.txt":  {virtual: true, differs: watchdogReadWriteDifferences},
	"fair.txt":         {inLine: true, differs: fairDifferences},
	"nonreentrant.txt": {differs: nonReentrantDifferences},
	"multi.txt":        {anyOrder: true},
}

// fencedDifferences are due to that a further hold shares the token of the first, which the fence has seen.
var fencedDifferences = []difference{
	fencedDiffers("2", "A1=2", 1, map[string]string{"2": "1"}),
	fencedDiffers("3", "A1=2", 1, map[string]string{"3": "1"}),
	fencedDiffers("4", "A1=2", 1, nil),
	fencedDiffers("5", "A1=2", 1, nil),
	fencedDiffers("6", "A1=2", 1, nil),
	fencedDiffers("7", "A1=1", 1, nil),
	fencedDiffers("8", "B1=3", 2, map[string]string{"4": "2", "5": "2", "6": "2"}),
	fencedDiffers("9", "B1=3", 2, map[string]string{"9": "2"}),
	fencedDiffers("10", "B1=2", 2, nil),
	fencedDiffers("11", "B1=2", 2, nil),
	{call: "12", why: "A6: a further hold never shortens the lease", keys: fencedKeys("B1=3", 2)},
	fencedDiffers("13", "A1=1", 3, nil),
	fencedDiffers("14", "A1=1", 3, nil),
	fencedDiffers("15", "A1=1", 3, map[string]string{"15": "3"}),
}

func fencedDiffers(call, hold string, token int, results map[string]string) difference {
	return difference{call: call, why: "§11: a further hold keeps the token of the first", results: results, keys: fencedKeys(hold, token)}
}

func fencedKeys(hold string, token int) []string {
	return []string{"hash g:fen 30000 " + hold, fmt.Sprint("string redisson_lock_token:{g:fen} - ", token)}
}

// fairDifferences are due to that nothing stays of a queue when nobody is left who could take it away: it lasts for a day
// longer than the last one in it counts as alive.
var fairDifferences = []difference{
	fairDiffers("2", "g:fair 30000 A1=1", 86_729_734, "B1", "B1=+329734"),
	fairDiffers("3", "g:fair 30000 A1=1", 87_028_681, "B1 A2", "B1=+329734 A2=+628681"),
	fairDiffers("4", "g:fair 30000 A1=1", 87_028_681, "B1 A2", "B1=+329734 A2=+628681"),
	fairDiffers("5", "g:fair 30000 A1=1", 87_028_681, "B1 A2", "B1=+329734 A2=+628681"),
	fairDiffers("6", "g:fair 30000 A1=2", 87_028_681, "B1 A2", "B1=+329734 A2=+628681"),
	fairDiffers("7", "g:fair 30000 A1=1", 87_028_681, "B1 A2", "B1=+329734 A2=+628681"),
	fairDiffers("8", "g:fair 30000 B1=1", 87_028_681, "A2", "A2=+326153"),
	fairDiffers("12", "g:fair 30000 A1=1", 86_729_729, "B1", "B1=+329729"),
	{call: "15", why: "A13: who has nothing to release is told", results: map[string]string{"15": "error IllegalMonitorStateException"}},
}

var nonReentrantDifferences = []difference{
	fairDiffers("8", "g:nrf 30000 A1=1", 86_729_474, "B1", "B1=+329474"),
}

func fairDiffers(call, hash string, life int, line, times string) difference {
	name, _, _ := strings.Cut(hash, " ")
	return difference{call: call, why: "A18: the keys of the queue expire", keys: []string{
		"hash " + hash,
		fmt.Sprintf("list redisson_lock_queue:{%s} %d %s", name, life, line),
		fmt.Sprintf("zset redisson_lock_timeout:{%s} %d %s", name, life, times),
	}}
}

// goldenFile is how a file is replayed.
type goldenFile struct {
	cfg     lock.Config // but for the lease, which the file names
	inLine  bool        // calls wait all at once, since the server keeps their order
	virtual bool        // in virtual time alone
	stands  string      // number of a call that stands in line before the next step: whether it does changes what that publishes
	// The messages of a step come in any order, since several locks are released at once.
	anyOrder bool
	differs  []difference // where we differ from Redisson on purpose
}

// difference is what a step leaves with us. What is nil is as in the file.
type difference struct {
	call     string            // number of the call
	why      string            // "A6: ...", by the number of the fault that Redisson has there, or of its section
	results  map[string]string // by number of the call
	messages []string
	keys     []string
}

// goldenCall is a call of a file.
type goldenCall struct {
	method string // one word or two, as in goldenMethods
	caller string // A1
	name   string // of the lock
	args   []string
}

// ms is argument i, of milliseconds.
func (c goldenCall) ms(i int) time.Duration {
	n, _ := strconv.Atoi(c.args[i])
	return time.Duration(n) * time.Millisecond
}

// holder is the key of the leases that a caller has of a lock.
func (c goldenCall) holder(lock string) string { return c.caller + " " + lock + " " + c.name }

// goldenMethod does what Redisson's method does, and returns its result as the file has it. ctx does not end.
type goldenMethod func(r *replay, ctx context.Context, call goldenCall) string

// goldenMethods is Redisson's methods, as the files name them, by one word or by two.
var goldenMethods = methods(
	holding("lock", "", func(c *lock.Client, name string) goldenLock { return c.Reentrant(name) }),
	holding("spinlock", "spin", func(c *lock.Client, name string) goldenLock { return c.Spin(name, lock.Backoff{}) }),
	holding("fencedlock", "fenced", openFenced),
	holding("multilock", "multi", openMulti),
	goldenSemaphore, goldenPermits, goldenLatch,
	holding("readlock", "read", goldenRead),
	holding("writelock", "write", goldenWrite),
	holding("fairlock", "fair", func(c *lock.Client, name string) goldenLock { return c.Fair(name) }),
	holding("nrlock", "nr", func(c *lock.Client, name string) goldenLock { return c.NonReentrant(name) }),
	holding("nrfairlock", "nrfair", func(c *lock.Client, name string) goldenLock { return c.NonReentrantFair(name) }),
	map[string]goldenMethod{"fencedtoken": goldenToken, "tryfencedtoken": goldenToken, "fencedget": goldenGetToken},
)

func methods(all ...map[string]goldenMethod) map[string]goldenMethod {
	table := map[string]goldenMethod{}
	for _, some := range all {
		for name, method := range some {
			if table[name] != nil {
				panic("golden method " + name + " is there twice")
			}
			table[name] = method
		}
	}
	return table
}

// goldenLock is a lock of any kind that has a Handle.
type goldenLock interface {
	Lock(ctx context.Context, opts ...lock.Option) (*lock.Lease, error)
	TryLock(ctx context.Context, opts ...lock.Option) (*lock.Lease, error)
	ForceUnlock(ctx context.Context) (bool, error)
	Info(ctx context.Context) (lock.Info, error)
}

// holding is the methods of a kind of lock that is taken by one of the given name, such as fairlock, tryfairlock and unfairlock;
// those that all locks have in common have the word behind them that says of which kind: force fair.
func holding(take, word string, of func(c *lock.Client, name string) goldenLock) map[string]goldenMethod {
	table := map[string]goldenMethod{
		take: func(r *replay, ctx context.Context, call goldenCall) string {
			if _, failed := r.take(of, take, ctx, call, false); failed != "" {
				return failed
			}
			return "locked"
		},
		"try" + take: func(r *replay, ctx context.Context, call goldenCall) string {
			if _, failed := r.take(of, take, ctx, call, true); failed != "" {
				return failed
			}
			return "true"
		},
		"un" + take: func(r *replay, ctx context.Context, call goldenCall) string {
			if held := r.pop(call.holder(take)); held == nil || held.Unlock(ctx) != nil {
				return "error IllegalMonitorStateException"
			}
			return "unlocked"
		},
	}
	for name, method := range map[string]func(ctx context.Context, l goldenLock, owner lock.Owner) string{
		"force": goldenForce,
		"isheld": func(ctx context.Context, l goldenLock, o lock.Owner) string {
			return fmt.Sprint(goldenHolds(ctx, l, o) > 0)
		},
		"holdcount": func(ctx context.Context, l goldenLock, o lock.Owner) string {
			return fmt.Sprint(goldenHolds(ctx, l, o))
		},
		"islocked": goldenIsLocked,
		"ttl":      goldenTTL,
	} {
		table[strings.TrimSuffix(name+" "+word, " ")] = func(r *replay, ctx context.Context, call goldenCall) string {
			return method(ctx, of(r.clients[call.caller[:1]], call.name), r.owners[call.caller])
		}
	}
	return table
}

func goldenForce(ctx context.Context, l goldenLock, _ lock.Owner) string {
	forced, err := l.ForceUnlock(ctx)
	return fmt.Sprint(forced, ifError(err))
}

func goldenIsLocked(ctx context.Context, l goldenLock, _ lock.Owner) string {
	info, err := l.Info(ctx)
	return fmt.Sprint(info.Locked, ifError(err))
}

func goldenTTL(ctx context.Context, l goldenLock, _ lock.Owner) string {
	info, err := l.Info(ctx)
	return fmt.Sprint(info.Remaining.Milliseconds(), ifError(err))
}

// goldenHolds is how often an owner has a lock, -1 if that cannot be found out.
func goldenHolds(ctx context.Context, l goldenLock, owner lock.Owner) int64 {
	info, err := l.Info(ctx)
	if err != nil {
		return -1
	}
	for _, h := range info.Holders {
		if strings.TrimSuffix(h.Owner, ":write") == owner.String() {
			return h.Holds
		}
	}
	return 0
}

func ifError(err error) string {
	if err == nil {
		return ""
	}
	return " " + err.Error()
}

// call does what a line of the file says: caller, method of one word or two, lock, arguments.
func (r *replay) call(line []string) string {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if len(line) > 3 {
		if method := goldenMethods[line[1]+" "+line[2]]; method != nil {
			return method(r, ctx, goldenCall{line[1] + " " + line[2], line[0], line[3], line[4:]})
		}
	}
	method := goldenMethods[line[1]]
	if method == nil {
		return "no method " + line[1]
	}
	return method(r, ctx, goldenCall{line[1], line[0], line[2], line[3:]})
}

// take takes a lock, and says as the file does why it could not. Arguments are, as far as given, how long to wait, if it is
// tried, and the lease.
func (r *replay) take(of func(*lock.Client, string) goldenLock, take string, ctx context.Context, call goldenCall, try bool) (*lock.Lease, string) {
	l := of(r.clients[call.caller[:1]], call.name)
	opts := []lock.Option{lock.As(r.owners[call.caller])}
	if n := len(call.args); n > 1 || n > 0 && !try {
		opts = append(opts, lock.For(call.ms(n-1)))
	}
	acquire := l.Lock
	if try && (len(call.args) == 0 || call.ms(0) == 0) {
		acquire = l.TryLock
	} else if try {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, call.ms(0))
		defer cancel()
	}
	lease, err := acquire(ctx, opts...)
	switch {
	case errors.Is(err, lock.ErrReentry):
		return nil, "error IllegalMonitorStateException"
	case err != nil:
		return nil, "false"
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.leases[call.holder(take)] = append(r.leases[call.holder(take)], lease)
	return lease, ""
}

// pop returns the lease that was taken last, nil if there is none.
func (r *replay) pop(holder string) *lock.Lease {
	r.mu.Lock()
	defer r.mu.Unlock()
	held := r.leases[holder]
	if len(held) == 0 {
		return nil
	}
	r.leases[holder] = held[:len(held)-1]
	return held[len(held)-1]
}

func openFenced(c *lock.Client, name string) goldenLock { return c.Fenced(name) }

// goldenToken is lockAndGetToken. tryLockAndGetToken without a time to wait is the same, although Redisson documents it otherwise.
func goldenToken(r *replay, ctx context.Context, call goldenCall) string {
	lease, failed := r.take(openFenced, "fencedlock", ctx, call, len(call.args) == 2)
	if failed != "" {
		return failed
	}
	return fmt.Sprint(lease.Token())
}

func goldenGetToken(r *replay, ctx context.Context, call goldenCall) string {
	token, err := r.clients[call.caller[:1]].Fenced(call.name).Token(ctx)
	return fmt.Sprint(token, ifError(err))
}

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
