package lock_test

import (
	"fmt"
	"strconv"
)

// fencedModel is a reentrant lock with the last token that was drawn: a point in time, or a count where tokens are plain.
type fencedModel struct {
	reentrantModel
	plain bool
	drawn bool // there is a token
	at    span
	count int
	list  bool // the key of the token is no token
}

const setToken = "redisson_lock_token:{" + setLock + "}"

func (m *fencedModel) clone() model { c := *m; return &c }

func (m *fencedModel) keys() space {
	keys := m.reentrantModel.keys()
	switch {
	case m.list:
		keys = append(keys, key{setToken, "list", 0, []string{"x"}})
	case m.drawn:
		keys = append(keys, key{setToken, "string", 0, []string{m.token()}})
	}
	return keys
}

func (m *fencedModel) pass() {
	m.reentrantModel.pass()
	m.at--
}

func (m *fencedModel) token() string {
	switch {
	case !m.drawn:
		return "0"
	case m.plain:
		return strconv.Itoa(m.count)
	}
	return atMicro(m.at)
}

// point is an integer of a reply that stands for a point in time.
type point string

func (m *fencedModel) draw() {
	if !m.drawn {
		m.at = 0
	}
	m.drawn, m.count, m.at = true, m.count+1, max(m.at, 0)
}

func (m *fencedModel) acquire(owner string, lease span, latch int) (any, []message) {
	free, further := m.owner == "" && !m.alien, m.owner == owner
	if late := latch >= 0 && m.done[latch].outcome != ""; !late && (free || further && !m.drawn) {
		if m.list {
			return failure("WRONGTYPE"), nil
		}
		m.draw()
	} else if !late && further && m.list {
		return failure("WRONGTYPE"), nil
	}
	reply, said := m.reentrantModel.acquire(owner, lease, latch)
	switch reply.(type) {
	case nil, status:
		return []any{m.holds, point(m.token())}, said
	}
	return reply, said
}

func (m *fencedModel) info() (any, []message) {
	reply, said := m.reentrantModel.info()
	list, ok := reply.([]any)
	if m.list && ok {
		return failure("WRONGTYPE"), nil
	}
	if !ok {
		return reply, said
	}
	return append([]any{m.token()}, list...), said
}

func fencedSet(plain bool) *scriptSet {
	set := &scriptSet{kind: "fenced", name: "by time", start: &fencedModel{plain: plain}, accepts: acceptsFenced}
	if plain {
		set.name = "plain"
	}
	set.within = func(m model) bool {
		f := m.(*fencedModel)
		return f.holds <= 2 && f.count <= 4 && f.at >= -3
	}
	channel := "redisson_lock__channel:{" + setLock + "}"
	keys := []string{setLock, channel}
	add := func(script string, keys []string, args []any, do func(m *fencedModel) (any, []message)) {
		name := fmt.Sprint(script, keys[1:], args)
		set.moves = append(set.moves, move{name: name, script: script, keys: keys, args: args, do: on(do)})
	}
	for _, owner := range setOwners {
		for _, lease := range []span{1, 3} {
			add("acquire", keys[:1], []any{lease, owner, plain},
				func(m *fencedModel) (any, []message) { return m.acquire(owner, lease, -1) })
			add("acquire", []string{setLock, channel, setLatch(0)}, []any{lease, owner, plain},
				func(m *fencedModel) (any, []message) { return m.acquire(owner, lease, 0) })
			add("release", []string{setLock, channel, setLatch(1)}, []any{lease - 1, owner, publishBy, latchSpan, true},
				func(m *fencedModel) (any, []message) { return m.release(owner, lease-1, 1, true) })
		}
		add("undo", []string{setLock, channel, setLatch(0)}, []any{span(1), owner, publishBy, 1, latchSpan},
			func(m *fencedModel) (any, []message) { return m.undo(owner, 1, 1, 0) })
	}
	add("info", keys, nil, (*fencedModel).info)
	set.moves = append(set.moves, foreignToReentrant(func(m model) *reentrantModel { return &m.(*fencedModel).reentrantModel })...)
	foreign := func(name string, do func(m *fencedModel)) {
		set.moves = append(set.moves, move{name: name, foreign: true,
			do: on(func(m *fencedModel) (any, []message) { do(m); return nil, nil })})
	}
	foreign("DEL "+setToken, func(m *fencedModel) { m.drawn, m.list, m.count = false, false, 0 })
	foreign("RPUSH "+setToken, func(m *fencedModel) { m.drawn, m.list, m.count = false, true, 0 })
	if !plain {
		foreign("a token from the future", func(m *fencedModel) { m.drawn, m.list, m.at = true, false, 2 })
	}
	return set
}

// acceptsFenced is what Redisson's RFencedLock expects: an RLock, and a counter that never expires.
func acceptsFenced(keys space, said []message) error {
	var others space
	for _, k := range keys {
		switch {
		case k.name != setToken:
			others = append(others, k)
		case k.kind != "string" || k.life != 0:
			return fmt.Errorf("no token that lives for ever: %s", k.text())
		}
	}
	return acceptsReentrant(others, said)
}

// nonReentrantModel is a reentrant lock that nobody has twice.
type nonReentrantModel struct{ reentrantModel }

func (m *nonReentrantModel) clone() model { c := *m; return &c }

func (m *nonReentrantModel) acquire(owner string, lease span, latch int) (any, []message) {
	if m.owner == owner && (latch < 0 || m.done[latch].outcome == "") {
		return status("reentry"), nil
	}
	return m.reentrantModel.acquire(owner, lease, latch)
}

func nonReentrantSet() *scriptSet {
	set := &scriptSet{kind: "nonreentrant", start: &nonReentrantModel{}, accepts: acceptsReentrant}
	channel := "redisson_lock__channel:{" + setLock + "}"
	add := func(script string, keys []string, args []any, do func(m *nonReentrantModel) (any, []message)) {
		name := fmt.Sprint(script, keys[1:], args)
		set.moves = append(set.moves, move{name: name, script: script, keys: keys, args: args, do: on(do)})
	}
	for _, owner := range setOwners {
		for _, lease := range []span{1, 3} {
			add("acquire", []string{setLock}, []any{lease, owner},
				func(m *nonReentrantModel) (any, []message) { return m.acquire(owner, lease, -1) })
			add("acquire", []string{setLock, channel, setLatch(0)}, []any{lease, owner},
				func(m *nonReentrantModel) (any, []message) { return m.acquire(owner, lease, 0) })
		}
		add("undo", []string{setLock, channel, setLatch(0)}, []any{span(0), owner, publishBy, 0, latchSpan},
			func(m *nonReentrantModel) (any, []message) { return m.undo(owner, 0, 0, 0) })
		add("release", []string{setLock, channel, setLatch(1)}, []any{span(0), owner, publishBy, latchSpan, true},
			func(m *nonReentrantModel) (any, []message) { return m.release(owner, 0, 1, true) })
	}
	set.moves = append(set.moves, foreignToReentrant(func(m model) *reentrantModel { return &m.(*nonReentrantModel).reentrantModel })...)
	return set
}
