package kinds_test

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// fairState is a reentrant lock with a queue of owners. Each owner counts as alive until a time.
type fairState struct {
	reentrantModel
	line      []string
	lineLife  span
	times     map[string]span
	timesLife span
	idle      struct { // state of the queue when the lock was last seen free
		first, last string
		until, life span
	}
}

const (
	setChannel  = "redisson_lock__channel:{" + setLock + "}"
	setQueue    = "redisson_lock_queue:{" + setLock + "}"
	setTimeouts = "redisson_lock_timeout:{" + setLock + "}"
	setIdle     = "lockwire_fair_head:{" + setLock + "}"

	aliveFor = span(6) // beyond a lease, whatever others do
	putOff   = span(3) // a near time
	idleLife = span(3)
	fairDay  = span(8640) // beyond the last time, for the line and its times
)

func (m *fairState) clone() model {
	c := *m
	c.line, c.times = slices.Clone(m.line), maps.Clone(m.times)
	return &c
}

func (m *fairState) keys() space {
	keys := m.reentrantModel.keys()
	if len(m.line) > 0 {
		keys = append(keys, key{setQueue, "list", m.lineLife, m.line})
	}
	if len(m.times) > 0 {
		k := key{setTimeouts, "zset", m.timesLife, nil}
		for owner, until := range m.times {
			k.parts = append(k.parts, owner, at(until))
		}
		keys = append(keys, k)
	}
	if m.idle.life > 0 {
		keys = append(keys, key{setIdle, "string", m.idle.life, []string{m.idle.first + " " + at(m.idle.until) + " " + m.idle.last}})
	}
	return keys
}

func (m *fairState) pass() {
	m.reentrantModel.pass()
	for owner := range m.times {
		m.times[owner] = max(m.times[owner]-1, -1) // -1: over
	}
	if m.lineLife--; m.lineLife <= 0 {
		m.line, m.lineLife = nil, 0
	}
	if m.timesLife--; m.timesLife <= 0 {
		m.times, m.timesLife = nil, 0
	}
	m.idle.until = max(m.idle.until-1, -1)
	m.idle.life = max(m.idle.life-1, 0)
}

// expire ends the line and its times together, as they do.
func (m *fairState) expire(name string) {
	m.reentrantModel.expire(name)
	switch name {
	case setQueue, setTimeouts:
		m.line, m.times, m.lineLife, m.timesLife = nil, nil, 0, 0
	case setIdle:
		m.idle.life = 0
	}
}

func (m *fairState) remove(owner string) {
	m.line = slices.DeleteFunc(m.line, func(o string) bool { return o == owner })
	delete(m.times, owner)
	if len(m.line) == 0 {
		m.lineLife = 0
	}
	if len(m.times) == 0 {
		m.timesLife = 0
	}
}

// head returns the first owner in the queue, "" for none, after removal of expired owners. except never expires.
func (m *fairState) head(except string) string {
	for len(m.line) > 0 && m.line[0] != except && m.times[m.line[0]] <= 0 {
		m.remove(m.line[0])
	}
	return m.first()
}

// first returns the first owner in the queue, expired or not; "" for none.
func (m *fairState) first() string {
	if len(m.line) == 0 {
		return ""
	}
	return m.line[0]
}

// advance brings the times of owners forward by the same amount, which brings none to before soonest.
func (m *fairState) advance(owners []string, sooner, soonest span) {
	owners = slices.DeleteFunc(slices.Clone(owners), func(o string) bool { _, ok := m.times[o]; return !ok })
	for _, owner := range owners {
		sooner = min(sooner, m.times[owner]-soonest)
	}
	for _, owner := range owners {
		m.times[owner] -= max(sooner, 0)
	}
}

// keep has the line last for a day longer than its last time.
func (m *fairState) keep() {
	last := slices.Max(slices.Collect(maps.Values(m.times)))
	m.lineLife, m.timesLife = last+fairDay, last+fairDay
}

