package lock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockwire/lockwire/lock/internal/kinds"
	"github.com/lockwire/lockwire/lock/internal/processes"
	"github.com/lockwire/lockwire/lock/internal/remote"
	"github.com/lockwire/lockwire/resp"
)

// Inspection is the state of a lock of any kind, for somebody who knows nothing but its name.
type Inspection struct {
	Name string
	// Shape is the kind of the lock by its content; "" if no lock of this name is held and no permits are set up. A
	// [Semaphore] and a [CountDownLatch] are ShapeNumber, which may also be any other number. ShapeOther is no lock.
	Shape Shape
	// Info is as from the Info of the lock's kind, for a [ReadWrite] lock of both halves. A ShapeNumber is never Locked, and
	// Permits.Free is the number.
	Info Info
	// Clients are the processes behind Info.Holders and Info.Queue as far as known: each client once, in this order.
	// The owners of [Plain] locks, of permits, and of the rest of an [AtLeast] name no client.
	Clients []ClientProcess
	// ClientsErr is why the server did not list its connections, or nil.
	ClientsErr error
	// Listening is the number of clients listening for a release, each with any number of waiters: at present, or
	// within the last seconds. The waiters of [Spin] and Plain locks do not listen, the waiters of
	// a [Fair] lock are in Info.Queue. Listening is negative if the server did not tell.
	Listening int
}

// ShapeNumber is a number: a [Semaphore], a [CountDownLatch], or something else. List does not yield it.
const ShapeNumber Shape = "number"

// ShapeOther is a key that holds something else than a lock: an acquire of this name is [ErrWrongType]. List does not yield it.
const ShapeOther Shape = "other"

// ClientProcess is the process behind an owner of a lock.
type ClientProcess struct {
	ID string // the first half of the owners: see [Client.ID]
	// Connected reports whether a connection to the lock's server has a name with the ID. Redisson's clients, and clients
	// with conn.Config.NoIdentity, have no such names and are never Connected.
	Connected bool
	Name      string        // see Config.Name
	Addr      string        // of the process as seen by the server, of its oldest connection
	Age       time.Duration // of this connection
}

// Inspect returns the state of the lock with the given name, whatever its kind, also of Redisson's clients. The parts
// of an Inspection are read one after another, in a few requests to the server of the lock. [Client.Latches] returns the keys that
// requests about the lock have left.
func (c *Client) Inspect(ctx context.Context, name string) (Inspection, error) {
	seen, err := c.inspect(ctx, name)
	if err != nil {
		return Inspection{}, err
	}
	ctx = remote.Patient(ctx)
	seen.Listening = c.listening(ctx, &seen)
	seen.Clients, seen.ClientsErr = c.processes(ctx, &seen)
	return seen, nil
}

// mostLooks limits the attempts to look at a key that changes its kind in between.
const mostLooks = 3

// inspect finds out the kind of a lock and its Info.
func (c *Client) inspect(ctx context.Context, name string) (Inspection, error) {
	ctx = remote.Patient(ctx)
	seen := Inspection{Name: name}
	if err := checkName(name); err != nil {
		return seen, c.about(name, err)
	}
	for range mostLooks {
		text, err := remote.Text(c.scripts.Run(ctx, shapeCall(name)))
		if err != nil {
			return seen, c.failed(name, err)
		}
		k := Shape(text).kind()
		if k == nil {
			return c.inspectNumber(ctx, name)
		}
		t := newTarget(k, name)
		v, err := c.scripts.Run(ctx, t.infoCall())
		if reply, _ := errors.AsType[resp.Error](err); remote.WrongType(reply) {
			continue
		}
		if err != nil {
			return seen, c.failed(name, err)
		}
		if seen.Info, err = k.parseBothHalves(v); seen.Info.Locked || seen.Info.Permits.Set { // else released in between
			seen.Shape = Shape(text)
		}
		return seen, err
	}
	return seen, c.about(name, ErrWrongType)
}

// inspectNumber is inspect for a key that is no lock: a number may be a semaphore or a latch.
func (c *Client) inspectNumber(ctx context.Context, name string) (Inspection, error) {
	seen := Inspection{Name: name}
	v, err := c.server.Send(ctx, resp.Cmd("GET", name))
	reply, _ := errors.AsType[resp.Error](err)
	n, other := v.Int()
	switch {
	case remote.WrongType(reply):
		seen.Shape = ShapeOther
	case err != nil:
		return seen, c.failed(name, err)
	case v.IsNull():
	case other != nil:
		seen.Shape = ShapeOther
	default:
		seen.Shape, seen.Info.Permits = ShapeNumber, Permits{Set: true, Free: int(n)}
	}
	return seen, nil
}

