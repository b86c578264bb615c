package kinds_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

func nonReentrantSet() *scriptSet {
	set := reentrantSet()
	moves := exclusive[*reentrantModel]{latches: len(latches{})}
	set.kind = "nonreentrant"
	set.moves = moves.list(func(m *reentrantModel) *reentrantModel { return m },
		func(m *reentrantModel, owner string, lease span, latch int) (any, []message) {
			if (latch < 0 || m.done[latch].outcome == "") && m.owner == owner {
				return status("reentry"), nil
			}
			return m.acquire(owner, lease, latch)
		})
	return set
}

// fencedModel is a reentrant lock with a token: a small number that counts, or a point in time, in µs.
type fencedModel struct {
	reentrantModel
	count int  // 0: no token, or a time
	timed bool // the token is a time
	time  span // in steps from now
	list  bool // the key of the token is no token
	life  span // of the token's key; 0: for ever
}

func (m *fencedModel) clone() model { c := *m; return &c }

const setToken = "redisson_lock_token:{" + setLock + "}"

func (m *fencedModel) token() string {
	switch {
	case m.timed:
		return atMicro(m.time)
	case m.count > 0:
		return strconv.Itoa(m.count)
	}
	return ""
}

func (m *fencedModel) keys() space {
	keys := m.reentrantModel.keys()
	if m.list {
		keys = append(keys, key{setToken, "list", 0, []string{"x"}})
	} else if token := m.token(); token != "" {
		keys = append(keys, key{setToken, "string", m.life, []string{token}})
	}
	return keys
}

func (m *fencedModel) pass() {
	m.reentrantModel.pass()
	if m.timed {
		m.time = max(m.time-1, -1) // -1: past
	}
	if m.life > 0 {
		if m.life--; m.life == 0 {
			m.forget()
		}
	}
}

func (m *fencedModel) expire(name string) {
	if name == setToken {
		m.forget()
	}
	m.reentrantModel.expire(name)
}

// forget is the end of the token.
func (m *fencedModel) forget() { m.count, m.timed, m.time, m.list, m.life = 0, false, 0, false, 0 }

// plainTokens is in place of the life of tokens that count from 1.
const plainTokens = span(-1)

// draw makes the next token: the last token plus 1, or the time if larger.
func (m *fencedModel) draw(life span) {
	m.life = 0
	switch {
	case !m.timed && life == plainTokens:
		m.count++
	case !m.timed:
		m.count, m.timed, m.time = 0, true, 0
	case life != plainTokens:
		m.time = max(m.time, 0)
	}
	if life > 0 {
		m.life = m.time + life
	}
}

func (m *fencedModel) acquire(owner string, lease span, latch int, life span) (any, []message) {
	undone := m.done[latch].outcome != ""
	if free := m.owner == "" && !m.alien; m.list && !undone && (free || m.owner == owner) {
		return failure("WRONGTYPE"), nil
	}
	reply, said := m.reentrantModel.acquire(owner, lease, latch)
	holds := 1
	switch reply := reply.(type) {
	case nil:
	case status:
		holds, _ = strconv.Atoi(string(reply))
	default:
		return reply, said
	}
	m.draw(life)
	return []any{holds, m.token()}, said
}

func (m *fencedModel) info() (any, []message) {
	reply, said := m.reentrantModel.info()
	token := m.token()
	if token == "" {
		token = "0"
	}
	if list, ok := reply.([]any); ok && m.list {
		return failure("WRONGTYPE"), nil
	} else if ok {
		return append([]any{token}, list...), said
	}
	return reply, said
}

func fencedSet(name string, life span) *scriptSet {
	own := []any{life, 0} // a further hold has a token of its own, as no other hold is known to have one
	if life == plainTokens {
		own[0] = -1
	}
	moves := exclusive[*fencedModel]{latches: 1, token: []string{setToken}, own: own, info: (*fencedModel).info}
	moves.inherit = func(m *fencedModel) any {
		if m.list {
			return failure("WRONGTYPE")
		}
		m.draw(life)
		return []any{1, m.token()}
	}
	list := moves.list(func(m *fencedModel) *reentrantModel { return &m.reentrantModel },
		func(m *fencedModel, owner string, lease span, latch int) (any, []message) {
			return m.acquire(owner, lease, latch, life)
		})
	for i := range list {
		switch m := &list[i]; m.script {
		case "handover", "info":
			m.keys = slices.Clone(m.keys)
			m.keys[1] = setToken
		}
	}
	set := func(name string, do func(m *fencedModel)) {
		list = append(list, move{name: name, foreign: true, do: on(func(m *fencedModel) (any, []message) {
			m.forget()
			do(m)
			return nil, nil
		})})
	}
	for _, time := range []span{-1, 0, 2} { // another server's clock
		set(fmt.Sprint("SET token ", at(time)), func(m *fencedModel) { m.timed, m.time = true, time })
	}
	for count := range 3 { // Redisson's counter
		set(fmt.Sprint("SET token ", count), func(m *fencedModel) { m.count = count })
	}
	set("RPUSH token", func(m *fencedModel) { m.list = true })
	return &scriptSet{
		kind:   "fenced",
		name:   name,
		start:  &fencedModel{},
		moves:  list,
		within: func(m model) bool { f := m.(*fencedModel); return f.holds <= 4 && f.count <= 3 },
		accepts: func(keys space, said []message) error {
			var others space
			for _, k := range keys {
				if k.name != setToken {
					others = append(others, k)
				} else if k.kind != "string" || k.life != 0 && life <= 0 || strings.HasPrefix(k.parts[0], "-") {
					return fmt.Errorf("no token: %s", k.text())
				}
			}
			return acceptsReentrant(others, said)
		},
	}
}