// tell wakes the first owner in the queue.
func (m *fairState) tell() []message { return calls(m.head("")) }

func calls(owner string) []message {
	if owner == "" {
		return nil
	}
	return []message{{setChannel + ":" + owner, "0"}}
}

// fairAsk is the choices of an acquire.
type fairAsk struct {
	lease, wait      span
	stands, reenters bool
}

func (m *fairState) acquire(owner string, a fairAsk, latch int) (any, []message) {
	switch {
	case m.done[latch].outcome != "", m.alien, m.owner == owner && a.reenters:
		return m.reentrantModel.acquire(owner, a.lease, latch)
	case m.owner == owner:
		return status("reentry"), nil
	}
	first := m.head(owner)
	if m.owner == "" && (first == "" || first == owner) {
		sooner := m.times[owner] - a.lease
		m.remove(owner)
		if first == "" {
			m.times, m.timesLife = nil, 0
		}
		m.advance(slices.Collect(maps.Keys(m.times)), sooner, a.lease+aliveFor)
		m.idle.life = 0
		reply, _ := m.reentrantModel.acquire(owner, a.lease, latch)
		return reply, m.tellOfLease()
	}
	if a.stands {
		m.stand(owner, a)
	}
	switch {
	case m.owner == "":
		return 0, nil
	case m.lease == 0:
		return -1, nil
	}
	return m.lease, nil
}

func (m *fairState) stand(owner string, a fairAsk) {
	if len(m.line) != len(m.times) {
		m.sort(owner)
	}
	base, known := m.lease, slices.Contains(m.line, owner)
	switch {
	case known && m.times[owner] > min(a.wait, putOff):
		return
	case !known && len(m.line) > 0:
		base = max(base, m.times[m.line[len(m.line)-1]])
	}
	if m.times == nil {
		m.times = map[string]span{}
	}
	if m.times[owner] = base + a.wait; !known {
		m.line = append(m.line, owner)
	}
	m.keep()
}

// sort removes owners without a time, except owner, and the times of all owners outside the queue.
func (m *fairState) sort(owner string) {
	m.line = slices.DeleteFunc(m.line, func(o string) bool { _, ok := m.times[o]; return !ok && o != owner })
	maps.DeleteFunc(m.times, func(o string, _ span) bool { return !slices.Contains(m.line, o) })
	if len(m.line) == 0 {
		m.lineLife = 0
	}
	if len(m.times) == 0 {
		m.timesLife = 0
	}
}

func (m *fairState) passOver(owner string, counts bool) (any, []message) {
	if m.owner != "" || m.alien {
		return 0, nil
	}
	first := m.head(owner)
	if first == "" || first == owner {
		return 1, nil
	}
	idle := &m.idle
	if idle.life == 0 || idle.first != first || idle.until != m.times[first] {
		idle.first, idle.until, idle.last, idle.life = first, m.times[first], m.line[len(m.line)-1], idleLife
		return 0, nil
	}
	last := idle.last
	if _, stands := m.times[last]; !stands {
		last = first
	}
	// A step is longer than the grace; two steps are longer than the longest wait for an owner. Nobody listens.
	for stuck := idle.life == 1; stuck || counts && idle.life < idleLife; stuck = false {
		m.remove(first)
		dropped := first
		if first = m.head(owner); dropped == last || first == "" || first == owner {
			break
		}
	}
	switch {
	case first == "" || first == owner:
		return 1, nil
	case idle.life < idleLife:
		return 0, calls(first)
	}
	return 0, nil
}

// tellOfLease tells the head of a lock that is free, or will be within a step.
func (m *fairState) tellOfLease() []message {
	if m.owner == "" || m.lease == 1 {
		return m.tell()
	}
	return nil
}

func (m *fairState) release(owner string, rest span, latch int, repeated bool) (any, []message) {
	free := m.owner == "" && !m.alien && m.done[latch].outcome == ""
	reply, said := m.reentrantModel.release(owner, rest, latch, repeated)
	if free || said != nil {
		return reply, m.tell()
	}
	return reply, nil
}