// listening returns the number of clients that listen for a release, or -1.
func (c *Client) listening(ctx context.Context, i *Inspection) int {
	k := cmp.Or(i.Shape.kind(), reentrantKind.Get())
	if i.Shape == ShapeNumber {
		k = permitsKind.Get()
	}
	t := newTarget(k, i.Name)
	command := "NUMSUB"
	if c.publishing(&t) == remote.ShardPublish {
		command = "SHARDNUMSUB"
	}
	v, err := c.server.Send(ctx, resp.Cmd("PUBSUB", command, t.Channel).On(i.Name))
	if n, other := v.At(1).Int(); err == nil && other == nil {
		return int(n)
	}
	return -1
}

// processes returns the clients behind the holders and the queue of a lock.
func (c *Client) processes(ctx context.Context, i *Inspection) ([]ClientProcess, error) {
	var list []ClientProcess
	known := make(map[string]int)
	note := func(owner string) {
		id, _, ok := strings.Cut(owner, ":")
		_, rests := predecessor(owner)
		if _, twice := known[id]; ok && !twice && !rests {
			known[id] = len(list)
			list = append(list, ClientProcess{ID: id})
		}
	}
	for _, h := range i.Info.Holders {
		note(h.Owner)
	}
	for _, w := range i.Info.Queue {
		note(w.Owner)
	}
	if len(list) == 0 {
		return nil, nil
	}
	text, err := remote.Text(c.server.Send(ctx, resp.Cmd("CLIENT", "LIST").On(i.Name)))
	if err != nil {
		return list, serverError(err)
	}
	for p := range processes.Connected(text) {
		if n, ok := known[p.ID]; ok && (!list[n].Connected || p.Age > list[n].Age) {
			list[n] = ClientProcess{ID: p.ID, Connected: true, Name: p.Name, Addr: p.Addr, Age: p.Age}
		}
	}
	return list, nil
}

// ForceUnlockOwner frees the lock with the given name, of any kind, from the given owner, and reports whether the
// owner had the lock. A script compares the owner and frees the lock in one step, so another holder is never hit: a
// lock that has passed on in the meantime stays. All holds of the owner end; other readers and other permits stay,
// and so does what a writer reads beneath its write lock.
//
// owner is written as in [Holder]: for a writer with ":write" at its end, for a [PermitSemaphore] the id of a permit.
// Holders are told as by [Handle.ForceUnlock]. ForceUnlockOwner returns [ErrWrongType] for a key that holds no lock and
// no number.
func (c *Client) ForceUnlockOwner(ctx context.Context, name, owner string) (bool, error) {
	seen, err := c.inspect(ctx, name)
	switch {
	case err != nil || seen.Shape == ShapeNumber:
		return false, err
	case seen.Shape == ShapeFasterMulti:
		return false, c.invalid(name, "ForceUnlockOwner of a FasterMulti; ForceUnlock frees its values")
	case seen.Shape == ShapeOther:
		return false, c.about(name, fmt.Errorf("%w, and no lock", ErrWrongType))
	case !slices.ContainsFunc(seen.Info.Holders, func(h Holder) bool { return h.Owner == owner }):
		c.announceForced(ctx, name, "") // perhaps freed by an earlier call without an answer
		return false, nil
	}
	k := seen.Shape.kind()
	if k.twin != nil && !strings.HasSuffix(owner, k.Suffix) {
		k = k.twin
	}
	h := c.handle(k, name)
	if err := c.channels.Settle(ctx, h.target.Lock); err != nil {
		return false, c.about(name, err)
	}
	holds := c.table.holdsOf(h.target.heldAs(), owner, nil)
	if k.permits {
		s := PermitSemaphore{permitCount{h}}
		if owner, err = s.owner([]string{owner}); err != nil {
			return false, err
		}
		holds = s.leasesOf(owner)
	}
	v, err := h.takeBack(ctx, owner, seen.readHolds(owner))
	return h.forced(ctx, v, err, holds)
}

// takeBack takes all holds of an owner back, as the undo of an acquire does. reads is the number of read holds.
func (h *Handle) takeBack(ctx context.Context, owner string, reads int64) (resp.Value, error) {
	c, t := h.client, &h.target
	a := acquire{hold: hold{client: c, target: t, owner: owner}, lease: c.cfg.Lease, latch: newLatch(t)}
	return c.scripts.RunInTime(ctx, t.Name, func(last int64) *remote.Call {
		a.lastMoment = last
		x := a.undoCall(nil, 0)
		x.Keys = t.ownerKeys(owner, max(1, reads), a.latch)
		return x
	})
}

// readHolds returns the number of read holds of an owner, or of a writer beneath its write lock.
func (i *Inspection) readHolds(owner string) int64 {
	for _, h := range i.Info.Holders {
		if h.Owner == strings.TrimSuffix(owner, kinds.WriteSuffix) {
			return h.Holds
		}
	}
	return 0
}
