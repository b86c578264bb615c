package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/resp"
)

// SendBatch sends each command to the node that serves its first key, or its routing key, and
// returns the replies in the order of cmds. Error replies are values.
//
//   - Commands for one node are sent next to each other, in their order, over one connection. All
//     nodes are served at the same time.
//   - A command without a key goes with the preceding command. Leading commands without a key go
//     with the first command that has a key.
//   - Commands that were not executed are repeated, as for Send, but never after a later command
//     with a common key. Commands with one key, or one routing key, run in their order even if the
//     slot moves.
//   - A refused command is not repeated if a later command with a common key was executed, or an
//     earlier one was sent and not answered. The refusal is then the reply, and the caller decides.
//     A redirection that leads nowhere is an error.
//
// A batch with WAIT or WAITAOF behind other commands goes to the node of its first key as a whole,
// over an exclusive connection, because WAIT counts the replicas that have the preceding commands
// of its connection. If no command was executed, the whole batch may be sent to another node.
//
// With an error, SendBatch returns the replies to the first commands in the list, up to the first
// unknown outcome. If later outcomes are known, the error contains a *BatchError with the outcome
// of every command.
func (c *Cluster) SendBatch(ctx context.Context, cmds []resp.Command) ([]resp.Value, error) {
	switch {
	case len(cmds) == 0:
		return nil, nil
	case waits(cmds):
		return c.sendTogether(ctx, cmds)
	}
	return c.sendBatch(ctx, cmds, nil)
}

// sendBatch sends a batch. If reader is set, it chooses the first target of each slot that the batch only reads.
func (c *Cluster) sendBatch(ctx context.Context, cmds []resp.Command, reader chooser) ([]resp.Value, error) {
	b := batch{call: call{c: c, ctx: ctx, name: commandName(&cmds[0])}, cmds: cmds, reader: reader}
	if err := b.route(); err != nil {
		return nil, err
	}
	if err := conn.CheckBatch(cmds); err != nil {
		return nil, err
	}
	ctx, traced := conn.StartCommands(ctx, c, cmds, false)
	b.ctx = ctx
	pending := make([]int, len(cmds)) // indexes in cmds
	for i := range pending {
		pending[i] = i
	}
	for len(pending) > 0 {
		b.send(pending)
		pending = b.next(pending)
	}
	values, err := b.outcome()
	traced.End(ctx, err)
	return values, err
}

// BatchError is the error of a batch when the outcomes of some commands are known, but not of all.
// errors.Is finds the causes, and also conn.ErrNotSent if no command of the batch was sent, or
// conn.ErrUncertain if any command was sent.
//
// As the error of MGet and its like it is about keys: command i stands for key i.
type BatchError struct {
	values []resp.Value
	errs   []error // nil for a command with a reply
	causes []error // the distinct errors in errs
	ofKeys bool    // about the keys of a command, not the commands of a batch
}

// Len is the number of commands in the batch.
func (e *BatchError) Len() int { return len(e.errs) }

// At returns the outcome of command i: the reply, which may be an error value, or the reason for a
// missing reply. conn.SafeToRetry(err) reports whether the command certainly did not run.
func (e *BatchError) At(i int) (resp.Value, error) { return e.values[i], e.errs[i] }

// Error returns the number of commands without a reply and the first reason.
func (e *BatchError) Error() string {
	_, missing := distinct(e.errs)
	what := "commands without a reply"
	if e.ofKeys {
		what = "keys have failed"
	}
	return fmt.Sprintf("cluster: %d of %d %s, the first: %v", missing, len(e.errs), what, e.causes[0])
}

// Is implements the matches documented at BatchError.
func (e *BatchError) Is(target error) bool {
	sent := slices.ContainsFunc(e.errs, func(err error) bool { return err == nil || !conn.SafeToRetry(err) })
	switch target {
	case conn.ErrUncertain:
		return sent
	case conn.ErrNotSent:
		return !sent
	}
	return slices.ContainsFunc(e.causes, func(cause error) bool { return errors.Is(cause, target) })
}

// batch is a SendBatch in progress.
type batch struct {
	call
	cmds    []resp.Command
	reader  chooser  // chooses the first target of slots that are only read; nil for the masters
	targets []target // where the next attempt sends each command
	values  []resp.Value
	errs    []error  // why a command has no reply; nil with a reply
	repeats []repeat // of each command; nil before the first failure
}

