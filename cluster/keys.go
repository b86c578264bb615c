package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/netfail"
	"github.com/lockwire/lockwire/resp"
)

// MGet returns the values of keys, in their order: a string, or a null for a missing key. The keys may be in any slots.
//
//	names, err := resp.Each[*string](c.MGet(ctx, keys))
//
// # Several slots
//
// MGet, MSet, Del, Unlink and Exists send one command for each slot, all in one batch, and to all nodes at the same time.
// Each of these commands is atomic, and all together are not. While a slot moves they ask for its keys one by one.
//
// If some keys fail, the other keys are done nevertheless, and the error is a [*BatchError]: At(i) is the outcome of
// keys[i]. If all keys fail for one reason, that reason is the error. A malformed reply is an error for the keys of its
// command, which may have run. If the call ends during a temporary refusal of a key, the error of the key matches both the
// end and the refusal. No error contains a key.
func (c *Cluster) MGet(ctx context.Context, keys []string) ([]resp.Value, error) {
	return multiKey{c: c, name: "MGET", words: keys, per: 1}.run(ctx)
}

// MSet sets keys to values, which alternate in pairs as Fields returns them: c.MSet(ctx, resp.Fields(m)). The keys may be
// in any slots; see MGet. A later value for the same key counts. An odd number of pairs is refused.
func (c *Cluster) MSet(ctx context.Context, pairs []string) error {
	m := multiKey{c: c, name: "MSET", words: pairs, per: 2}
	if len(pairs)%2 != 0 {
		return refused(m.name, 0, errors.New("cluster: a key without a value"))
	}
	_, err := m.run(ctx)
	return err
}

// Del deletes keys and returns the number of keys that existed. The keys may be in any slots; see MGet. With an error the
// number is about the keys whose outcome is known.
func (c *Cluster) Del(ctx context.Context, keys []string) (int64, error) {
	return multiKey{c: c, name: "DEL", words: keys, per: 1}.count(ctx)
}

// Unlink is Del, except that the server frees the memory later.
func (c *Cluster) Unlink(ctx context.Context, keys []string) (int64, error) {
	return multiKey{c: c, name: "UNLINK", words: keys, per: 1}.count(ctx)
}

// Exists returns the number of keys that exist; a key given twice counts twice. The keys may be in any slots; see MGet.
// With an error the number is about the keys whose outcome is known.
func (c *Cluster) Exists(ctx context.Context, keys []string) (int64, error) {
	return multiKey{c: c, name: "EXISTS", words: keys, per: 1}.count(ctx)
}

// multiKey is a command on keys in several slots.
type multiKey struct {
	c      *Cluster
	reader chooser // nil: the masters
	name   string
	words  []string // the keys, with MSET each followed by its value
	per    int      // words of a key
}

// count returns the sum of the replies. The reply to a command counts once, for its first key.
func (m multiKey) count(ctx context.Context) (sum int64, err error) {
	replies, err := m.run(ctx)
	for _, v := range replies {
		if n, bad := v.Int(); bad == nil {
			sum += n
		}
	}
	return sum, err
}

// run returns one value for each key: an element of the reply of MGET; else the reply, for the first key of a command,
// and null for its further keys. On an error the values of the keys that have failed are null.
func (m multiKey) run(ctx context.Context) (_ []resp.Value, failed error) {
	keys := len(m.words) / m.per
	if keys == 0 {
		return nil, nil
	}
	o := BatchError{ofKeys: true, values: make([]resp.Value, keys), errs: make([]error, keys)}
	parts := m.bySlot()
	start := conn.CommandStart{Name: m.name, Count: len(parts)}
	if len(parts) > 1 {
		start.Batch = conn.Pipeline
	}
	ctx, traced := conn.StartCall(ctx, m.c, start)
	defer func() { traced.End(ctx, failed) }()
	moving := m.send(context.WithValue(ctx, conn.NoTryAgain, true), &o, parts, true)
	if len(moving) > 0 {
		m.send(ctx, &o, moving, false)
	}
	return o.values, o.orNil()
}

// bySlot returns the indexes of the keys of each slot, in the order of the first keys.
func (m multiKey) bySlot() (parts [][]int) {
	var slots []int
	of := make(map[int][]int)
	for i := range len(m.words) / m.per {
		slot := Slot(m.words[i*m.per])
		if of[slot] == nil {
			slots = append(slots, slot)
		}
		of[slot] = append(of[slot], i)
	}
	for _, slot := range slots {
		parts = append(parts, of[slot])
	}
	return parts
}

// send sends one command for each part in one batch, and records the outcomes in o. With split, it leaves out the commands
// refused because their slot moves, and returns their keys as parts of one key.
func (m multiKey) send(ctx context.Context, o *BatchError, parts [][]int, split bool) (moving [][]int) {
	cmds := make([]resp.Command, len(parts))
	for p, part := range parts {
		words := []string{m.name}
		for _, i := range part {
			words = append(words, m.words[i*m.per:(i+1)*m.per]...)
		}
		cmds[p] = resp.CmdStrings(words)
	}
	replies, err := m.c.sendBatch(ctx, cmds, m.reader)
	over := make(map[error]error)
	for p, part := range parts {
		v, err := conn.Outcome(replies, err, p)
		if err == nil {
			err = m.replyError(ctx, v.Err(), over)
		}
		if split && errors.Is(err, resp.ErrTryAgain) && !isTransport(err) {
			moving = slices.AppendSeq(moving, slices.Chunk(part, 1))
			continue
		}
		m.record(o, part, v, err)
	}
	return moving
}

// replyError returns the error of a command with the error reply refusal, or nil without one. A temporary refusal would
// have been repeated; if the call ended first, the error contains its end, too. over caches these errors, so that equal
// refusals have the same error.
func (m multiKey) replyError(ctx context.Context, refusal error, over map[error]error) error {
	var reason error
	switch {
	case refusal == nil || judge(attempt{err: refusal}).action == stop:
		return refusal
	case ctx.Err() != nil:
		reason = netfail.Ended(ctx)
	case m.c.isClosed():
		reason = conn.ErrClosed
	default:
		return refusal
	}
	if over[refusal] == nil {
		over[refusal] = endedError(m.name, reason, refusal)
	}
	return over[refusal]
}

// record notes the outcome of a command in the outcomes of its keys.
func (m multiKey) record(o *BatchError, part []int, v resp.Value, err error) {
	if err == nil && !m.fits(v, len(part)) {
		err = fmt.Errorf("cluster: malformed reply to %s", m.name)
	}
	for at, i := range part {
		switch {
		case err != nil:
			o.errs[i] = err
		case m.name == "MGET":
			o.values[i] = v.At(at)
		case at == 0:
			o.values[i] = v
		}
	}
}

// fits reports whether v is a reply to a command on a number of keys.
func (m multiKey) fits(v resp.Value, keys int) bool {
	switch m.name {
	case "MGET":
		return v.Kind() == resp.Array && v.Len() == keys
	case "MSET":
		text, err := v.Text()
		return err == nil && text == "OK"
	}
	_, ok := integer(v, keys)
	return ok
}

// orNil returns nil if no key failed, the common reason if all keys failed for the same one, and otherwise e.
func (e *BatchError) orNil() error {
	failed := 0
	switch e.causes, failed = distinct(e.errs); {
	case failed == 0:
		return nil
	case failed == len(e.errs) && len(e.causes) == 1:
		return e.causes[0]
	}
	return e
}
