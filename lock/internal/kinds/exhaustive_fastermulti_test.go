package kinds_test

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
)

// fasterMultiModel is a group of two values.
type fasterMultiModel struct {
	values [2]struct {
		owner string // "" is free
		ends  span   // of the lease, from now; 0 or less is over
		holds int
	}
	lease span // of the key; 0: none
	alien string
	done  latches
}

// setValues are the fields of the values.
var setValues = [2]string{"a", "b"}

func (m *fasterMultiModel) clone() model { c := *m; return &c }

func (m *fasterMultiModel) keys() space {
	keys := m.done.keys()
	var parts []string
	for i, v := range m.values {
		if v.owner != "" {
			hold := setValues[i] + ":" + v.owner
			parts = append(parts, setValues[i], v.owner, hold+":expire_time", at(v.ends), hold+":lock_count", strconv.Itoa(v.holds))
		}
	}
	switch {
	case m.alien == "string":
		keys = append(keys, key{setLock, "string", 0, []string{"x"}})
	case m.alien == "lock":
		keys = append(keys, key{setLock, "hash", 0, []string{"client:9", "1"}})
	case m.alien == "readwrite":
		keys = append(keys, key{setLock, "hash", 0, []string{"mode", "read", "client:9", "1"}})
	case parts != nil:
		keys = append(keys, key{setLock, "hash", m.lease, parts})
	}
	return keys
}

func (m *fasterMultiModel) pass() {
	m.done.pass()
	for i := range m.values {
		m.values[i].ends = max(0, m.values[i].ends-1)
	}
	if m.lease > 0 {
		if m.lease--; m.lease == 0 {
			m.free()
		}
	}
}

func (m *fasterMultiModel) expire(name string) {
	if name == setLock {
		m.free()
	}
	m.done.expire(name)
}

func (m *fasterMultiModel) free() { *m = fasterMultiModel{done: m.done} }

// tidy forgets the lease of a group without values.
func (m *fasterMultiModel) tidy() {
	if m.values[0].owner == "" && m.values[1].owner == "" {
		m.lease = 0
	}
}

func (m *fasterMultiModel) acquire(owner string, which []int, lease span, latch int) (any, []message) {
	switch {
	case m.done[latch].outcome != "":
		return -1, nil
	case m.alien != "":
		return failure("WRONGTYPE"), nil
	}
	left := span(0)
	for _, i := range which {
		if m.values[i].owner != owner {
			left = max(left, m.values[i].ends)
		}
	}
	if left > 0 {
		return left, nil
	}
	var first []string
	for _, i := range which {
		v := &m.values[i]
		if v.ends <= 0 {
			v.owner, v.holds, v.ends = owner, 0, 0
			first = append(first, setValues[i])
		}
		v.holds, v.ends = v.holds+1, max(v.ends, lease)
	}
	m.lease = max(m.lease, lease)
	if len(first) < len(which) {
		return status(strings.Join(first, " ")), nil
	}
	return nil, nil
}

// valueKept is what an owner keeps of a value by further holds.
type valueKept struct {
	holds int
	lease span
}

// keepText is the argument for kept.
func keepText(kept []valueKept) string {
	var text []string
	for _, k := range kept {
		text = append(text, strconv.Itoa(k.holds), strconv.FormatInt(int64(k.lease)*stepMS, 10))
	}
	return cmp.Or(strings.Join(text, " "), "0")
}

// give takes a hold of each of the values from owner, who keeps some. freed: of a value; more: owner has further holds.
func (m *fasterMultiModel) give(owner string, which []int, kept []valueKept) (held, freed, more bool, said []message) {
	held, tell := true, false
	for n, i := range which {
		v := &m.values[i]
		has := v.owner == owner && v.ends > 0
		held = held && has
		switch {
		case has && len(kept) > 0 && kept[n].holds > 0:
			tell, more = tell || v.ends > kept[n].lease, true
			v.holds, v.ends = kept[n].holds, kept[n].lease
			m.lease = max(m.lease, v.ends)
		case v.owner == owner:
			v.owner, v.ends, v.holds = "", 0, 0
			tell, freed = true, true
		}
	}
	m.tidy()
	if tell {
		said = []message{{"redisson_lock__channel:{" + setLock + "}", "0"}}
	}
	return held, freed, more, said
}

