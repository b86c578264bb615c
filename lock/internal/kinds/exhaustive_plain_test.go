package kinds_test

import "fmt"

// plainModel is a key with the owner as its value.
type plainModel struct {
	owner string // "" is free
	lease span   // 0 is none
	alien bool   // the key is a hash
	done  latches
}

func (m *plainModel) clone() model { c := *m; return &c }

func (m *plainModel) keys() space {
	keys := m.done.keys()
	switch {
	case m.alien:
		keys = append(keys, key{setLock, "hash", 0, []string{"x", "1"}})
	case m.owner != "":
		keys = append(keys, key{setLock, "string", m.lease, []string{m.owner}})
	}
	return keys
}

func (m *plainModel) pass() {
	m.done.pass()
	if m.lease > 0 {
		if m.lease--; m.lease == 0 {
			m.owner = ""
		}
	}
}

func (m *plainModel) expire(name string) {
	if name == setLock {
		m.free()
	}
	m.done.expire(name)
}

func (m *plainModel) free() { m.owner, m.lease = "", 0 }

func (m *plainModel) acquire(owner string, lease span, latch int) (any, []message) {
	switch {
	case m.done[latch].outcome != "":
		return -1, nil
	case m.alien:
		return failure("WRONGTYPE"), nil
	case m.owner == "":
		m.owner, m.lease = owner, lease
		return nil, nil
	case m.owner == owner:
		return status("reentry"), nil
	case m.lease == 0:
		return -1, nil
	}
	return m.lease, nil
}

func (m *plainModel) release(owner string, latch int, repeated bool) (any, []message) {
	switch outcome := m.done[latch].outcome; {
	case outcome == "-1":
		return nil, nil
	case outcome == "0":
		return 0, nil
	case outcome == "1":
		return 1, nil
	case m.alien:
		return failure("WRONGTYPE"), nil
	case m.owner == owner:
		m.free()
		m.done.note(latch, "1")
		return 1, nil
	case repeated:
		m.done.note(latch, "-1")
	}
	return nil, nil
}

func (m *plainModel) keep(owner string, rest span, latch int, repeated bool) (any, []message) {
	held := m.owner == owner && !m.alien && m.done[latch].outcome == ""
	reply, said := m.release(owner, latch, repeated)
	if held {
		m.owner, m.lease = setNobody, rest
	}
	return reply, said
}

func (m *plainModel) undo(owner string, before, latch int) (any, []message) {
	if m.done.undo(latch) {
		return 0, nil
	}
	switch {
	case before > 0:
		return 0, nil
	case m.alien:
		return failure("WRONGTYPE"), nil
	case m.owner != owner:
		return 0, nil
	}
	m.free()
	return 1, nil
}

func (m *plainModel) renew(lease span, owners ...string) (any, []message) {
	return renewAll(m.owner, m.alien, &m.lease, lease, owners)
}

func (m *plainModel) force() (any, []message) {
	switch {
	case m.alien:
		return failure("WRONGTYPE"), nil
	case m.owner == "":
		return 0, nil
	}
	m.free()
	return 1, nil
}

func (m *plainModel) info() (any, []message) {
	switch {
	case m.alien:
		return failure("WRONGTYPE"), nil
	case m.owner == "":
		return []any{-2}, nil
	case m.lease == 0:
		return []any{-1, m.owner, 1}, nil
	}
	return []any{m.lease, m.owner, 1}, nil
}

func plainSet() *scriptSet {
	channel := "redisson_lock__channel:{" + setLock + "}"
	var list []move
	add := func(script string, keys []string, args []any, do func(m *plainModel) (any, []message)) {
		list = append(list, move{name: fmt.Sprint(script, keys[1:], args), script: script, keys: keys, args: args, do: on(do)})
	}
	keys := []string{setLock, channel}
	for _, owner := range setOwners {
		for latch := range len(latches{}) {
			taking, with := []string{setLock, setLatch(latch)}, []string{setLock, channel, setLatch(latch)}
			for _, repeated := range []bool{false, true} {
				add("release", with, []any{0, owner, "", latchSpan, repeated, at(1)},
					func(m *plainModel) (any, []message) { return m.release(owner, latch, repeated) })
			}
			for _, repeated := range []bool{false, true} {
				add("keep", with, []any{span(2), owner, "", latchSpan, repeated, at(1), setNobody},
					func(m *plainModel) (any, []message) { return m.keep(owner, 2, latch, repeated) })
			}
			add("keep", with, []any{span(2), owner, "", latchSpan, false, at(-1), setNobody}, comesLate[*plainModel])
			for lease := span(1); lease <= 3; lease++ {
				add("acquire", taking, []any{lease, owner, at(1)}, func(m *plainModel) (any, []message) { return m.acquire(owner, lease, latch) })
			}
			add("acquire", taking, []any{1, owner, at(-1)}, comesLate[*plainModel])
			add("undo", with, []any{0, owner, "", 0, at(-1)}, comesLate[*plainModel])
			add("release", with, []any{0, owner, "", latchSpan, false, at(-1)}, comesLate[*plainModel])
			add("release", with, []any{0, owner, "", latchSpan, false, 0}, func(m *plainModel) (any, []message) {
				return m.done.first(latch, func() (any, []message) { return m.release(owner, latch, false) })
			})
			for before := range 2 {
				add("undo", with, []any{0, owner, "", before, at(latchSpan)},
					func(m *plainModel) (any, []message) { return m.undo(owner, before, latch) })
			}
		}
		for _, lease := range []span{1, 3} {
			add("renew", []string{setLock, setLock}, []any{lease, owner, setOwners[1]},
				func(m *plainModel) (any, []message) { return m.renew(lease, owner, setOwners[1]) })
		}
		add("renew", keys[:1], []any{-2, owner}, func(m *plainModel) (any, []message) { return m.renew(-1, owner) })
	}
	add("force", keys, []any{"", at(1)}, (*plainModel).force)
	add("force", keys, []any{"", at(-1)}, comesLate[*plainModel])
	add("info", keys, nil, (*plainModel).info)
	for name, do := range map[string]func(m *plainModel){
		"HSET":    func(m *plainModel) { m.free(); m.alien = true },
		"DEL":     func(m *plainModel) { m.free(); m.alien = false },
		"PERSIST": func(m *plainModel) { m.lease = 0 },
	} {
		list = append(list, move{name: name, foreign: true, do: on(func(m *plainModel) (any, []message) { do(m); return nil, nil })})
	}
	return &scriptSet{kind: "plain", start: &plainModel{}, moves: list, accepts: acceptsPlain}
}

// acceptsPlain checks for the state that redsync, redislock and node-redlock expect: a string with a lease, and no messages.
func acceptsPlain(keys space, said []message) error {
	if len(said) > 0 {
		return fmt.Errorf("message %v", said[0])
	}
	for _, k := range keys {
		if k.life <= 0 || k.kind != "string" {
			return fmt.Errorf("%s is no string that expires", k.name)
		}
	}
	return nil
}
