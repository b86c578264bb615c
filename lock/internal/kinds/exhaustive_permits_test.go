package kinds_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

const (
	setTaken = "{" + setLock + "}:timeout"
	foreverN = span(1000) // the lease of a permit that never ends
)

// Two permits, by their ids and by the place of their leases in a permitsModel.
var setIDs = [2]string{strings.Repeat("a", 16), strings.Repeat("b", 16)}

// permitsModel is a number of free permits, and up to two taken permits.
type permitsModel struct {
	counter
	taken [2]bool
	ends  [2]span // from now; 0: ended
	life  span    // of all taken permits; 0: for ever
	odd   bool    // their key holds something else
}

func (m *permitsModel) clone() model { c := *m; return &c }

func (m *permitsModel) keys() space {
	keys := m.counter.keys()
	if m.odd {
		return append(keys, key{setTaken, "string", 0, []string{"x"}})
	}
	var parts []string
	for _, i := range m.order() {
		score := at(m.ends[i])
		if m.ends[i] == foreverN {
			score = strconv.FormatInt(never, 10)
		}
		parts = append(parts, setIDs[i], score)
	}
	if parts != nil {
		keys = append(keys, key{setTaken, "zset", m.life, parts})
	}
	return keys
}

// order returns the taken permits in the order of their ends.
func (m *permitsModel) order() (list []int) {
	for i, taken := range m.taken {
		if taken {
			list = append(list, i)
		}
	}
	slices.SortStableFunc(list, func(a, b int) int { return int(m.ends[a] - m.ends[b]) })
	return list
}

func (m *permitsModel) pass() {
	m.counter.pass()
	for i := range m.ends {
		if m.taken[i] && m.ends[i] != foreverN {
			m.ends[i]--
		}
	}
	if m.life > 0 {
		if m.life--; m.life == 0 {
			m.taken = [2]bool{}
		}
	}
	m.tidy()
}

func (m *permitsModel) expire(name string) {
	m.counter.expire(name)
	if name == setTaken {
		m.taken = [2]bool{}
		m.tidy()
	}
}

// tidy removes the keys of a semaphore without taken permits.
func (m *permitsModel) tidy() {
	for i, taken := range m.taken {
		if !taken {
			m.ends[i] = 0
		}
	}
	if m.taken == [2]bool{} {
		m.life = 0
	}
}

func (m *permitsModel) held(i int) bool { return m.taken[i] && m.ends[i] > 0 }

// drop removes taken permits and returns their number.
func (m *permitsModel) drop(ids []int) (n int) {
	for _, i := range ids {
		if m.taken[i] {
			m.taken[i] = false
			n++
		}
	}
	m.tidy()
	return n
}

func (m *permitsModel) allHeld(ids []int) bool {
	return !slices.ContainsFunc(ids, func(i int) bool { return !m.held(i) })
}

func (m *permitsModel) acquire(ids []int, lease span, waits bool) (any, []message) {
	var said []message
	switch {
	case m.done[0].outcome != "":
		return -1, nil
	case m.odd:
		return failure("WRONGTYPE"), nil
	case m.taken[ids[0]]:
		return nil, nil
	case m.alien:
		return failure("WRONGTYPE"), nil
	}
	var ended []int
	for i := range m.taken {
		if !m.held(i) {
			ended = append(ended, i)
		}
	}
	if n := m.drop(ended); n > 0 {
		if free := m.add(n); free > 0 {
			said = told(free)
		}
	}
	switch order := m.order(); {
	case !m.set && !waits:
		return status("unset"), said
	case !m.set, m.n < len(ids) && (len(order) == 0 || m.ends[order[0]] == foreverN):
		return -1, said
	case m.n < len(ids):
		return m.ends[order[0]], said
	}
	m.n -= len(ids)
	for _, i := range ids {
		m.taken[i], m.ends[i] = true, lease
	}
	if m.counter.life > 0 {
		m.life = m.counter.life
	}
	return nil, said
}

// back returns n permits of the named ones.
func (m *permitsModel) back(n, named int) []message {
	free := m.add(n)
	if named > 1 {
		return told(n)
	}
	return told(free)
}

func (m *permitsModel) release(ids []int) (any, []message) {
	switch {
	case m.done[1].outcome != "":
		return 1, nil
	case m.alien, m.odd:
		return failure("WRONGTYPE"), nil
	}
	var said []message
	held := m.allHeld(ids)
	if n := m.drop(ids); n > 0 {
		said = m.back(n, len(ids))
	}
	if !held {
		return nil, said
	}
	m.done.note(1, "1")
	return 1, said
}