func (m *fasterMultiModel) release(owner string, which []int, kept []valueKept, latch int, repeated bool) (any, []message) {
	switch outcome := m.done[latch].outcome; {
	case outcome == "-1":
		return nil, nil
	case outcome != "":
		n, _ := strconv.Atoi(outcome)
		return n, nil
	case m.alien == "string":
		return failure("WRONGTYPE"), nil
	}
	held, _, more, said := m.give(owner, which, kept)
	switch {
	case held && more:
		m.done.note(latch, "0")
		return 0, said
	case held:
		m.done.note(latch, "1")
		return 1, said
	case repeated:
		m.done.note(latch, "-1")
	}
	return nil, said
}

func (m *fasterMultiModel) undo(owner string, which []int, kept []valueKept, latch int) (any, []message) {
	if m.done.undo(latch) {
		return 0, nil
	}
	if m.alien == "string" {
		return failure("WRONGTYPE"), nil
	}
	_, freed, _, said := m.give(owner, which, kept)
	if freed {
		return 1, said
	}
	return 0, said
}

func (m *fasterMultiModel) renew(which []int, lease span, owners ...string) (any, []message) {
	var list []any
	for _, owner := range owners {
		outcome := 1
		for _, i := range which {
			switch v := m.values[i]; {
			case m.alien == "string" || v.owner != "" && v.owner != owner:
				outcome = -1
			case v.ends <= 0:
				outcome = min(outcome, 0)
			}
		}
		if list = append(list, outcome); outcome != 1 || lease < 0 {
			continue
		}
		for _, i := range which {
			m.values[i].ends = max(m.values[i].ends, lease)
		}
		m.lease = max(m.lease, lease)
	}
	return list, nil
}

func (m *fasterMultiModel) force(which []int) (any, []message) {
	if m.alien != "" {
		return failure("WRONGTYPE"), nil
	}
	taken := 0
	for _, i := range which {
		if m.values[i].ends > 0 {
			taken = 1
		}
		m.values[i].owner, m.values[i].ends, m.values[i].holds = "", 0, 0
	}
	m.tidy()
	if taken == 0 {
		return 0, nil
	}
	return 1, []message{{"redisson_lock__channel:{" + setLock + "}", "0"}}
}

func (m *fasterMultiModel) info(which []int) (any, []message) {
	if m.alien != "" {
		return failure("WRONGTYPE"), nil
	}
	list := []any{}
	for _, i := range which {
		if v := m.values[i]; v.ends > 0 {
			list = append(list, v.owner, strconv.Itoa(v.holds), v.ends)
		}
	}
	return list, nil
}

