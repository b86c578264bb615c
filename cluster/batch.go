package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/resp"
)

// SendBatch sends each command to the node that serves its first key, or its routing key, and returns their replies in the
// order of cmds. Those for one node are sent next to each other and in their order, over one connection; nodes are served at
// the same time. A command without a key goes with the one in front of it, or if there is none with the first one that has
// a key. Error replies are values.
//
// A batch that ends in WAIT or WAITAOF goes to the node of its first key as a whole, over a connection that nobody shares: what
// such a WAIT counts is who has the commands in front of it. They are sent somewhere else together, if none of them was executed,
// or not at all.
//
// Otherwise commands that were not executed are repeated, as for Send, but never behind a later one with a key in common: commands with
// one key, or one routing key, run in their order whatever happens to its slot. A refused command with such an executed one
// behind it is not repeated: its refusal is its reply, and the caller decides. A redirection that leads nowhere is an error.
// With an error the replies are those of the first commands in the list, as far as their outcome is known. If more than that is
// known the error holds a *BatchError, which has the outcome of every command.
func (c *Cluster) SendBatch(ctx context.Context, cmds []resp.Command) ([]resp.Value, error) {
	switch {
	case len(cmds) == 0:
		return nil, nil
	case waits(cmds):
		return c.sendTogether(ctx, cmds)
	}
	b := batch{call: call{c: c, ctx: ctx, name: commandName(&cmds[0])}, cmds: cmds}
	if err := b.route(); err != nil {
		return nil, err
	}
	if err := conn.CheckBatch(cmds); err != nil {
		return nil, err
	}
	for pending := b.all(); len(pending) > 0; {
		b.send(pending)
		pending = b.next(pending)
	}
	return b.outcome()
}

// BatchError is the error of a batch of which the outcome of some commands, but not of all, is known: other nodes have
// answered, or later ones. errors.Is finds conn.ErrNotSent in it if no command of the batch was sent, and conn.ErrUncertain
// if any was, besides the causes.
type BatchError struct {
	values []resp.Value
	errs   []error // nil where there is a reply
	causes []error // those of errs, each once
}

// Len is the number of commands in the batch.
func (e *BatchError) Len() int { return len(e.errs) }

// At returns the outcome of command i: its reply, which may be an error value, or the error that left it without one, of
// which conn.SafeToRetry tells whether the command may have run.
func (e *BatchError) At(i int) (resp.Value, error) { return e.values[i], e.errs[i] }

// Error tells how many commands have no outcome, and why the first of them.
func (e *BatchError) Error() string {
	missing := 0
	for _, err := range e.errs {
		if err != nil {
			missing++
		}
	}
	return fmt.Sprintf("cluster: %d of %d commands without a reply, the first: %v", missing, len(e.errs), e.causes[0])
}

// Is makes errors.Is find what is said above.
func (e *BatchError) Is(target error) bool {
	sent := false
	for _, err := range e.errs {
		sent = sent || err == nil || !conn.SafeToRetry(err)
	}
	switch target {
	case conn.ErrUncertain:
		return sent
	case conn.ErrNotSent:
		return !sent
	}
	for _, cause := range e.causes {
		if errors.Is(cause, target) {
			return true
		}
	}
	return false
}

// batch is a SendBatch in progress.
type batch struct {
	call
	cmds    []resp.Command
	targets []target // of the next attempt
	values  []resp.Value
	errs    []error     // of those that have no reply
	causes  []error     // as call.cause, of each
	held    []*decision // not to be sent in the next attempt: one in front, with a key in common, goes to another node
}

// route finds the first target of each command.
func (b *batch) route() error {
	slots := make([]int, len(b.cmds))
	last := anySlot
	for i := range b.cmds {
		slot, err := b.c.route(&b.cmds[i])
		if err != nil {
			return err
		}
		if slot == anySlot {
			slot = last
		} else if last == anySlot {
			for j := range i {
				slots[j] = slot
			}
		}
		slots[i], last = slot, slot
	}
	b.targets = make([]target, len(b.cmds))
	t := b.c.table.Load()
	node := t.any() // the same for all, if none has a key
	for i, slot := range slots {
		if slot != anySlot {
			node = t.owner(slot)
		}
		b.targets[i] = target{node: node, slot: slot}
	}
	b.values, b.errs, b.held = make([]resp.Value, len(b.cmds)), make([]error, len(b.cmds)), make([]*decision, len(b.cmds))
	b.causes = make([]error, len(b.cmds))
	return nil
}

func (b *batch) all() []int {
	pending := make([]int, len(b.cmds))
	for i := range pending {
		pending[i] = i
	}
	return pending
}

// send makes an attempt with the commands at the given indexes, at all nodes at the same time.
func (b *batch) send(pending []int) {
	var nodes []*node
	parts := make(map[*node][]int)
	for _, i := range pending {
		if b.held[i] != nil {
			continue
		}
		n := b.targets[i].node
		if parts[n] == nil {
			nodes = append(nodes, n)
		}
		parts[n] = append(parts[n], i)
	}
	var others sync.WaitGroup
	for _, n := range nodes[1:] {
		others.Go(func() { b.sendTo(n, parts[n]) })
	}
	b.sendTo(nodes[0], parts[nodes[0]])
	others.Wait()
}

