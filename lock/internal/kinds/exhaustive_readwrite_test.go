package kinds_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/lockwire/lockwire/internal/lockscripts"
)

// readWriteModel is a read-write lock: the read holds of each owner, with a lease each, and the writer.
type readWriteModel struct {
	mode   string // "" is free
	lease  span   // of the lock
	reads  [3]int // by owner
	left   [3][4]span
	writer int // owner; counts if writes is above 0
	writes int
	told   [3]bool // owners announced as waiting writers
	until  [3]span // as a point in time
	word   span    // lease of the key with these announcements
	other  string  // the key is a "string", or a "hash" of another kind of lock
	done   latches
}

const (
	setReadWrite = "redisson_rwlock:{" + setLock + "}"
	setWriters   = "lockwire_rwlock_writers:{" + setLock + "}"
	setTold      = span(2)
)

func (m *readWriteModel) clone() model { c := *m; return &c }

func (m *readWriteModel) keys() space {
	keys := m.done.keys()
	switch {
	case m.other == "string":
		keys = append(keys, key{setLock, "string", 0, []string{"x"}})
	case m.other == "hash":
		keys = append(keys, key{setLock, "hash", 0, []string{"client:0", "1"}})
	case m.mode != "":
		k := key{setLock, "hash", m.lease, []string{"mode", m.mode}}
		for o, n := range m.reads {
			if n > 0 {
				k.parts = append(k.parts, setOwners[o], strconv.Itoa(n))
			}
		}
		if m.writes > 0 {
			k.parts = append(k.parts, setOwners[m.writer]+":write", strconv.Itoa(m.writes))
		}
		keys = append(keys, k)
	}
	for o := range m.left {
		for n, left := range m.left[o] {
			if left > 0 {
				keys = append(keys, key{lockscripts.TimeoutKey(setLock, setOwners[o], int64(n+1)), "string", left, []string{"1"}})
			}
		}
	}
	if m.word > 0 {
		k := key{setWriters, "zset", m.word, nil}
		for o, told := range m.told {
			if told {
				k.parts = append(k.parts, setOwners[o]+":write", at(m.until[o]))
			}
		}
		keys = append(keys, k)
	}
	return keys
}

func (m *readWriteModel) pass() {
	m.done.pass()
	if m.mode != "" {
		if m.lease--; m.lease == 0 {
			m.free()
		}
	}
	for o := range m.left {
		for n := range m.left[o] {
			m.left[o][n] = max(m.left[o][n]-1, 0)
		}
		if m.told[o] {
			m.until[o]--
		}
	}
	if m.word > 0 {
		if m.word--; m.word == 0 {
			m.told, m.until = [3]bool{}, [3]span{}
		}
	}
}

func (m *readWriteModel) expire(name string) {
	switch {
	case name == setLock:
		m.free()
	case name == setWriters:
		m.told, m.until, m.word = [3]bool{}, [3]span{}, 0
	case strings.Contains(name, ":rwlock_timeout:"):
		for o := range m.left {
			for n := range m.left[o] {
				if name == lockscripts.TimeoutKey(setLock, setOwners[o], int64(n+1)) {
					m.left[o][n] = 0
				}
			}
		}
	}
	m.done.expire(name)
}

// free takes the lock away, and leaves whatever else there is.
func (m *readWriteModel) free() {
	m.mode, m.lease, m.reads, m.writer, m.writes = "", 0, [3]int{}, 0, 0
}

// longest returns the longest remaining lease of an owner's read holds.
func (m *readWriteModel) longest(o int) span {
	return slices.Max(append([]span{0}, m.left[o][:m.reads[o]]...))
}

// settle keeps a lock for reading as long as the longest lease of its readers, or frees it.
func (m *readWriteModel) settle() (freed bool) {
	m.mode, m.lease = "read", 0
	for o := range m.reads {
		m.lease = max(m.lease, m.longest(o))
	}
	if m.lease == 0 {
		m.free()
	}
	return m.lease == 0
}