// repeat is what a batch knows of a command that failed.
type repeat struct {
	decision    decision // about the last attempt
	lastFailure error    // as in call
	keys        []string // all words that may be keys

	// postponed says that the next attempt leaves out the command, because an earlier command with a common key goes to
	// another node.
	postponed bool
}

// route finds the first target of each command.
func (b *batch) route() error {
	slots, err := b.slots()
	if err != nil {
		return err
	}
	b.targets = make([]target, len(b.cmds))
	t := b.c.table.Load()
	writes := make(map[int]bool) // slots that the batch does not only read
	if b.reader != nil {
		for i, slot := range slots {
			writes[slot] = writes[slot] || !isRead(&b.cmds[i])
		}
	}
	at := target{node: t.any(), slot: anySlot} // the same node for all commands if none has a key
	for i, slot := range slots {
		switch {
		case slot == anySlot:
		case b.reader != nil && !writes[slot]:
			at = b.reader(t, slot)
		default:
			at = target{node: t.owner(slot), slot: slot}
		}
		b.targets[i] = at
	}
	b.values, b.errs = make([]resp.Value, len(b.cmds)), make([]error, len(b.cmds))
	return nil
}

// slots returns the slot of each command. A command without a key gets the slot of the command in front, or of the first
// command with a key.
func (b *batch) slots() ([]int, error) {
	slots := make([]int, len(b.cmds))
	for i := range b.cmds {
		slot, err := routeOf(&b.cmds[i], i+1)
		if err != nil {
			return nil, err
		}
		slots[i] = slot
	}
	last := slots[max(0, slices.IndexFunc(slots, func(slot int) bool { return slot != anySlot }))]
	for i, slot := range slots {
		if slot == anySlot {
			slots[i] = last
		}
		last = slots[i]
	}
	return slots, nil
}

