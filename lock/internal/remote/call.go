package remote

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/netfail"
	"github.com/lockwire/lockwire/lock/internal/kinds"
	"github.com/lockwire/lockwire/resp"
	"github.com/lockwire/lockwire/script"
)

const (
	// apartFor limits the delay of a request without a latch.
	apartFor = time.Second
	// apartMin and apartMax bound the growing pauses between attempts. The attempts end with the caller's context or
	// after apartLimit.
	apartMin, apartMax = 10 * time.Millisecond, 250 * time.Millisecond
	apartLimit         = 5 * time.Second
)

// Call is a run of a script with several keys. While their slot migrates, a server refuses to run the script as long
// as any key is missing, and the latch and the channel are always missing. The script then runs apart: see
// all_apart.lua.
//
// The source node of a migrating slot cannot create keys, not even a latch. Only a Call with OnSource runs there: without a latch it does no
// harm, and it creates no other key.
type Call struct {
	Script      *script.Script
	Lock        Lock
	Keys        []string
	Args        []any
	OnSource    bool   // may run on the source node of a migrating slot
	NoRetry     bool   // no further attempts here
	LineOnly    bool   // changes the line only: never runs apart, and may run anywhere in a batch
	MayFree     bool   // may free the lock
	FreesAtZero bool   // with MayFree: only if it returns 0
	LockOnly    bool   // if the keys are on two nodes, uses the lock and latches only
	RanApart    *bool  // set to true by a run apart; may be nil
	BeforeRetry func() // called before each request after a refused one; may be nil
	// ForTwoNodes returns a call with the same purpose that can run while the keys are on two nodes, or nil. It is called once, and may be nil.
	ForTwoNodes func(ctx context.Context) *Call
	// Owner and Holds are for a release, which apart does nothing if Owner has fewer than Holds holds on the server. 0 is any number.
	Owner string
	Holds int64
	// MayRunUntil is the server's time in ms until which an earlier request without a latch may still take effect. It is a field of the
	// caller's Owner, whose turn the caller has; nil without an Owner.
	MayRunUntil *int64
}

// Runner runs the scripts of locks.
type Runner struct {
	server   *Server
	clocks   *Clocks
	channels *Channels
	apart    sync.Map // variants of scripts for migrating slots, by the original
}

// NewRunner returns the Runner of s.
func NewRunner(s *Server, clocks *Clocks, channels *Channels) *Runner {
	return &Runner{server: s, clocks: clocks, channels: channels}
}

// RunInTime runs the call that of makes for a last moment, and a new call after one that arrived too late, unless of returns nil.
func (r *Runner) RunInTime(ctx context.Context, name string, of func(last int64) *Call) (resp.Value, error) {
	return r.RunInTimeOn(ctx, r.server.Doer, name, of)
}

// RunInTimeOn is RunInTime on d.
func (r *Runner) RunInTimeOn(ctx context.Context, d conn.Doer, name string, of func(last int64) *Call) (resp.Value, error) {
	for range Arrivals {
		x := of(r.clocks.LastMoment(name))
		if x == nil {
			break
		}
		v, err := r.Run(ctx, d, x)
		if err != nil || !r.clocks.Late(name, v) {
			return v, err
		}
	}
	return resp.Value{}, ErrLate
}

// RunOnServer runs x on the client's server, without a last moment.
func (r *Runner) RunOnServer(ctx context.Context, x *Call) (resp.Value, error) {
	return r.Run(ctx, r.server.Doer, x)
}

// Run runs x on d.
func (r *Runner) Run(ctx context.Context, d conn.Doer, x *Call) (resp.Value, error) {
	ctx = Dividing(ctx)
	v, err := x.Script.Run(ctx, d, x.Keys, x.Args...)
	if !TryAgain(err) {
		return v, err
	}
	return r.RunMigrating(ctx, d, x, err)
}