// hold sets the number of an owner's read holds. The holds still alive, or the last hold, get a lease of rest.
func (m *readWriteModel) hold(o, holds int, rest span) {
	if holds > 0 && slices.Max(m.left[o][:holds]) == 0 {
		m.left[o][holds-1] = rest
	}
	for n := range m.reads[o] {
		if n >= holds {
			m.left[o][n] = 0
		} else if m.left[o][n] > 0 {
			m.left[o][n] = rest
		}
	}
	if m.reads[o] = holds; holds > 0 {
		m.lease = max(m.lease, rest)
	}
}

func (m *readWriteModel) undone(latch int) bool { return m.done[latch].outcome != "" }

func (m *readWriteModel) read(o int, lease span, polite bool, latch int) (any, []message) {
	switch {
	case m.undone(latch):
		return -1, nil
	case m.other != "":
		return failure("WRONGTYPE"), nil
	case m.mode == "write" && m.writer != o:
		return m.lease, nil
	}
	if m.longest(o) == 0 {
		last := span(0)
		for w, told := range m.told {
			if told {
				last = max(last, m.until[w])
			}
		}
		if polite && m.mode != "write" && last > 0 {
			return last, nil
		}
		m.reads[o] = 0
	}
	if m.mode == "" {
		m.mode = "read"
	}
	m.left[o][m.reads[o]] = lease
	m.reads[o]++
	m.lease = max(m.lease, lease)
	if m.reads[o] > 1 {
		return status(strconv.Itoa(m.reads[o])), nil
	}
	return nil, nil
}

// repeat returns the answer to a repeated or useless release, and reports whether there is more to do.
func (m *readWriteModel) repeat(holds, latch int, repeated bool) (reply any, more bool) {
	switch outcome := m.done[latch].outcome; {
	case outcome == "-1":
		return nil, false
	case outcome != "":
		n, _ := strconv.Atoi(outcome)
		return n, false
	case m.other == "string":
		return failure("WRONGTYPE"), false
	case holds == 0 && repeated:
		m.done.note(latch, "-1")
	}
	return nil, holds > 0
}

func (m *readWriteModel) unread(o int, rest span, latch int, repeated bool) (any, []message) {
	known := m.done[latch].outcome != "" || m.other == "string"
	reply, more := m.repeat(m.reads[o], latch, repeated)
	if !more {
		for n := 0; !known && n < len(m.left[o]); n++ {
			m.left[o][n] = 0
		}
		return reply, nil
	}
	holds, outcome := 0, 1
	if m.reads[o] > 1 && rest > 0 {
		holds, outcome = m.reads[o]-1, 0
	}
	m.hold(o, holds, rest)
	m.done.note(latch, strconv.Itoa(outcome))
	if m.mode == "read" && m.settle() {
		return outcome, []message{{setReadWrite, "0"}}
	}
	return outcome, nil
}

func (m *readWriteModel) undoRead(o int, rest span, before, latch int) (any, []message) {
	switch {
	case m.done.undo(latch):
		return 0, nil
	case m.other == "string":
		return failure("WRONGTYPE"), nil
	case m.reads[o] <= before:
		return 0, nil
	case rest == 0:
		before = 0
	}
	m.hold(o, before, rest)
	if m.mode == "read" && m.settle() {
		return 1, []message{{setReadWrite, "0"}}
	}
	return 1, nil
}

// renewRead is of the same lock for each of owners; lease is negative to look only.
func (m *readWriteModel) renewRead(lease span, owners ...int) (any, []message) {
	var list []any
	for _, o := range owners {
		switch {
		case m.reads[o] == 0 && m.mode == "" && m.other == "":
			list = append(list, 0)
		case m.reads[o] == 0:
			list = append(list, -1)
		case m.longest(o) == 0:
			list = append(list, 0)
		default:
			for n := range m.reads[o] {
				if m.left[o][n] > 0 {
					m.left[o][n] = max(m.left[o][n], lease)
				}
			}
			m.lease = max(m.lease, lease)
			list = append(list, 1)
		}
	}
	return list, nil
}

func (m *readWriteModel) force(mode, payload string) (any, []message) {
	switch {
	case m.other != "":
		return failure("WRONGTYPE"), nil
	case m.mode != mode:
		return 0, nil
	}
	m.free() // the leases of its readers end by themselves
	return 1, []message{{setReadWrite, payload}}
}

