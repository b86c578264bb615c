package kinds_test

import (
	"fmt"
	"strconv"
	"strings"
)

// scriptSets are the kinds whose scripts TestServerScripts compares with a model.
var scriptSets = []*scriptSet{
	reentrantSet(), nonReentrantSet(), fencedSet("by time", 0), fencedSet("plain", plainTokens), fencedSet("with a life", 2), readWriteSet("read"), readWriteSet("write"),
	semaphoreSet(), permitsSet(), latchSet(), plainSet(), fairSet(), fasterMultiSet(),
}

const setLock = "set" // the name of the lock in all sets

var setOwners = []string{"client:0", "client:1", "client:2"}

const setNobody = "client:-1" // the owner of a lock that is kept

// setLatch is the key of one request.
func setLatch(i int) string { return fmt.Sprintf("redisson_unlock_latch:{%s}:%d", setLock, i) }

// latches are the latches of the requests, by number. Kinds with the same release share them.
type latches [2]struct {
	outcome string // "" is not there
	life    span
}

const latchSpan = span(2)

func (l *latches) note(i int, outcome string) {
	l[i].outcome, l[i].life = outcome, latchSpan
}

// undo records the undo of a request, for longer after a later undo, and reports whether the request was undone before.
func (l *latches) undo(i int) bool {
	if l[i].outcome == "" {
		l.note(i, "0")
		return false
	}
	l[i].life = max(l[i].life, latchSpan)
	return true
}

// first is release without a look at latch i.
func (l *latches) first(i int, release func() (any, []message)) (any, []message) {
	before := l[i]
	l[i].outcome = ""
	reply, said := release()
	if l[i].outcome == "" {
		l[i] = before
	}
	return reply, said
}

// late is the reply to a late request.
const late = status("late @0")

// comesLate is the effect of a late request: none.
func comesLate[M model](M) (any, []message) { return late, nil }

func (l *latches) keys() (keys space) {
	for i, latch := range l {
		if latch.outcome != "" {
			keys = append(keys, key{setLatch(i), "string", latch.life, []string{latch.outcome}})
		}
	}
	return keys
}

func (l *latches) pass() {
	for i := range l {
		if l[i].outcome != "" {
			if l[i].life--; l[i].life == 0 {
				l[i].outcome = ""
			}
		}
	}
}

func (l *latches) expire(name string) {
	for i := range l {
		if name == setLatch(i) {
			l[i].outcome, l[i].life = "", 0
		}
	}
}

// reentrantModel is a lock with one owner and a hold count.
type reentrantModel struct {
	owner string // "" is free
	holds int
	lease span // 0: none; our scripts never leave a lock without a lease
	alien bool // the key is no lock
	done  latches
}

func (m *reentrantModel) clone() model { c := *m; return &c }

func (m *reentrantModel) keys() space {
	keys := m.done.keys()
	switch {
	case m.alien:
		keys = append(keys, key{setLock, "string", 0, []string{"x"}})
	case m.owner != "":
		keys = append(keys, key{setLock, "hash", m.lease, []string{m.owner, strconv.Itoa(m.holds)}})
	}
	return keys
}

func (m *reentrantModel) pass() {
	m.done.pass()
	if m.lease > 0 {
		if m.lease--; m.lease == 0 {
			m.free()
		}
	}
}

func (m *reentrantModel) expire(name string) {
	if name == setLock {
		m.free()
	}
	m.done.expire(name)
}

func (m *reentrantModel) free() { m.owner, m.holds, m.lease = "", 0, 0 }

func (m *reentrantModel) freed() []message {
	m.free()
	return []message{{"redisson_lock__channel:{" + setLock + "}", "0"}}
}

func (m *reentrantModel) acquire(owner string, lease span, latch int) (any, []message) {
	if m.done[latch].outcome != "" {
		return -1, nil
	}
	switch m.owner {
	case "":
		if m.alien {
			return failure("WRONGTYPE"), nil
		}
		m.owner, m.holds, m.lease = owner, 1, lease
		return nil, nil
	case owner:
		m.holds++
		m.lease = max(m.lease, lease)
		return status(strconv.Itoa(m.holds)), nil
	}
	if m.lease == 0 {
		return -1, nil
	}
	return m.lease, nil
}