func (m *fairState) undo(owner string, rest span, before int, wait span, waits, counts bool, latch int) (any, []message) {
	if m.done[latch].outcome != "" {
		m.done.undo(latch)
		return 0, nil
	}
	first := m.first()
	reply, freed := m.reentrantModel.undo(owner, rest, before, latch)
	switch {
	case m.alien:
		return reply, nil
	case waits && freed != nil:
		m.remove(owner)
		m.line = slices.Insert(m.line, 0, owner)
		if m.times == nil {
			m.times = map[string]span{}
		}
		m.times[owner] = wait
		m.keep()
	case !waits:
		if place := slices.Index(m.line, owner); place >= 0 {
			m.advance(m.line[place+1:], wait, m.lease+aliveFor)
		}
		_, timed := m.times[owner]
		if timed { // an owner without a time is removed at the front
			m.remove(owner)
		}
		if first == owner {
			m.idle.life = 0
		}
		if freed != nil || first == owner || timed && first != "" && counts { // nobody listens
			return reply, m.tellOfLease()
		}
	}
	return reply, nil
}

func (m *fairState) force() (any, []message) {
	reply, said := m.reentrantModel.force()
	if said != nil {
		said = m.tell()
	}
	return reply, said
}

func (m *fairState) info() (any, []message) {
	list := []any{len(m.line)}
	for _, owner := range m.line {
		list = append(list, owner)
		if until := m.times[owner]; until > 0 {
			list = append(list, until)
		} else {
			list = append(list, 0)
		}
	}
	reply, _ := m.reentrantModel.info()
	if m.alien {
		return reply, nil
	}
	return append(list, reply.([]any)...), nil
}

func fairSet() *scriptSet {
	var list []move
	keys := []string{setLock, setChannel, setQueue, setTimeouts, setIdle}
	add := func(script string, latch int, args []any, do func(m *fairState) (any, []message)) {
		keys := slices.Clone(keys)
		if latch >= 0 {
			keys = append(keys, setLatch(latch))
		}
		list = append(list, move{name: fmt.Sprint(script, keys[5:], args), script: script, keys: keys, args: args, do: on(do)})
	}
	for _, owner := range setOwners {
		for _, a := range []fairAsk{{2, 5, true, true}, {2, 5, true, false}, {2, 2, true, true}, {2, 5, false, true}, {1, 5, true, true}} {
			add("acquire", 0, []any{a.lease, owner, a.wait, a.stands, a.reenters, at(1), 0, publishBy},
				func(m *fairState) (any, []message) { return m.acquire(owner, a, 0) })
		}
		add("acquire", 0, []any{span(2), owner, span(5), true, true, at(-1), 0, publishBy}, comesLate[*fairState])
		add("undo", 0, []any{span(0), owner, publishBy, 0, at(-1), span(5), false}, comesLate[*fairState])
		add("release", 1, []any{span(0), owner, publishBy, latchSpan, false, at(-1), true}, comesLate[*fairState])
		add("release", 1, []any{span(0), owner, publishBy, latchSpan, false, 0, true}, func(m *fairState) (any, []message) {
			return m.done.first(1, func() (any, []message) { return m.release(owner, 0, 1, false) })
		})
		for rest := range span(2) {
			for _, again := range []bool{false, true} {
				add("release", 1, []any{rest, owner, publishBy, latchSpan, again, at(1), true},
					func(m *fairState) (any, []message) { return m.release(owner, rest, 1, again) })
				add("undo", 0, []any{rest, owner, publishBy, int(rest), at(latchSpan), span(5), again},
					func(m *fairState) (any, []message) { return m.undo(owner, rest, int(rest), 5, again, false, 0) })
			}
		}
		add("undo", 0, []any{span(0), owner, publishBy, 0, at(latchSpan), span(5), false, "", true},
			func(m *fairState) (any, []message) { return m.undo(owner, 0, 0, 5, false, true, 0) })
		for _, counts := range []bool{false, true} {
			add("pass", -1, []any{owner, publishBy, counts},
				func(m *fairState) (any, []message) { return m.passOver(owner, counts) })
		}
	}
	add("force", -1, []any{publishBy, at(1)}, (*fairState).force)
	add("force", -1, []any{publishBy, at(-1)}, comesLate[*fairState])
	add("info", -1, nil, (*fairState).info)
	list = append(list, foreignToReentrant(func(m model) *reentrantModel { return &m.(*fairState).reentrantModel })...)
	foreign := func(name string, do func(m *fairState)) {
		list = append(list, move{name: name, foreign: true,
			do: on(func(m *fairState) (any, []message) { do(m); return nil, nil })})
	}
	foreign("DEL "+setQueue, func(m *fairState) { m.line, m.lineLife = nil, 0 })
	foreign("DEL "+setTimeouts, func(m *fairState) { m.times, m.timesLife = nil, 0 })
	foreign("ZREM "+setTimeouts+" of the second in line", func(m *fairState) {
		if len(m.line) > 1 && len(m.times) > 1 {
			delete(m.times, m.line[1])
		}
	})
	return &scriptSet{kind: "fair", start: &fairState{}, moves: list, within: withinFair, accepts: acceptsFair}
}