func (m *readWriteModel) info() (any, []message) {
	switch {
	case m.other != "":
		return failure("WRONGTYPE"), nil
	case m.mode == "":
		return []any{-2, ""}, nil
	}
	list := []any{m.lease, m.mode}
	for o, n := range m.reads {
		if n > 0 {
			left := any(m.longest(o))
			if left == span(0) {
				left = 0
			}
			list = append(list, setOwners[o], strconv.Itoa(n), left)
		}
	}
	if m.writes > 0 {
		list = append(list, setOwners[m.writer]+":write", strconv.Itoa(m.writes), m.lease)
	}
	return list, nil
}

func (m *readWriteModel) write(o int, lease, told span, latch int) (any, []message) {
	switch {
	case m.undone(latch):
		return -1, nil
	case m.other != "":
		return failure("WRONGTYPE"), nil
	case m.mode == "":
		m.mode, m.writer, m.writes, m.lease = "write", o, 1, lease
		if told > 0 {
			m.untell(o)
		}
		return nil, nil
	case m.writes > 0 && m.writer == o:
		m.writes++
		m.lease = max(m.lease, lease)
		return status(strconv.Itoa(m.writes)), nil
	case m.longest(o) > 0:
		return status("upgrade"), nil
	}
	if told > 0 {
		m.told[o], m.until[o], m.word = true, told, told
	}
	return m.lease, nil
}

// untell withdraws the announcement of a waiting writer, and reports whether there was one.
func (m *readWriteModel) untell(o int) bool {
	told := m.told[o]
	m.told[o], m.until[o] = false, 0
	if m.told == [3]bool{} {
		m.word = 0
	}
	return told
}

func (m *readWriteModel) holdsToWrite(o int) int {
	if m.writer != o {
		return 0
	}
	return m.writes
}

// unwriteTo sets the number of a writer's holds. The lock lasts for these holds, or for the writer's read holds.
func (m *readWriteModel) unwriteTo(o, holds int, rest span) []message {
	if m.writes = holds; holds > 0 {
		m.lease = max(rest, m.longest(o))
		return nil
	}
	m.settle()
	return []message{{setReadWrite, "1"}}
}

func (m *readWriteModel) unwrite(o int, rest span, latch int, repeated bool) (any, []message) {
	reply, more := m.repeat(m.holdsToWrite(o), latch, repeated)
	if !more {
		return reply, nil
	}
	holds, outcome := 0, 1
	if m.writes > 1 && rest > 0 {
		holds, outcome = m.writes-1, 0
	}
	m.done.note(latch, strconv.Itoa(outcome))
	return outcome, m.unwriteTo(o, holds, rest)
}

func (m *readWriteModel) undoWrite(o int, rest span, before, latch int) (any, []message) {
	var said []message
	waited := 0
	if m.untell(o) {
		waited, said = 1, []message{{setReadWrite, "1"}}
	}
	if m.done.undo(latch) {
		return waited, said
	}
	switch {
	case m.other == "string":
		return failure("WRONGTYPE"), said
	case m.holdsToWrite(o) <= before:
		return waited, said
	case rest == 0:
		before = 0
	}
	return 1, append(said, m.unwriteTo(o, before, rest)...)
}

func (m *readWriteModel) downgrade(o int, lease, rest span, latch int) (any, []message) {
	switch {
	case m.undone(latch):
		return -1, nil
	case m.other == "string":
		return failure("WRONGTYPE"), nil
	case m.holdsToWrite(o) == 0:
		return status("unheld"), nil
	}
	holds := 0
	if rest > 0 {
		holds = m.writes - 1
	}
	if m.longest(o) == 0 {
		m.reads[o] = 0
	}
	m.left[o][m.reads[o]] = lease
	m.reads[o]++
	return []any{m.reads[o], holds}, m.unwriteTo(o, holds, rest)
}

