package lock_test

import (
	"context"
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
	"readwrite.txt":    {differs: readWriteDifferences},
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