// RunMigrating runs x after d has refused the keys with err. The error is ErrLate if the last request arrived too late.
func (r *Runner) RunMigrating(ctx context.Context, d conn.Doer, x *Call, err error) (v resp.Value, _ error) {
	if r.server.Spread == nil || x.LineOnly {
		return v, err
	}
	begin, pause := time.Now(), apartMin
	for {
		v, err = r.runApart(ctx, d, x)
		if err == nil && x.mayHaveFreed(v) {
			r.tellSource(ctx, x.Lock)
		}
		switch late, less := errors.Is(err, ErrLate), x.forTwoNodes(ctx, err); {
		case less != nil:
			x = less
		case !TryAgain(err) && !late, x.NoRetry, time.Since(begin) > apartLimit:
			return v, err
		case late && ctx.Err() == nil: // the delay was a pause, and says nothing about the keys
			continue
		case netfail.Sleep(ctx, pause, nil, nil) != nil:
			return v, err
		default:
			pause = min(2*pause, apartMax)
		}
		x.beforeRetry()
		if v, err = x.Script.Run(ctx, d, x.Keys, x.Args...); !TryAgain(err) {
			return v, err
		}
	}
}

// mayHaveFreed reports whether x with the reply v may have freed the lock.
func (x *Call) mayHaveFreed(v resp.Value) bool {
	n, err := v.Int()
	return x.MayFree && !(x.FreesAtZero && (err != nil || n != 0))
}

// errMayRun is the reply to a request while an earlier request of the same owner may still arrive.
const errMayRun = resp.Error("TRYAGAIN an earlier request may still arrive")

// errLeaving is the outcome of a script that would have created a key on the source node of a migrating slot. Such a script
// has changed nothing.
const errLeaving = resp.Error("TRYAGAIN the slot is leaving")

// tooLate begins the reply of all_apart.lua to a request that arrived too late. The script has changed nothing.
const tooLate = "TRYAGAIN it is too late"

// onTwoNodes begins the reply of all_apart.lua on a node that lacks a key. The script has changed nothing.
const onTwoNodes = "TRYAGAIN the keys are on two servers"

// forTwoNodes returns the call of ForTwoNodes, once, if err is about keys on two nodes; else nil.
func (x *Call) forTwoNodes(ctx context.Context, err error) *Call {
	reply, _ := errors.AsType[resp.Error](err)
	less := x.ForTwoNodes
	if less == nil || !strings.HasPrefix(string(reply), onTwoNodes) {
		return nil
	}
	x.ForTwoNodes = nil
	return less(ctx)
}

// WithLockOnly returns a copy of x with LockOnly set.
func (x *Call) WithLockOnly() *Call {
	y := *x
	y.LockOnly = true
	return &y
}

// runApart makes one attempt to run x with the lock as the only key.
func (r *Runner) runApart(ctx context.Context, d conn.Doer, x *Call) (resp.Value, error) {
	others, err := r.keysBeside(ctx, x)
	if err != nil {
		return resp.Value{}, err
	}
	now, err := r.noteExisting(ctx, x.Keys[0], others)
	if err != nil {
		return resp.Value{}, err
	}
	if x.MayRunUntil != nil && now <= *x.MayRunUntil {
		return resp.Value{}, errMayRun
	}
	latest := now + apartFor.Milliseconds()
	if x.MayRunUntil != nil {
		*x.MayRunUntil = latest
	}
	if x.RanApart != nil {
		*x.RanApart = true
	}
	x.beforeRetry()
	v, err := r.apartScript(x.Script).Run(ctx, d, x.Keys[:1], x.apartArgs(latest, others)...)
	switch reply, _ := errors.AsType[resp.Error](err); {
	case TryAgain(err) && strings.HasPrefix(string(reply), tooLate):
		err = ErrLate
	case strings.Contains(string(reply), "non local key"):
		err = errLeaving
	}
	if x.MayRunUntil != nil && (err == nil || !Uncertain(err)) {
		*x.MayRunUntil = 0
	}
	return v, err
}

// otherKey is a key beside the lock that a script may touch.
type otherKey struct {
	name   string
	named  bool  // one of the script's KEYS
	exists int64 // 1 if the key exists somewhere, else 0
}