// readWriteSet tests the scripts of one half. Moves of the other half change the model only; the other set tests them.
func readWriteSet(kind string) *scriptSet {
	set := &scriptSet{kind: kind, name: "of a read-write lock", start: &readWriteModel{}, accepts: acceptsReadWrite}
	set.within = func(m model) bool {
		rw := m.(*readWriteModel)
		holds, rest := rw.writes, 0 // number of keys besides the holds: waiting writers, latches, leases of ended holds
		for o, n := range rw.reads {
			holds += n
			for _, left := range rw.left[o][n:] {
				rest += int(min(left, 1))
			}
			if rw.told[o] {
				rest++
			}
		}
		rest += len(rw.done.keys())
		return rest <= 1 && holds+rest <= 3
	}
	keys := []string{setLock, setReadWrite, setWriters}
	add := func(half, script string, latch int, args []any, do func(m *readWriteModel) (any, []message)) {
		m := move{name: fmt.Sprint(half, " ", script, " ", args, " latch ", latch), script: script, keys: keys, args: args, do: on(do)}
		switch script {
		case "force", "info":
		case "renew":
			m.keys = []string{setLock, setLock, setLock}
			for _, owner := range setOwners {
				m.keys = append(m.keys, readHolds(owner)...)
			}
		default:
			holds := readHolds(strings.TrimSuffix(args[1].(string), ":write"))
			m.keys = slices.Concat(keys, holds[:1], []string{setLatch(latch)}, holds[1:])
		}
		if half != kind {
			m.script = ""
		}
		set.moves = append(set.moves, m)
	}
	for o := range setOwners {
		readMoves(o, add)
		writeMoves(o, add)
	}
	add("read", "force", -1, []any{publishBy, at(-1), "read"}, comesLate[*readWriteModel])
	add("write", "force", -1, []any{publishBy, at(-1), "write"}, comesLate[*readWriteModel])
	add("read", "force", -1, []any{publishBy, at(1), "read"}, func(m *readWriteModel) (any, []message) { return m.force("read", "0") })
	add("write", "force", -1, []any{publishBy, at(1), "write"}, func(m *readWriteModel) (any, []message) { return m.force("write", "1") })
	add(kind, "info", -1, nil, (*readWriteModel).info)
	foreign := func(name string, do func(m *readWriteModel)) {
		set.moves = append(set.moves, move{name: name, foreign: true,
			do: on(func(m *readWriteModel) (any, []message) { m.free(); do(m); return nil, nil })})
	}
	foreign("DEL "+setLock, func(m *readWriteModel) { m.other = "" })
	foreign("SET "+setLock, func(m *readWriteModel) { m.other = "string" })
	foreign("a reentrant lock", func(m *readWriteModel) { m.other = "hash" })
	return set
}

// readHolds are the keys of the leases of a reader's holds.
func readHolds(owner string) (keys []string) {
	for n := range int64(4) {
		keys = append(keys, lockscripts.TimeoutKey(setLock, owner, n+1))
	}
	return keys
}

type adder func(half, script string, latch int, args []any, do func(m *readWriteModel) (any, []message))

func readMoves(o int, add adder) {
	owner := setOwners[o]
	for _, lease := range []span{1, 3} {
		for _, polite := range []bool{false, true} {
			add("read", "acquire", 0, []any{lease, owner, polite, at(1)},
				func(m *readWriteModel) (any, []message) { return m.read(o, lease, polite, 0) })
		}
	}
	for _, rest := range []span{0, 2} {
		for _, repeated := range []bool{false, true} {
			add("read", "release", 1, []any{rest, owner, publishBy, latchSpan, repeated, at(1)},
				func(m *readWriteModel) (any, []message) { return m.unread(o, rest, 1, repeated) })
		}
		for before := range 3 {
			add("read", "undo", 0, []any{rest, owner, publishBy, before, at(latchSpan), false},
				func(m *readWriteModel) (any, []message) { return m.undoRead(o, rest, before, 0) })
		}
	}
	add("read", "release", 1, []any{span(0), owner, publishBy, latchSpan, false, 0},
		func(m *readWriteModel) (any, []message) {
			return m.done.first(1, func() (any, []message) { return m.unread(o, 0, 1, false) })
		})
	add("read", "acquire", 0, []any{span(1), owner, false, at(-1)}, comesLate[*readWriteModel])
	add("read", "release", 1, []any{span(0), owner, publishBy, latchSpan, false, at(-1)}, comesLate[*readWriteModel])
	add("read", "undo", 0, []any{span(0), owner, publishBy, 0, at(-1), false}, comesLate[*readWriteModel])
	for _, lease := range []any{span(2), -2} {
		extend, _ := lease.(span)
		another := (o + 1) % len(setOwners)
		add("read", "renew", -1, []any{lease, owner, setOwners[another], owner},
			func(m *readWriteModel) (any, []message) { return m.renewRead(extend, o, another, o) })
	}
}