func (m *reentrantModel) release(owner string, rest span, latch int, repeated bool) (any, []message) {
	switch outcome := m.done[latch].outcome; {
	case outcome != "":
		if n, err := strconv.Atoi(outcome); err == nil && n >= 0 {
			return n, nil
		}
		return nil, nil
	case m.alien:
		return failure("WRONGTYPE"), nil
	case m.owner != owner && repeated:
		m.done.note(latch, "-1")
		return nil, nil
	case m.owner != owner:
		return nil, nil
	case m.holds > 1 && rest > 0:
		m.holds, m.lease = m.holds-1, rest
		m.done.note(latch, "0")
		return 0, nil
	}
	m.done.note(latch, "1")
	return 1, m.freed()
}

func (m *reentrantModel) single(owner string, latch int, repeated bool) (any, []message) {
	switch {
	case repeated && m.done[latch].outcome == owner:
		return 1, nil
	case m.alien:
		return failure("WRONGTYPE"), nil
	case m.owner != owner:
		return nil, nil
	}
	m.done.note(latch, owner)
	return 2, m.freed() // publishBy wakes one listener
}

// keep makes the lease that of setNobody.
func (m *reentrantModel) keep(owner string, rest span, publish string, latch int, repeated bool) (any, []message) {
	switch {
	case repeated && m.done[latch].outcome == owner:
		return 1, nil
	case m.alien:
		return failure("WRONGTYPE"), nil
	case m.owner != owner:
		return nil, nil
	}
	m.owner, m.holds, m.lease = setNobody, 1, rest
	m.done.note(latch, owner)
	if publish == "" {
		return 1, nil
	}
	return 1, []message{{"redisson_lock__channel:{" + setLock + "}", "0"}}
}

// handOver makes heir the owner of a single hold. inherit returns the reply, or fails.
func (m *reentrantModel) handOver(owner, heir string, lease span, latch int, inherit func() any) (any, []message) {
	switch {
	case m.alien:
		return failure("WRONGTYPE"), nil
	case m.owner != owner:
		return nil, nil
	}
	reply := inherit()
	if _, failed := reply.(failure); !failed {
		m.owner, m.holds, m.lease = heir, 1, lease
		m.done.note(latch, owner)
	}
	return reply, nil
}

func (m *reentrantModel) undo(owner string, rest span, before, latch int) (any, []message) {
	if m.done.undo(latch) {
		return 0, nil
	}
	switch {
	case m.alien:
		return failure("WRONGTYPE"), nil
	case m.owner != owner || m.holds <= before:
		return 0, nil
	case before > 0 && rest > 0:
		m.holds, m.lease = before, rest
		return 1, nil
	}
	return 1, m.freed()
}

// renew is of the same lock for each of owners; lease is negative to look only.
func (m *reentrantModel) renew(lease span, owners ...string) (any, []message) {
	return renewAll(m.owner, m.alien, &m.lease, lease, owners)
}

// renewAll renews one lock for each of owners. holder has the lock until the end of kept; alien: the key is no lock.
func renewAll(holder string, alien bool, kept *span, lease span, owners []string) (any, []message) {
	var list []any
	for _, owner := range owners {
		switch {
		case holder == owner:
			*kept = max(*kept, lease)
			list = append(list, 1)
		case holder == "" && !alien:
			list = append(list, 0)
		default:
			list = append(list, -1)
		}
	}
	return list, nil
}

func (m *reentrantModel) force() (any, []message) {
	switch {
	case m.alien:
		return failure("WRONGTYPE"), nil
	case m.owner == "":
		return 0, nil
	}
	return 1, m.freed()
}