// withinFair limits the states. Further holds, latches, keys of other types, an old sighting, and a long-lived queue appear
// without a combination with every queue.
func withinFair(m model) bool {
	f := m.(*fairState)
	waiting := max(len(f.line), len(f.times))
	_, led := f.times[f.first()]
	aside := f.holds > 1 || f.alien || f.owner != "" && f.lease == 0 ||
		len(f.line) != len(f.times) && (waiting > 1 && !(led && len(f.times) == 1) || f.idle.life > 0)
	for _, latch := range f.done {
		aside = aside || latch.outcome != ""
	}
	if f.idle.life > 0 && waiting > 0 {
		aside = aside || f.owner != "" || len(f.line) == 0 || f.idle.first != f.line[0] || f.idle.until != f.times[f.line[0]] ||
			f.idle.last != f.line[waiting-1]
	}
	last := span(0)
	for _, until := range f.times {
		last = max(last, until)
	}
	aside = aside || last > 12
	if len(f.line) > 0 && f.lineLife < fairDay-3 || len(f.times) > 0 && f.timesLife < fairDay-3 { // equal to any other time
		return false
	}
	return f.holds <= 2 && waiting <= 2 && (waiting == 0 || !aside)
}

// acceptsFair checks for the state that Redisson's fair lock expects: the hash of an RLock, a queue of owners with a time each,
// no further times, and payload 0 on the channels of waiters.
func acceptsFair(keys space, said []message) error {
	for _, m := range said {
		if !strings.HasPrefix(m.channel, setChannel+":client:") || m.payload != "0" {
			return fmt.Errorf("message %v", m)
		}
	}
	var others space
	var line, times []string
	for _, k := range keys {
		switch {
		case k.life <= 0:
			return fmt.Errorf("%s never expires", k.name)
		case k.name == setQueue && k.kind == "list":
			line = slices.Sorted(slices.Values(k.parts))
		case k.name == setTimeouts && k.kind == "zset":
			for i := 0; i < len(k.parts); i += 2 {
				times = append(times, k.parts[i])
				if n, err := strconv.Atoi(strings.TrimPrefix(k.parts[i+1], "@")); err != nil || n > 100 {
					return fmt.Errorf("a time of %s", k.parts[i+1])
				}
			}
		case k.name == setIdle && k.kind == "string": // ours alone
		default:
			others = append(others, k)
		}
	}
	if slices.Sort(times); !slices.Equal(line, times) || len(slices.Compact(line)) != len(times) {
		return fmt.Errorf("%v stand in line, and %v have times", line, times)
	}
	return acceptsReentrant(others, nil)
}