// send makes an attempt with the commands at the given indexes, on all nodes at the same time.
func (b *batch) send(pending []int) {
	var nodes []*node
	parts := make(map[*node][]int)
	for _, i := range pending {
		if b.repeats != nil && b.repeats[i].postponed {
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

// chooser chooses the first target for a slot.
type chooser func(t *table, slot int) target

// sendTo makes an attempt with commands for one node, and records the outcomes.
func (b *batch) sendTo(n *node, part []int) {
	if n == nil {
		for _, i := range part {
			b.errs[i] = b.targets[i].unserved(commandName(&b.cmds[i]))
		}
		return
	}
	sent := make([]resp.Command, 0, len(part))
	for _, i := range part {
		if b.targets[i].asking {
			sent = append(sent, askingFor(&b.cmds[i]))
		}
		sent = append(sent, b.cmds[i])
	}
	replies, err := b.targets[part[0]].pool().SendBatch(b.ctx, sent)
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

// next decides about each command of the last attempt. It waits for the next attempt and returns the commands of it. All
// commands together count as one attempt and have one pause, the longest.
func (b *batch) next(sent []int) (pending []int) {
	after, slowest := b.history, -1 // the history with the attempt, and the command with the longest pause
	after.redirects = 0
	for _, i := range sent {
		err := cmp.Or(b.errs[i], b.values[i].Err())
		if err == nil {
			continue
		}
		if b.repeats == nil {
			b.prepareRepeats()
		}
		if r := &b.repeats[i]; !r.postponed {
			if r.decision = b.decide(b.targets[i], err, &r.lastFailure); r.decision.action == stop {
				b.fail(i, r.decision.err)
				continue
			}
			after = after.max(r.decision.after)
			if slowest < 0 || r.decision.weight() > b.repeats[slowest].decision.weight() {
				slowest = i
			}
		}
		pending = append(pending, i)
	}
	if len(pending) > 0 {
		pending = b.inOrder(pending)
	}
	if len(pending) > 0 && slowest >= 0 {
		b.history = after
		if ended := b.pause(b.repeats[slowest].decision, b.targets[slowest]); ended != nil {
			for _, i := range pending {
				b.fail(i, ended)
			}
			return nil
		}
	}
	b.retarget(pending)
	return pending
}

func (b *batch) prepareRepeats() {
	b.repeats = make([]repeat, len(b.cmds))
	for i := range b.repeats {
		b.repeats[i].keys = keysIn(&b.cmds[i], b.targets[i].slot)
	}
}

// max returns the history of two calls that count as one.
func (h history) max(other history) history {
	redialled := slices.Compact(slices.Sorted(slices.Values(slices.Concat(h.redialled, other.redialled))))
	return history{max(h.failures, other.failures), max(h.redirects, other.redirects), redialled}
}

// fail makes why the error of a command. A refusal that is the command's reply stays, unless it is a redirection.
func (b *batch) fail(i int, why error) {
	if b.errs[i] != nil || leads(b.values[i].Err()) && !b.wantsRefusals() {
		b.errs[i] = why
	}
}

// leads reports whether err is a MOVED or ASK with a valid target. If a call cannot follow such a redirection, the caller
// gets an error, not the redirection as the reply.
func leads(err error) bool {
	reply, _ := errors.AsType[resp.Error](err)
	_, ok := reply.Redirect()
	return ok && isRedirect(err)
}

// weight orders decisions by the length of their wait.
func (d decision) weight() int {
	switch {
	case d.action == relocate:
		return 2
	case d.pause != noPause:
		return 1
	}
	return 0
}

// inOrder returns the commands of again that may be sent again without a change of the order. Left out is a command with a key
// in common with
//
//   - a later command that was executed, or may have been
//   - an earlier command that was sent and not answered: it may still run
func (b *batch) inOrder(again []int) []int {
	again = b.apart(again, slices.Backward(b.cmds), func(err error) bool { return err == nil || !conn.SafeToRetry(err) })
	return b.apart(again, slices.All(b.cmds), func(err error) bool { return errors.Is(err, conn.ErrUncertain) })
}

// apart returns the commands of again, except each one behind another command, in the sequence all, with a common key
// and an error for which counts is true.
func (b *batch) apart(again []int, all iter.Seq2[int, resp.Command], counts func(err error) bool) (kept []int) {
	counted := make(map[string]bool) // keys of other commands so far
	for i := range all {
		keys := b.repeats[i].keys
		if _, ok := slices.BinarySearch(again, i); ok {
			if !slices.ContainsFunc(keys, func(key string) bool { return counted[key] }) {
				kept = append(kept, i)
			}
			continue
		}
		if counts(b.errs[i]) {
			for _, key := range keys {
				counted[key] = true
			}
		}
	}
	slices.Sort(kept)
	return kept
}

// keysIn returns all words of a command that hash to a slot: the keys, and perhaps further words by chance, without harm.
func keysIn(cmd *resp.Command, slot int) (keys []string) {
	if slot == anySlot {
		return []string{""} // one common key for a batch without any keys
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

// retarget finds the next targets. Commands without a key stay together. A command is postponed
// while an earlier command with a common key goes to another node, or is postponed itself.
func (b *batch) retarget(pending []int) {
	keyless := b.c.targetOf(anySlot)
	nodes := make(map[string]*node) // of each key so far
	noNode := new(node)             // stands for the node of a key with a postponed command
	for _, i := range pending {
		r := &b.repeats[i]
		next := b.nextTarget(r.decision, b.targets[i])
		if next.slot == anySlot && r.decision.action != ask && r.decision.action != follow {
			next = keyless
		}
		n := next.node
		elsewhere := func(key string) bool { at, ok := nodes[key]; return ok && at != n }
		if r.postponed = slices.ContainsFunc(r.keys, elsewhere); r.postponed {
			n = noNode
		} else {
			b.targets[i] = next
		}
		for _, key := range r.keys {
			nodes[key] = n
		}
	}
}

func (b *batch) outcome() ([]resp.Value, error) {
	first := slices.IndexFunc(b.errs, func(err error) bool { return err != nil })
	causes, failed := distinct(b.errs)
	known := len(b.errs) - failed
	switch {
	case first < 0:
		return b.values, nil
	case len(causes) == 1 && known == first && (known == 0 || !conn.SafeToRetry(causes[0])):
		return b.values[:first], causes[0] // no later outcome is known
	}
	return b.values[:first], &BatchError{values: b.values, errs: b.errs, causes: causes}
}

// distinct returns the errors in errs, equal neighbours once, and the number of all errors.
func distinct(errs []error) (causes []error, failed int) {
	for _, err := range errs {
		if err == nil {
			continue
		}
		if failed++; len(causes) == 0 || err != causes[len(causes)-1] {
			causes = append(causes, err)
		}
	}
	return causes, failed
}
