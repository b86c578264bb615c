package kinds_test

import (
	"fmt"
	"strconv"
	"strings"
)

// counter is a key that holds a number.
type counter struct {
	set   bool
	n     int
	life  span
	alien bool // the key holds something else
	done  latches
}

func (c *counter) keys() space {
	keys := c.done.keys()
	switch {
	case c.alien:
		keys = append(keys, key{setLock, "string", 0, []string{"x"}})
	case c.set:
		keys = append(keys, key{setLock, "string", c.life, []string{strconv.Itoa(c.n)}})
	}
	return keys
}

func (c *counter) pass() {
	c.done.pass()
	if c.life > 0 {
		if c.life--; c.life == 0 {
			c.clear()
		}
	}
}

func (c *counter) expire(name string) {
	if name == setLock {
		c.clear()
	}
	c.done.expire(name)
}

func (c *counter) clear() { c.set, c.n, c.life, c.alien = false, 0, 0, false }

// add is INCRBY.
func (c *counter) add(n int) int {
	c.set = true
	c.n += n
	return c.n
}

// change is the common part of all changes: the outcome of an earlier request, a key of another type, and the record of the
// outcome. do returns the outcome.
func (c *counter) change(do func() (int, []message)) (any, []message) {
	if text := c.done[1].outcome; text != "" {
		n, _ := strconv.Atoi(text)
		return n, nil
	}
	if c.alien {
		return failure("WRONGTYPE"), nil
	}
	outcome, said := do()
	c.done.note(1, strconv.Itoa(outcome))
	return outcome, said
}

func (c *counter) foreign(of func(m model) *counter) []move {
	foreign := func(name string, do func(c *counter)) move {
		return move{name: name + " " + setLock, foreign: true, do: func(m model) (any, []message) { do(of(m)); return nil, nil }}
	}
	return []move{
		foreign("SET x", func(c *counter) { c.clear(); c.alien = true }),
		foreign("DEL", func(c *counter) { c.clear() }),
		foreign("PEXPIRE", func(c *counter) {
			if c.set {
				c.life = 2
			}
		}),
	}
}

const setSemaphoreChannel = "redisson_sc:{" + setLock + "}"

func told(free int) []message { return []message{{setSemaphoreChannel, strconv.Itoa(max(0, free))}} }

// semaphoreModel is a number of free permits.
type semaphoreModel struct{ counter }

func (m *semaphoreModel) clone() model { c := *m; return &c }

func (m *semaphoreModel) acquire(n int, waits bool) (any, []message) {
	switch taken := m.done[0].outcome; {
	case taken == "0":
		return -1, nil
	case taken != "":
		m.done.note(0, taken)
		return nil, nil
	case m.alien:
		return failure("WRONGTYPE"), nil
	case !m.set && !waits:
		return status("unset"), nil
	case !m.set, m.n < n:
		return -1, nil
	}
	m.n -= n
	m.done.note(0, strconv.Itoa(n))
	return nil, nil
}

func (m *semaphoreModel) undo() (any, []message) {
	if m.alien {
		return failure("WRONGTYPE"), nil
	}
	taken, _ := strconv.Atoi(m.done[0].outcome)
	m.done.note(0, "0")
	if taken == 0 || !m.set {
		return 0, nil
	}
	return 1, told(m.add(taken))
}

func (m *semaphoreModel) addPermits(n int, existing bool) (any, []message) {
	return m.change(func() (int, []message) {
		if existing && !m.set {
			return 0, nil
		}
		return 1, told(m.add(n))
	})
}

func (m *semaphoreModel) drain() (any, []message) {
	return m.change(func() (int, []message) {
		n := m.n
		m.n = 0
		return n, nil
	})
}

// setUp is of permits with and without ids.
func (c *counter) setUp(n int, ends span) (any, []message) {
	return c.change(func() (int, []message) {
		if c.set {
			return 0, nil
		}
		c.set, c.n, c.life = true, n, ends
		return 1, told(n)
	})
}

func (m *semaphoreModel) info() (any, []message) {
	switch {
	case m.alien:
		return failure("WRONGTYPE"), nil
	case !m.set:
		return []any{}, nil
	case m.life == 0:
		return []any{m.n, -1}, nil
	}
	return []any{m.n, m.life}, nil
}

