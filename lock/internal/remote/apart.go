package remote

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

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

// The replies to a request apart that has changed nothing. errMayRun and errLeaving stand for replies; tooLate and onTwoNodes begin replies of
// all_apart.lua.
const (
	errMayRun  = resp.Error("TRYAGAIN an earlier request may still arrive")
	errLeaving = resp.Error("TRYAGAIN the slot is leaving") // the script would have created a key on the source node
	tooLate    = "TRYAGAIN it is too late"
	onTwoNodes = "TRYAGAIN the keys are on two servers" // the node lacks a key
)

// Apart says how a [Call] runs apart. While the slot of its keys migrates, a server refuses the script as long as any key is missing, and the
// latch and the channel are always missing. Apart, the lock is the only key: see all_apart.lua.
type Apart struct {
	OnSource    bool  // may run on the source node of the slot, where no key can be created: needs no latch, and creates no other key
	MayFree     bool  // may free the lock, or let others share it, with any reply
	FreesAtZero bool  // may free the lock, but only with the reply 0
	SharesAtNil bool  // with the reply nil, others may share the lock: the next in a line would be called
	Ran         *bool // set to true before a request apart; may be nil
	// MayRunUntil is the server's time in ms until which an earlier request without a latch may still take effect. It is a field of the
	// caller's Owner, whose turn the caller has; nil without an Owner.
	MayRunUntil *int64
	// Of a release with several holds: the script does nothing if Owner has fewer than Holds on the server. 0 is any number.
	Owner string
	Holds int64
	// ForTwoNodes changes the call into one with the same purpose that can run while the keys are on two nodes, and reports false if there is
	// none. It is called once, and may be nil.
	ForTwoNodes func(ctx context.Context, x *Call) bool
	LockOnly    bool // if the keys are on two nodes, uses the lock and latches only
}

// RunMigrating runs x after a server has refused the keys with err. The error is ErrLate if the last request arrived too late.
func (r *Runner) RunMigrating(ctx context.Context, x *Call, err error) (v resp.Value, _ error) {
	if r.server.Spread == nil || x.LineOnly {
		return v, err
	}
	begin, pause := time.Now(), apartMin
	for {
		v, err = r.runApart(ctx, x)
		n, bad := v.Int()
		if err == nil && (x.Apart.MayFree || x.Apart.FreesAtZero && bad == nil && n == 0 || x.Apart.SharesAtNil && v.IsNull()) {
			r.tell(ctx, x)
		}
		switch late := errors.Is(err, ErrLate); {
		case x.forTwoNodes(ctx, err):
		case !TryAgain(err) && !late, x.NoRetry, time.Since(begin) > apartLimit:
			return v, err
		case late && ctx.Err() == nil: // the delay was a pause, and says nothing about the keys
			continue
		case netfail.Sleep(ctx, pause) != nil:
			return v, err
		default:
			pause = min(2*pause, apartMax)
		}
		if v, err = r.send(ctx, x, x.Script, x.Keys, x.Args); !TryAgain(err) {
			return v, err
		}
	}
}

// forTwoNodes calls ForTwoNodes, once, if err is about keys on two nodes. It reports whether x has changed.
func (x *Call) forTwoNodes(ctx context.Context, err error) bool {
	reply, _ := errors.AsType[resp.Error](err)
	change := x.Apart.ForTwoNodes
	if change == nil || !strings.HasPrefix(string(reply), onTwoNodes) {
		return false
	}
	x.Apart.ForTwoNodes = nil
	return change(ctx, x)
}

// runApart makes one attempt to run x with the lock as the only key.
func (r *Runner) runApart(ctx context.Context, x *Call) (resp.Value, error) {
	others, err := r.keysBeside(ctx, x)
	if err != nil {
		return resp.Value{}, err
	}
	now, err := r.noteExisting(ctx, x.Keys[0], others)
	if err != nil {
		return resp.Value{}, err
	}
	mayRunUntil := cmp.Or(x.Apart.MayRunUntil, new(int64))
	if now <= *mayRunUntil {
		return resp.Value{}, errMayRun
	}
	latest := now + apartFor.Milliseconds()
	*mayRunUntil, *cmp.Or(x.Apart.Ran, new(bool)) = latest, true
	v, err := r.send(ctx, x, r.apartScript(x.Script), x.Keys[:1], x.apartArgs(latest, others))
	switch reply, _ := errors.AsType[resp.Error](err); {
	case TryAgain(err) && strings.HasPrefix(string(reply), tooLate):
		err = ErrLate
	case strings.Contains(string(reply), "non local key"):
		err = errLeaving
	}
	if err == nil || !Uncertain(err) {
		*mayRunUntil = 0
	}
	return v, err
}