func (m *reentrantModel) info() (any, []message) {
	switch {
	case m.alien:
		return failure("WRONGTYPE"), nil
	case m.owner == "":
		return []any{-2}, nil
	case m.lease == 0:
		return []any{-1, m.owner, strconv.Itoa(m.holds)}, nil
	}
	return []any{m.lease, m.owner, strconv.Itoa(m.holds)}, nil
}

// on adapts a move of a model of type M.
func on[M model](do func(m M) (any, []message)) func(model) (any, []message) {
	return func(m model) (any, []message) { return do(m.(M)) }
}

func reentrantSet() *scriptSet {
	moves := exclusive[*reentrantModel]{latches: len(latches{})}
	return &scriptSet{
		kind:  "reentrant",
		start: &reentrantModel{},
		moves: moves.list(func(m *reentrantModel) *reentrantModel { return m },
			func(m *reentrantModel, owner string, lease span, latch int) (any, []message) {
				return m.acquire(owner, lease, latch)
			}),
		within:  func(m model) bool { return m.(*reentrantModel).holds <= 4 },
		accepts: acceptsReentrant,
	}
}

// exclusive makes the moves of a kind that shares all scripts of a reentrant lock except acquire and info.
type exclusive[M model] struct {
	latches int           // number of requests with a latch
	token   []string      // the key of the last token; nil for none
	own     []any         // last ARGV of acquire and handover
	inherit func(m M) any // reply of handover; nil: 1
	info    func(m M) (any, []message)
}

func (e exclusive[M]) list(part func(M) *reentrantModel, acquire func(m M, owner string, lease span, latch int) (any, []message)) []move {
	channel := "redisson_lock__channel:{" + setLock + "}"
	keys := []string{setLock, channel}
	if e.inherit == nil {
		e.inherit = func(M) any { return 1 }
	}
	var list []move
	add := func(script string, keys []string, args []any, do func(m M) (any, []message)) {
		list = append(list, move{name: fmt.Sprint(script, keys[1:], args), script: script, keys: keys, args: args, do: on(do)})
	}
	lock := func(do func(m *reentrantModel) (any, []message)) func(m M) (any, []message) {
		return func(m M) (any, []message) { return do(part(m)) }
	}
	with := func(latch int) []string { return []string{setLock, channel, setLatch(latch)} }
	taking := func(latch int) []string { return append(append([]string{setLock}, e.token...), setLatch(latch)) }
	for _, owner := range setOwners {
		for latch := range e.latches {
			for lease := span(1); lease <= 3; lease++ {
				add("acquire", taking(latch), append(append([]any{lease, owner}, e.own...), at(1)),
					func(m M) (any, []message) { return acquire(m, owner, lease, latch) })
			}
			add("acquire", taking(latch), append(append([]any{1, owner}, e.own...), at(-1)),
				comesLate[M])
			add("undo", with(latch), []any{0, owner, publishBy, 0, at(-1)}, comesLate[M])
			for rest := span(0); rest <= 2; rest++ {
				for before := range 3 {
					add("undo", with(latch), []any{rest, owner, publishBy, before, at(latchSpan)},
						lock(func(m *reentrantModel) (any, []message) { return m.undo(owner, rest, before, latch) }))
				}
				for _, heir := range setOwners {
					if heir != owner && rest > 0 && latch == 0 {
						keys, args := append(with(latch), setLatch(e.latches-1)), append([]any{rest, owner, heir, latchSpan}, e.own...)
						add("handover", keys, append(args[:len(args):len(args)], at(1)), func(m M) (any, []message) {
							if part(m).done[e.latches-1].outcome != "" {
								return nil, nil
							}
							return part(m).handOver(owner, heir, rest, latch, func() any { return e.inherit(m) })
						})
						add("handover", keys, append(args[:len(args):len(args)], at(-1)), comesLate[M])
					}
				}
				add("release", with(latch), []any{rest, owner, publishBy, latchSpan, false, at(-1)}, comesLate[M])
				for _, repeated := range []bool{false, true} {
					add("release", with(latch), []any{rest, owner, publishBy, latchSpan, repeated, at(1)},
						lock(func(m *reentrantModel) (any, []message) { return m.release(owner, rest, latch, repeated) }))
				}
			}
		}
		for _, repeated := range []bool{false, true} {
			single := []any{owner, publishBy, "1", "", "", repeated}
			if !repeated {
				single = single[:3]
			}
			add("single", with(0), single,
				lock(func(m *reentrantModel) (any, []message) { return m.single(owner, 0, repeated) }))
			for _, publish := range []string{publishBy, ""} {
				add("keep", with(0), []any{span(2), owner, publish, latchSpan, repeated, at(1), setNobody},
					lock(func(m *reentrantModel) (any, []message) { return m.keep(owner, 2, publish, 0, repeated) }))
			}
		}
		add("keep", with(0), []any{span(2), owner, publishBy, latchSpan, false, at(-1), setNobody}, comesLate[M])
		for _, lease := range []span{1, 3} {
			add("renew", []string{setLock, setLock}, []any{lease, owner, setOwners[1]},
				lock(func(m *reentrantModel) (any, []message) { return m.renew(lease, owner, setOwners[1]) }))
		}
		add("renew", keys[:1], []any{-2, owner},
			lock(func(m *reentrantModel) (any, []message) { return m.renew(-1, owner) }))
	}
	add("force", keys, []any{publishBy, at(1)}, lock((*reentrantModel).force))
	add("force", keys, []any{publishBy, at(-1)}, comesLate[M])
	if e.info == nil {
		e.info = lock((*reentrantModel).info)
	}
	add("info", keys, nil, e.info)
	return append(list, foreignToReentrant(func(m model) *reentrantModel { return part(m.(M)) })...)
}