// fasterMultiSet has an owner for each value, and an owner who takes both or the first alone.
func fasterMultiSet() *scriptSet {
	channel := "redisson_lock__channel:{" + setLock + "}"
	var list []move
	add := func(script string, keys []string, args []any, do func(m *fasterMultiModel) (any, []message)) {
		list = append(list, move{name: fmt.Sprint(script, keys[1:], args), script: script, keys: keys, args: args, do: on(do)})
	}
	keys := []string{setLock, channel}
	for n, which := range [][]int{{0}, {1}, {0, 1}, {0}} {
		owner := fmt.Sprint("client:", min(n, 2))
		var values []string
		for _, i := range which {
			values = append(values, setValues[i])
		}
		text := strings.Join(values, " ")
		both := owner + " " + text
		const latch = 0
		taking, with := []string{setLock, setLatch(latch)}, []string{setLock, channel, setLatch(latch)}
		for lease := span(1); lease <= 3; lease += 2 {
			add("acquire", taking, []any{lease, both, at(1)},
				func(m *fasterMultiModel) (any, []message) { return m.acquire(owner, which, lease, latch) })
		}
		add("acquire", taking, []any{1, both, at(-1)}, comesLate[*fasterMultiModel])
		for _, kept := range [][]valueKept{nil, {{1, 2}, {0, 0}}, {{2, 1}, {1, 3}}} {
			kept = kept[:min(len(kept), len(which))]
			for _, repeated := range []bool{false, true} {
				add("release", with, []any{keepText(kept), both, publishBy, latchSpan, repeated, at(1)},
					func(m *fasterMultiModel) (any, []message) { return m.release(owner, which, kept, latch, repeated) })
			}
			add("undo", with, []any{keepText(kept), both, publishBy, 0, at(latchSpan)},
				func(m *fasterMultiModel) (any, []message) { return m.undo(owner, which, kept, latch) })
		}
		add("release", with, []any{0, both, publishBy, latchSpan, false, at(-1)}, comesLate[*fasterMultiModel])
		add("release", with, []any{0, both, publishBy, latchSpan, false, 0}, func(m *fasterMultiModel) (any, []message) {
			return m.done.first(latch, func() (any, []message) { return m.release(owner, which, nil, latch, false) })
		})
		add("undo", with, []any{0, both, publishBy, 0, at(-1)}, comesLate[*fasterMultiModel])
		for _, lease := range []span{1, 2} {
			add("renew", []string{setLock, setLock}, []any{lease, both, "client:2 " + text},
				func(m *fasterMultiModel) (any, []message) { return m.renew(which, lease, owner, "client:2") })
		}
		add("renew", keys[:1], []any{-2, both}, func(m *fasterMultiModel) (any, []message) { return m.renew(which, -1, owner) })
		add("force", keys, []any{publishBy, at(1), text}, func(m *fasterMultiModel) (any, []message) { return m.force(which) })
		add("force", keys, []any{publishBy, at(-1), text}, comesLate[*fasterMultiModel])
		add("info", keys, []any{text}, func(m *fasterMultiModel) (any, []message) { return m.info(which) })
	}
	add("info", keys, nil, func(m *fasterMultiModel) (any, []message) { return m.info([]int{0, 1}) })
	for _, alien := range []string{"string", "lock", "readwrite", ""} {
		list = append(list, move{name: "another key: " + alien, foreign: true, do: on(func(m *fasterMultiModel) (any, []message) {
			m.free()
			m.alien = alien
			return nil, nil
		})})
	}
	return &scriptSet{kind: "fastermulti", start: &fasterMultiModel{}, moves: list, accepts: acceptsFasterMulti,
		within: func(m model) bool {
			values := m.(*fasterMultiModel).values
			return max(values[0].holds, values[1].holds) <= 2
		}}
}

// acceptsFasterMulti checks for the state that Redisson expects: three fields for each value, and a lease of the key as long as any.
func acceptsFasterMulti(keys space, said []message) error {
	for _, k := range keys {
		switch {
		case k.life <= 0:
			return fmt.Errorf("%s never expires", k.name)
		case k.name != setLock:
			if err := acceptsLatch(k); err != nil {
				return err
			}
		case k.kind != "hash" || len(k.parts)%6 != 0:
			return fmt.Errorf("no three fields for each value: %s", k.text())
		}
		for i := 0; k.name == setLock && i < len(k.parts); i += 6 {
			hold := k.parts[i] + ":" + k.parts[i+1]
			if k.parts[i+2] != hold+":expire_time" || k.parts[i+4] != hold+":lock_count" || k.parts[i+3] > at(k.life) {
				return fmt.Errorf("not the hold of an owner: %s", k.text())
			}
		}
	}
	for _, m := range said {
		if m != (message{"redisson_lock__channel:{" + setLock + "}", "0"}) {
			return fmt.Errorf("message %v", m)
		}
	}
	return nil
}
