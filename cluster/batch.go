package cluster

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/resp"
)

// SendBatch sends each command to the node that serves its first key, or its routing key, and returns their replies in the
// order of cmds. Those for one node are sent next to each other and in their order, over one connection; nodes are served at
// the same time. A command without a key goes with the one in front of it, or if there is none with the first one that has
// a key. Error replies are values.
//
// Commands whose reply says that they were not executed are repeated by themselves, as for Send, behind the others then;
// what their last reply says stands. With an error the replies are those of the first commands in the list, as far as their
// outcome is known. If more than that is known the error holds a *BatchError, which has the outcome of every command.
func (c *Cluster) SendBatch(ctx context.Context, cmds []resp.Command) ([]resp.Value, error) {
	if len(cmds) == 0 {
		return nil, nil
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
	errs    []error // of those that have no reply
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
	b.values, b.errs = make([]resp.Value, len(b.cmds)), make([]error, len(b.cmds))
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
		err := b.errs[i]
		if err == nil {
			err = b.values[i].Err()
		}
		if err == nil {
			continue
		}
		d := b.decide(b.targets[i], err)
		if d.action == stop {
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
		pending = append(pending, i)
	}
	if why == nil {
		return nil
	}
	b.history = h
	if waited := b.pause(first, where, why); waited != nil {
		for _, i := range pending {
			if b.errs[i] != nil {
				b.errs[i] = waited
			}
		}
		return nil
	}
	b.retarget(repeats)
	return pending
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

// retarget finds the next targets. Commands without a key stay together.
func (b *batch) retarget(repeats []repeat) {
	keyless := b.c.targetOf(anySlot)
	for _, r := range repeats {
		next := b.target(r.d, b.targets[r.i])
		if next.slot == anySlot && r.d.action != ask && r.d.action != follow {
			next = keyless
		}
		b.targets[r.i] = next
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