func (m *permitsModel) end(ids []int) (any, []message) {
	if m.odd {
		return failure("WRONGTYPE"), nil
	}
	all := m.allHeld(ids)
	for _, i := range ids {
		if m.held(i) {
			m.ends[i] = 0
		}
	}
	if all {
		return 1, nil
	}
	return nil, nil
}

func (m *permitsModel) give(ids []int) (any, []message) {
	switch {
	case m.done[1].outcome != "":
	case m.odd:
		return failure("WRONGTYPE"), nil
	case !m.alien && !m.allHeld(ids):
		return 0, nil
	}
	return m.change(func() (int, []message) {
		return 1, m.back(m.drop(ids), len(ids))
	})
}

func (m *permitsModel) undo(ids []int) (any, []message) {
	switch {
	case m.done.undo(0):
		return 0, nil
	case m.alien, m.odd:
		return failure("WRONGTYPE"), nil
	}
	n := m.drop(ids)
	if n == 0 {
		return 0, nil
	}
	return 1, m.back(n, 1)
}

func (m *permitsModel) renew(ids []int, lease span) (any, []message) {
	switch {
	case m.odd:
		return []any{-1}, nil
	case !m.allHeld(ids):
		return []any{0}, nil
	}
	for _, i := range ids {
		m.ends[i] = max(m.ends[i], lease)
	}
	return []any{1}, nil
}

func (m *permitsModel) force() (any, []message) {
	if m.alien || m.odd {
		return failure("WRONGTYPE"), nil
	}
	n := m.drop([]int{0, 1})
	if n == 0 {
		return 0, nil
	}
	return 1, m.back(n, 1)
}

func (m *permitsModel) info() (any, []message) {
	if m.alien || m.odd {
		return failure("WRONGTYPE"), nil
	}
	free, taken := m.n, 0
	var rest []any
	for _, i := range m.order() {
		switch {
		case !m.held(i):
			free++
			continue
		case m.ends[i] == foreverN:
			rest = append(rest, setIDs[i], -1)
		default:
			rest = append(rest, setIDs[i], m.ends[i])
		}
		taken++
	}
	set := 0
	if m.set {
		set = 1
	}
	return append([]any{set, free, taken}, rest...), nil
}

func (m *permitsModel) addPermits(n int, total bool) (any, []message) {
	if m.odd && total && m.set && m.done[1].outcome == "" {
		return failure("WRONGTYPE"), nil
	}
	return m.change(func() (int, []message) {
		more := n
		if total && m.set {
			more -= m.n + len(m.order())
		}
		if more == 0 && m.set {
			return 1, nil
		}
		m.add(more)
		if !total && more <= 0 {
			return 1, nil
		}
		return 1, told(n)
	})
}

func (m *permitsModel) lease(i int, lease span) (any, []message) {
	switch {
	case m.odd:
		return failure("WRONGTYPE"), nil
	case !m.held(i):
		return nil, nil
	case lease != 0:
		m.ends[i] = lease
	}
	if m.ends[i] == foreverN {
		return -1, nil
	}
	return m.ends[i], nil
}