// sendTo makes an attempt with commands for one node, and notes what became of each.
func (b *batch) sendTo(n *node, part []int) {
	if n == nil {
		for _, i := range part {
			b.errs[i] = b.targets[i].unserved(&b.cmds[i])
		}
		return
	}
	wire := make([]resp.Command, 0, len(part))
	for _, i := range part {
		if b.targets[i].asking {
			wire = append(wire, askingFor(&b.cmds[i]))
		}
		wire = append(wire, b.cmds[i])
	}
	replies, err := n.pool.SendBatch(b.ctx, wire)
	at := 0
	for _, i := range part {
		if b.targets[i].asking {
			at++
		}
		if at < len(replies) {
			b.values[i], b.errs[i] = replies[at], nil
		} else {
			b.errs[i] = err
		}
		at++
	}
}

// repeat is a command that is to be sent again.
type repeat struct {
	i int
	d decision
}

// next decides about each command that was sent, and returns those to be sent again, when it is time for that. However many
// they are, that is one attempt.
func (b *batch) next(sent []int) (pending []int) {
	var repeats []repeat
	var first decision // the one that has to wait longest
	var why error
	var where target
	h := b.history
	h.redirects = 0
	for _, i := range sent {
		if b.held[i] != nil {
			repeats = append(repeats, repeat{i, *b.held[i]})
			continue
		}
		err := b.errs[i]
		if err == nil {
			err = b.values[i].Err()
		}
		if err == nil {
			continue
		}
		d := b.decide(b.targets[i], err, &b.causes[i])
		if d.action == stop {
			if b.errs[i] != nil || leads(err) {
				b.errs[i] = d.err
			}
			continue
		}
		h.failures = b.failures + 1
		if isRedirect(err) {
			h.redirects = b.redirects + 1
		}
		if why == nil || d.weight() > first.weight() {
			first, why, where = d, err, b.targets[i]
		}
		repeats = append(repeats, repeat{i, d})
	}
	if len(repeats) == 0 {
		return nil
	}
	repeats, keys := b.inOrder(repeats)
	for _, r := range repeats {
		pending = append(pending, r.i)
	}
	if len(pending) > 0 && why != nil {
		b.history = h
		if waited := b.pause(first, where, why); waited != nil {
			for _, i := range pending {
				if b.errs[i] != nil || leads(b.values[i].Err()) {
					b.errs[i] = waited
				}
			}
			return nil
		}
	}
	b.retarget(repeats, keys)
	return pending
}

// leads reports whether err is a redirection that is to be followed. Where it leads nowhere it is an error of the call, and
// no reply for the caller.
func leads(err error) bool {
	reply, _ := errors.AsType[resp.Error](err)
	_, ok := reply.Redirect()
	return ok && isRedirect(err)
}

// weight orders decisions by how long they have to wait.
func (d decision) weight() int {
	switch {
	case d.action == relocate:
		return 2
	case d.pause:
		return 1
	}
	return 0
}

// inOrder returns the repeats that can be made without changing the order: behind them no command with a key in common has
// been executed, or may have been. It also returns the keys of all commands.
func (b *batch) inOrder(repeats []repeat) (kept []repeat, keys [][]string) {
	keys = make([][]string, len(b.cmds))
	for i := range keys {
		keys[i] = keysIn(&b.cmds[i], b.targets[i].slot)
	}
	executed := make(map[string]bool)
	last := len(repeats) - 1
	for i := len(b.cmds) - 1; i >= 0 && last >= 0; i-- {
		switch {
		case repeats[last].i == i:
			if !slices.ContainsFunc(keys[i], func(key string) bool { return executed[key] }) {
				kept = append(kept, repeats[last])
			}
			last--
		case b.errs[i] == nil || !conn.SafeToRetry(b.errs[i]):
			for _, key := range keys[i] {
				executed[key] = true
			}
		}
	}
	slices.Reverse(kept)
	return kept, keys
}

// keysIn returns the words of a command that may be keys in a slot: its keys are among them. A word that is none may be too,
// by chance, which does no harm.
func keysIn(cmd *resp.Command, slot int) (keys []string) {
	if slot == anySlot {
		return []string{""} // all commands without a key, in a batch of nothing else
	}
	if key, ok := cmd.Key(); ok {
		keys = append(keys, key)
	}
	at := 0
	for word := range cmd.Args() {
		if at > 0 && Slot(word) == slot {
			keys = append(keys, word)
		}
		at++
	}
	return keys
}

// retarget finds the next targets. Commands without a key stay together. One that has a key in common with another in front of
// it, which goes to another node, is held back until that one is done.
func (b *batch) retarget(repeats []repeat, keys [][]string) {
	keyless := b.c.targetOf(anySlot)
	ahead := make(map[string]*node)
	nowhere := new(node)
	for _, r := range repeats {
		next := b.target(r.d, b.targets[r.i])
		if next.slot == anySlot && r.d.action != ask && r.d.action != follow {
			next = keyless
		}
		n := next.node
		b.held[r.i] = nil
		if slices.ContainsFunc(keys[r.i], func(key string) bool { at, ok := ahead[key]; return ok && at != n }) {
			b.held[r.i], n = &r.d, nowhere
		} else {
			b.targets[r.i] = next
		}
		for _, key := range keys[r.i] {
			ahead[key] = n
		}
	}
}

// outcome is what SendBatch returns.
func (b *batch) outcome() ([]resp.Value, error) {
	known, first := 0, -1
	var causes []error
	for i, err := range b.errs {
		switch {
		case err == nil:
			known++
		case first < 0:
			first = i
			causes = append(causes, err)
		case err != causes[len(causes)-1]:
			causes = append(causes, err)
		}
	}
	switch {
	case first < 0:
		return b.values, nil
	case len(causes) == 1 && known == first && (known == 0 || !conn.SafeToRetry(causes[0])):
		return b.values[:first], causes[0] // nothing more is known
	}
	return b.values[:first], &BatchError{values: b.values, errs: b.errs, causes: causes}
}