// apartArgs returns the ARGV of all_apart.lua, with the last moment latest, and those of the script of x.
func (x *Call) apartArgs(latest int64, others []otherKey) []any {
	holds := any("")
	if x.Holds > 1 { // a repeat of the last release finds nothing to release
		holds = x.Holds
	}
	args := []any{latest, x.OnSource, x.Owner, holds, len(others)}
	for _, key := range others {
		note := key.exists
		if !key.named {
			note += 2
		}
		if x.LockOnly && !strings.HasPrefix(key.name, kinds.LatchPrefix+":") {
			note += 4
		}
		args = append(args, key.name, note)
	}
	return append(args, x.Args...)
}

// beforeRetry calls BeforeRetry.
func (x *Call) beforeRetry() {
	if x.BeforeRetry != nil {
		x.BeforeRetry()
	}
}

// keysBeside returns the keys that the script may touch beside the lock: its KEYS, and the leases of readers. A line on another
// server would keep the script from running: all listeners are told instead.
func (r *Runner) keysBeside(ctx context.Context, x *Call) (others []otherKey, err error) {
	for _, key := range x.Keys[1:] {
		others = append(others, otherKey{name: key, named: true})
	}
	if n := len(others); n > 0 && others[n-1].name == x.Lock.Line {
		others = others[:n-1]
	}
	if !x.Lock.Readers {
		return others, nil
	}
	holds, err := r.readLeases(ctx, x.Lock.Name)
	for _, key := range holds {
		others = append(others, otherKey{name: key})
	}
	return others, err
}

// noteExisting notes which of keys exist on either node of the slot, and returns the time of the lock's server in ms.
func (r *Runner) noteExisting(ctx context.Context, lock string, keys []otherKey) (now int64, err error) {
	looks := []script.Call{kinds.Look.Get().Call([]string{lock})}
	for _, key := range keys {
		looks = append(looks, kinds.Look.Get().Call([]string{key.name}))
	}
	replies, err := script.RunBatch(ctx, r.server.Doer, looks)
	if err != nil {
		return 0, err
	}
	for i, reply := range replies {
		there, err := reply.At(0).Int()
		if err = cmp.Or(reply.Err(), err); err != nil {
			return 0, err
		}
		if i > 0 {
			keys[i-1].exists = there
		}
	}
	return replies[0].At(1).Int()
}

// tellSource publishes on the source node of a migrating slot for waiters on the target node: shard channels stay
// with the source until the end of the migration. Queued waiters look by themselves.
func (r *Runner) tellSource(ctx context.Context, l Lock) {
	if r.channels.Publishing(l.Silent) != ShardPublish || l.Queued {
		return
	}
	if _, err := r.server.Doer.Send(ctx, resp.Cmd(ShardPublish, l.Channel, l.Message)); err != nil {
		r.server.Log.WarnOf(l.Name, l.Kind, "", "waiters are not woken by messages, and look now and then", "error", err)
	}
}

// apartScript returns s preceded by all_apart.lua.
func (r *Runner) apartScript(s *script.Script) *script.Script {
	variant, ok := r.apart.Load(s)
	if !ok {
		variant, _ = r.apart.LoadOrStore(s, kinds.Apart(s))
	}
	return variant.(*script.Script)
}

// readLeases returns the lease keys of all readers of a read-write lock.
func (r *Runner) readLeases(ctx context.Context, name string) (keys []string, err error) {
	fields, err := r.server.Doer.Send(ctx, resp.Cmd("HGETALL", name))
	if err != nil {
		return nil, err
	}
	pairs, err := fields.Pairs()
	if err != nil {
		return nil, err
	}
	for field, value := range pairs {
		owner, bad := field.Text()
		text, worse := value.Text()
		if bad != nil || worse != nil {
			return nil, fmt.Errorf("lock: unexpected reply to HGETALL")
		}
		count, _ := strconv.Atoi(text) // 0 for "mode"
		keys = append(keys, kinds.ReadLeases(name, owner, min(int64(count), maxHolds))...)
	}
	return keys, nil
}

// maxHolds limits the leases examined per reader.
const maxHolds = 10_000