func writeMoves(o int, add adder) {
	owner := setOwners[o] + ":write"
	add("write", "acquire", 0, []any{span(1), owner, setTold, at(-1)}, comesLate[*readWriteModel])
	add("write", "undo", 0, []any{span(0), owner, publishBy, 0, at(-1), 0}, comesLate[*readWriteModel])
	add("write", "release", 1, []any{span(0), owner, publishBy, latchSpan, false, at(-1)}, comesLate[*readWriteModel])
	add("write", "downgrade", 0, []any{span(1), setOwners[o], publishBy, span(0), at(-1)}, comesLate[*readWriteModel])
	add("write", "release", 1, []any{span(0), owner, publishBy, latchSpan, false, 0},
		func(m *readWriteModel) (any, []message) {
			return m.done.first(1, func() (any, []message) { return m.unwrite(o, 0, 1, false) })
		})
	for _, lease := range []span{1, 3} {
		for _, told := range []span{0, setTold} {
			add("write", "acquire", 0, []any{lease, owner, told, at(1)},
				func(m *readWriteModel) (any, []message) { return m.write(o, lease, told, 0) })
		}
		for _, rest := range []span{0, 2} {
			add("write", "downgrade", 0, []any{lease, setOwners[o], publishBy, rest, at(1)},
				func(m *readWriteModel) (any, []message) { return m.downgrade(o, lease, rest, 0) })
		}
	}
	for _, rest := range []span{0, 2} {
		for _, repeated := range []bool{false, true} {
			add("write", "release", 1, []any{rest, owner, publishBy, latchSpan, repeated, at(1)},
				func(m *readWriteModel) (any, []message) { return m.unwrite(o, rest, 1, repeated) })
		}
		for before := range 2 {
			add("write", "undo", 0, []any{rest, owner, publishBy, before, at(latchSpan), 0},
				func(m *readWriteModel) (any, []message) { return m.undoWrite(o, rest, before, 0) })
		}
	}
}

// acceptsReadWrite is what Redisson's RReadWriteLock expects: a hash of a mode, of readers and at most one writer, who is the
// only reader too; for each reader keys with the leases of its holds, none of which outlasts the lock.
func acceptsReadWrite(keys space, said []message) error {
	for _, m := range said {
		if m.channel != setReadWrite || m.payload != "0" && m.payload != "1" {
			return fmt.Errorf("message %v", m)
		}
	}
	leases, lease := map[string]span{}, span(0)
	var hash key
	for _, k := range keys {
		switch {
		case k.life <= 0:
			return fmt.Errorf("%s never expires", k.name)
		case k.name == setLock:
			hash, lease = k, k.life
		case strings.Contains(k.name, ":rwlock_timeout:") && k.kind == "string":
			leases[k.name] = k.life
		case k.name == setWriters:
		default:
			if err := acceptsLatch(k); err != nil {
				return err
			}
		}
	}
	fields, writer := map[string]int{}, ""
	mode := ""
	for pair := range slices.Chunk(hash.parts, 2) {
		if pair[0] == "mode" {
			mode = pair[1]
			continue
		}
		n, err := strconv.Atoi(pair[1])
		if err != nil || n < 1 {
			return fmt.Errorf("%s has a hold count of %s", pair[0], pair[1])
		}
		if owner, writes := strings.CutSuffix(pair[0], ":write"); writes {
			writer = owner
			continue
		}
		fields[pair[0]] = n
		for i := range n {
			if name := lockscripts.TimeoutKey(setLock, pair[0], int64(i+1)); leases[name] > lease {
				return fmt.Errorf("%s outlasts the lock: %d", name, leases[name])
			}
		}
	}
	delete(fields, writer)
	switch {
	case mode == "read" && writer == "" && len(fields) > 0, mode == "write" && writer != "" && len(fields) == 0, hash.name == "":
		return nil
	}
	return fmt.Errorf("readers and writer do not fit the mode: %s", hash.text())
}