// otherKey is a key beside the lock that a script may touch.
type otherKey struct {
	name string
	note int64 // for all_apart.lua: a sum of the following
}

const exists, unnamed, spared = 1, 2, 4 // it is on a node; it is none of the script's KEYS; the script can do without it

// apartArgs returns the ARGV of all_apart.lua, with the last moment latest, and those of the script of x.
func (x *Call) apartArgs(latest int64, others []otherKey) []any {
	holds := any("")
	if x.Apart.Holds > 1 { // a repeat of the last release finds nothing to release
		holds = x.Apart.Holds
	}
	args := []any{latest, x.Apart.OnSource, x.Apart.Owner, holds, len(others)}
	for _, key := range others {
		if x.Apart.LockOnly && !strings.HasPrefix(key.name, kinds.LatchPrefix+":") {
			key.note += spared
		}
		args = append(args, key.name, key.note)
	}
	return append(args, x.Args...)
}

// keysBeside returns the keys that the script may touch beside the lock: its KEYS, and the leases of readers. A line on another
// server would keep the script from running: all listeners are told instead.
func (r *Runner) keysBeside(ctx context.Context, x *Call) (others []otherKey, err error) {
	for _, key := range x.Keys[1:] {
		others = append(others, otherKey{name: key})
	}
	if n := len(others); n > 0 && others[n-1].name == x.Lock.Line {
		others = others[:n-1]
	}
	if !x.Lock.Readers {
		return others, nil
	}
	holds, err := r.readLeases(ctx, x.Lock.Name)
	for _, key := range holds {
		others = append(others, otherKey{key, unnamed})
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
		there, err := reply.At(0).Int() // 0 or 1
		if err = cmp.Or(reply.Err(), err); err != nil {
			return 0, err
		}
		if i > 0 {
			keys[i-1].note += exists * there
		}
	}
	return replies[0].At(1).Int()
}

// tell tells those who wait for the lock of x, which may be free or shared now, what the script of x has not told them:
//
//   - On the target node of a migrating slot the script reaches nobody by a shard channel: all those stay with the source until the end of the
//     migration.
//   - Without the queue of a fair lock, which is on another node, the script knows nobody.
func (r *Runner) tell(ctx context.Context, x *Call) {
	l := x.Lock
	publish := r.channels.Publishing(l.Silent)
	if publish != ShardPublish && !(l.Queued && x.Apart.LockOnly) {
		return
	}
	channels, err := r.toTell(ctx, l)
	for _, channel := range channels {
		var told resp.Value
		told, err = r.server.Doer.Send(ctx, resp.Cmd(publish, channel, l.Message))
		if listeners, _ := told.Int(); err != nil || listeners > 0 || publish != ShardPublish { // else nobody knows all listeners
			break
		}
	}
	if err != nil {
		r.server.Log.WarnOf(l.Name, l.KindName, "", "waiters are not woken by messages, and look now and then", "error", err)
	}
}

// mostTold limits the waiters of a queue that are told: more than one only while nobody listens for those in front.
const mostTold = 100

// toTell returns the channels of those who wait for l, in the order in which they are told until one listens.
func (r *Runner) toTell(ctx context.Context, l Lock) (channels []string, err error) {
	if !l.Queued {
		return []string{l.Channel}, nil
	}
	queue, err := r.server.Doer.Send(ctx, resp.Cmd("LRANGE", kinds.Queue(l.Name), 0, mostTold-1))
	for owner := range queue.All() {
		if name, bad := owner.Text(); bad == nil {
			channels = append(channels, l.Channel+":"+name)
		}
	}
	return channels, err
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