// foreignToReentrant are the moves of other programs on the lock in a model; of finds the lock.
func foreignToReentrant(of func(m model) *reentrantModel) []move {
	change := func(name string, do func(m *reentrantModel)) move {
		return move{name: name, foreign: true, do: func(m model) (any, []message) { do(of(m)); return nil, nil }}
	}
	return []move{
		change("SET "+setLock, func(m *reentrantModel) { m.free(); m.alien = true }),
		change("DEL "+setLock, func(m *reentrantModel) { m.free(); m.alien = false }),
		change("PERSIST "+setLock, func(m *reentrantModel) { m.lease = 0 }),
	}
}

// acceptsReentrant checks for the state that Redisson's RLock expects: a hash with one owner, a count of at least 1 and a lease, and
// payload 0 on the channel.
func acceptsReentrant(keys space, said []message) error {
	for _, m := range said {
		if m != (message{"redisson_lock__channel:{" + setLock + "}", "0"}) {
			return fmt.Errorf("message %v", m)
		}
	}
	for _, k := range keys {
		switch {
		case k.life <= 0:
			return fmt.Errorf("%s never expires", k.name)
		case k.name == setLock:
			if err := acceptsHold(k); err != nil {
				return err
			}
		default:
			if err := acceptsLatch(k); err != nil {
				return err
			}
		}
	}
	return nil
}

// acceptsHold checks the hash of a lock with one owner.
func acceptsHold(k key) error {
	if k.kind != "hash" || len(k.parts) != 2 || !strings.HasPrefix(k.parts[0], "client:") {
		return fmt.Errorf("%s is no lock with one owner: %s", k.name, k.text())
	}
	if n, err := strconv.Atoi(k.parts[1]); err != nil || n < 1 {
		return fmt.Errorf("%s has a hold count of %s", k.name, k.parts[1])
	}
	return nil
}

// acceptsLatch checks a key that is not the kind's own: Redisson's unlock leaves such keys too.
func acceptsLatch(k key) error {
	if !strings.HasPrefix(k.name, "redisson_unlock_latch:{"+setLock+"}:") || k.kind != "string" {
		return fmt.Errorf("a key that Redisson does not have: %s", k.text())
	}
	return nil
}