func semaphoreSet() *scriptSet {
	set := &scriptSet{kind: "semaphore", start: &semaphoreModel{}, accepts: acceptsSemaphore}
	set.within = func(m model) bool { n := m.(*semaphoreModel).n; return n >= -3 && n <= 4 }
	keys := []string{setLock, setSemaphoreChannel}
	own, other := append(keys[:2:2], setLatch(0)), append(keys[:2:2], setLatch(1))
	add := func(script string, keys []string, args []any, do func(m *semaphoreModel) (any, []message)) {
		set.moves = append(set.moves, move{name: fmt.Sprint(script, args), script: script, keys: keys, args: args, do: on(do)})
	}
	for _, yes := range []bool{false, true} {
		for _, n := range []int{1, 2} {
			add("acquire", own, []any{latchSpan / 2, "", n, yes, at(1)}, func(m *semaphoreModel) (any, []message) { return m.acquire(n, yes) })
		}
		for _, n := range []int{-2, 1, 2} {
			add("add", other, []any{latchSpan - 1, publishBy, n, yes, at(1)}, func(m *semaphoreModel) (any, []message) { return m.addPermits(n, yes) })
		}
	}
	for _, ends := range []span{0, 2} {
		add("set", other, []any{latchSpan - 1, publishBy, 2, ends, at(1)}, func(m *semaphoreModel) (any, []message) { return m.setUp(2, ends) })
	}
	add("acquire", own, []any{latchSpan / 2, "", 1, true, at(-1)}, comesLate[*semaphoreModel])
	add("undo", own, []any{span(0), "", publishBy, 0, at(latchSpan)}, (*semaphoreModel).undo)
	add("undo", own, []any{span(0), "", publishBy, 0, at(-1)}, comesLate[*semaphoreModel])
	add("drain", other, []any{latchSpan - 1, publishBy, at(1)}, (*semaphoreModel).drain)
	add("set", other, []any{latchSpan, publishBy, 2, 0, at(-1)}, comesLate[*semaphoreModel])
	add("add", other, []any{latchSpan, publishBy, 1, false, at(-1)}, comesLate[*semaphoreModel])
	add("drain", other, []any{latchSpan, publishBy, at(-1)}, comesLate[*semaphoreModel])
	add("info", keys, nil, (*semaphoreModel).info)
	set.moves = append(set.moves, (*counter)(nil).foreign(func(m model) *counter { return &m.(*semaphoreModel).counter })...)
	return set
}

// acceptsSemaphore checks for the state that Redisson's RSemaphore expects: an integer, and payloads of at least 0.
func acceptsSemaphore(keys space, said []message) error {
	for _, m := range said {
		if n, err := strconv.Atoi(m.payload); err != nil || n < 0 || m.channel != setSemaphoreChannel {
			return fmt.Errorf("message %v", m)
		}
	}
	for _, k := range keys {
		if k.name != setLock {
			if err := acceptsLatch(k); err != nil {
				return err
			}
		} else if _, err := strconv.Atoi(k.parts[0]); err != nil || k.kind != "string" {
			return fmt.Errorf("no number of permits: %s", k.text())
		}
	}
	return nil
}

// latchModel is a count that somebody waits for.
type latchModel struct{ counter }

func (m *latchModel) clone() model { c := *m; return &c }

const setLatchChannel = "redisson_countdownlatch__channel__{" + setLock + "}"

func (m *latchModel) look() (any, []message) {
	switch {
	case m.alien:
		return failure("WRONGTYPE"), nil
	case !m.set:
		return nil, nil
	case m.life == 0:
		return -1, nil
	}
	return m.life, nil
}

func (m *latchModel) setCount(n int) (any, []message) {
	return m.change(func() (int, []message) {
		if m.set {
			return 0, nil
		}
		m.set, m.n = true, n
		return 1, []message{{setLatchChannel, "1"}}
	})
}

func (m *latchModel) down() (any, []message) {
	return m.change(func() (int, []message) {
		switch {
		case !m.set:
			return 0, nil
		case m.n == 1:
			m.clear()
			return 0, []message{{setLatchChannel, "0"}}
		}
		return m.add(-1), nil
	})
}

func (m *latchModel) delete() (any, []message) {
	return m.change(func() (int, []message) {
		if !m.set {
			return 0, nil
		}
		m.clear()
		return 1, []message{{setLatchChannel, "1"}, {setLatchChannel, "0"}}
	})
}

func latchSet() *scriptSet {
	set := &scriptSet{kind: "latch", start: &latchModel{}, accepts: acceptsCount}
	keys := []string{setLock, setLatchChannel}
	add := func(script string, keys []string, args []any, do func(m *latchModel) (any, []message)) {
		set.moves = append(set.moves, move{name: fmt.Sprint(script, args), script: script, keys: keys, args: args, do: on(do)})
	}
	other := append(keys[:2:2], setLatch(1))
	for n := 1; n <= 8; n++ {
		add("set", other, []any{latchSpan - 1, publishBy, n, at(1)}, func(m *latchModel) (any, []message) { return m.setCount(n) })
	}
	add("acquire", keys[:1], []any{span(1), ""}, (*latchModel).look)
	add("down", other, []any{latchSpan - 1, publishBy, at(1)}, (*latchModel).down)
	add("delete", other, []any{latchSpan - 1, publishBy, at(1)}, (*latchModel).delete)
	add("set", other, []any{latchSpan, publishBy, 1, at(-1)}, comesLate[*latchModel])
	add("down", other, []any{latchSpan, publishBy, at(-1)}, comesLate[*latchModel])
	add("delete", other, []any{latchSpan, publishBy, at(-1)}, comesLate[*latchModel])
	set.moves = append(set.moves, (*counter)(nil).foreign(func(m model) *counter { return &m.(*latchModel).counter })...)
	return set
}

// acceptsCount is what Redisson's RCountDownLatch expects: a number above 0, and payload 0 or 1.
func acceptsCount(keys space, said []message) error {
	for _, m := range said {
		if m.channel != setLatchChannel || m.payload != "0" && m.payload != "1" {
			return fmt.Errorf("message %v", m)
		}
	}
	for _, k := range keys {
		if k.name != setLock {
			if err := acceptsLatch(k); err != nil {
				return err
			}
		} else if n, err := strconv.Atoi(strings.Join(k.parts, " ")); err != nil || n < 1 || k.kind != "string" {
			return fmt.Errorf("no count: %s", k.text())
		}
	}
	return nil
}