func permitsSet() *scriptSet {
	set := &scriptSet{kind: "permits", start: &permitsModel{}, accepts: acceptsPermits}
	set.within = func(m model) bool {
		p := m.(*permitsModel)
		return p.n >= -1 && p.n <= 3 && min(p.ends[0], p.ends[1]) >= -1
	}
	keys := []string{setLock, setSemaphoreChannel, setTaken}
	own, other := append(keys[:3:3], setLatch(0)), append(keys[:3:3], setLatch(1))
	add := func(script string, keys []string, args []any, do func(m *permitsModel) (any, []message)) {
		set.moves = append(set.moves, move{name: fmt.Sprint(script, keys[1:], args), script: script, keys: keys, args: args, do: on(do)})
	}
	for _, ids := range [][]int{{0}, {1}, {0, 1}} {
		owner := ""
		for _, i := range ids {
			owner += setIDs[i]
		}
		for _, waits := range []bool{false, true} {
			add("acquire", own, []any{span(1), owner, publishBy, waits, false, at(1)},
				func(m *permitsModel) (any, []message) { return m.acquire(ids, 1, waits) })
		}
		add("acquire", own, []any{span(1), owner, publishBy, true, false, at(-1)}, comesLate[*permitsModel])
		add("undo", own, []any{span(0), owner, publishBy, 0, at(-1)}, comesLate[*permitsModel])
		add("acquire", own, []any{span(2), owner, publishBy, false, true, at(1)},
			func(m *permitsModel) (any, []message) { return m.acquire(ids, foreverN, false) })
		add("release", other, []any{span(0), owner, publishBy, latchSpan, false},
			func(m *permitsModel) (any, []message) { return m.release(ids) })
		add("give", other, []any{latchSpan - 1, publishBy, owner, at(1)}, func(m *permitsModel) (any, []message) { return m.give(ids) })
		add("undo", own, []any{span(0), owner, publishBy, 0, at(latchSpan)},
			func(m *permitsModel) (any, []message) { return m.undo(ids) })
		add("renew", keys[2:3], []any{span(2), owner}, func(m *permitsModel) (any, []message) { return m.renew(ids, 2) })
		add("end", keys[2:3], []any{owner}, func(m *permitsModel) (any, []message) { return m.end(ids) })
		add("renew", keys[2:3], []any{-2, owner}, func(m *permitsModel) (any, []message) { return m.renew(ids, -2) })
	}
	add("force", keys, []any{publishBy, at(1)}, (*permitsModel).force)
	add("force", keys, []any{publishBy, at(-1)}, comesLate[*permitsModel])
	add("info", keys, nil, (*permitsModel).info)
	for _, ends := range []span{0, 2} {
		add("set", []string{setLock, setSemaphoreChannel, setLatch(1)}, []any{latchSpan - 1, publishBy, 2, ends, at(1)}, func(m *permitsModel) (any, []message) { return m.setUp(2, ends) })
	}
	for _, n := range []int{-1, 1} {
		add("add", other, []any{latchSpan - 1, publishBy, n, false, at(1)}, func(m *permitsModel) (any, []message) { return m.addPermits(n, false) })
	}
	for _, n := range []int{0, 2} {
		add("add", other, []any{latchSpan - 1, publishBy, n, true, at(1)}, func(m *permitsModel) (any, []message) { return m.addPermits(n, true) })
	}
	add("lease", keys, []any{setIDs[0], 0, at(1)}, func(m *permitsModel) (any, []message) { return m.lease(0, 0) })
	add("lease", keys, []any{setIDs[0], -1, at(1)}, func(m *permitsModel) (any, []message) { return m.lease(0, foreverN) })
	add("lease", keys, []any{setIDs[1], span(2), at(1)}, func(m *permitsModel) (any, []message) { return m.lease(1, 2) })
	add("give", other, []any{latchSpan, publishBy, setIDs[0], at(-1)}, comesLate[*permitsModel])
	add("set", []string{setLock, setSemaphoreChannel, setLatch(1)}, []any{latchSpan, publishBy, 2, 0, at(-1)}, comesLate[*permitsModel])
	add("add", other, []any{latchSpan, publishBy, 1, false, at(-1)}, comesLate[*permitsModel])
	add("lease", keys, []any{setIDs[0], -1, at(-1)}, comesLate[*permitsModel])
	set.moves = append(set.moves, (*counter)(nil).foreign(func(m model) *counter { return &m.(*permitsModel).counter })...)
	set.moves = append(set.moves, move{name: "SET " + setTaken, foreign: true, do: on(func(m *permitsModel) (any, []message) {
		m.odd, m.taken = true, [2]bool{}
		m.tidy()
		return nil, nil
	})}, move{name: "DEL " + setTaken, foreign: true, do: on(func(m *permitsModel) (any, []message) {
		m.odd, m.taken = false, [2]bool{}
		m.tidy()
		return nil, nil
	})})
	return set
}

// acceptsPermits checks for the state that Redisson's RPermitExpirableSemaphore expects: an RSemaphore's keys and messages, and a sorted set of
// ids of 16 bytes by points in time.
func acceptsPermits(keys space, said []message) error {
	var others space
	for _, k := range keys {
		if k.name != setTaken {
			others = append(others, k)
			continue
		}
		for i := 0; i+1 < len(k.parts); i += 2 {
			if score := k.parts[i+1]; len(k.parts[i]) != 16 || k.kind != "zset" || score[0] != '@' && score != strconv.FormatInt(never, 10) {
				return fmt.Errorf("no permits: %s", k.text())
			}
		}
	}
	return acceptsSemaphore(others, said)
}
