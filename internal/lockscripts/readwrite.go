package lockscripts

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lockwire/lockwire/internal/fakeredis"
)

const otherKind = fakeredis.Err("WRONGTYPE The key holds a lock of another kind")

func latched(c *fakeredis.Call) bool { return c.Int("EXISTS", c.Keys[4]) == 1 }

// TimeoutKey is the name of the key that has the lease of a reader's n-th hold.
func TimeoutKey(lock, owner string, n int64) string {
	if !strings.Contains(lock, "{") {
		lock = "{" + lock + "}"
	}
	return fmt.Sprint(lock, ":", owner, ":rwlock_timeout:", n)
}

// readerLeft is the longest remaining lease in ms among a reader's holds, 0 for none.
func readerLeft(c *fakeredis.Call, lock, owner string, holds int64) (left int64) {
	for n := range holds {
		key := TimeoutKey(lock, owner, n+1)
		lasts, _ := c.TryDo("PTTL", key).(int64)
		left = max(left, lasts)
	}
	return left
}

// readersFew is the number of fields from which a reader with nearly the lock's remaining time suffices.
const readersFew = 32

// readersLeft is the time in ms for which readers have the lock, without the holds of gone.
func readersLeft(c *fakeredis.Call, lock string, gone int64) (left int64) {
	kept := c.Int("PTTL", lock)
	enough := kept - kept/4
	many := kept > 0 && c.Int("HLEN", lock) > readersFew
	if many && gone < enough {
		return kept
	}
	for owner, holds := range Fields(c, lock) {
		left = max(left, readerLeft(c, lock, owner, number(holds)))
	}
	if many && left >= enough {
		return max(kept, left)
	}
	return left
}

// Fields is a hash as seen by a script.
func Fields(c *fakeredis.Call, key string) map[string]string {
	list, _ := c.Do("HGETALL", key).([]any)
	hash := map[string]string{}
	for pair := range slices.Chunk(list, 2) {
		hash[pair[0].(string)] = pair[1].(string)
	}
	return hash
}

// setHolds leaves the keys of a number of a reader's count holds, with the given lease: living holds first, else the last hold. It
// returns the longest lease of the removed holds.
func setHolds(c *fakeredis.Call, lock, owner string, count, rest int64, lease string) (gone int64) {
	alive := int64(0)
	for n := range rest {
		alive += c.Int("PEXPIRE", TimeoutKey(lock, owner, n+1), lease)
	}
	if rest > 0 && alive == 0 {
		c.Do("SET", TimeoutKey(lock, owner, rest), "1", "PX", lease)
	}
	for n := rest; n < count; n++ {
		gone = max(gone, c.Int("PTTL", TimeoutKey(lock, owner, n+1)))
		c.Do("DEL", TimeoutKey(lock, owner, n+1))
	}
	if rest > 0 {
		c.Do("PEXPIRE", lock, text(max(number(lease), c.Int("PTTL", lock))))
	}
	return gone
}

func extend(c *fakeredis.Call, key, lease string) {
	if left := c.Int("PTTL", key); left != -1 && number(lease) > 0 {
		c.Do("PEXPIRE", key, text(max(left, number(lease))))
	}
}

// longestWord is more than the time for which a writer asks readers to wait behind the writer, in ms.
const longestWord = 20_000

// lastWord returns the end of the last word of a waiting writer; 0 without a word. Words from before the clock was set back are removed.
func lastWord(c *fakeredis.Call, writers string) int64 {
	for {
		last, _ := c.Do("ZREVRANGE", writers, "0", "0", "WITHSCORES").([]any)
		if len(last) < 2 {
			return 0
		}
		ends := number(last[1].(string))
		if ends <= now(c)+longestWord {
			return ends
		}
		c.Do("ZREM", writers, last[0].(string))
	}
}

func modelReadAcquire(c *fakeredis.Call) any {
	key, writers, lease, owner := c.Keys[0], c.Keys[2], c.Args[0], c.Args[1]
	line, place, stand := lineIn(c), arg(c, 4), arg(c, 5)
	if late := tooLate(c, c.Args[3]); late != nil {
		return late
	}
	if latched(c) {
		return int64(-1)
	}
	mode, held := c.Do("HGET", key, "mode").(string)
	switch {
	case !held && c.Int("EXISTS", key) == 1:
		return otherKind
	case held && mode != "read" && c.Int("HEXISTS", key, owner+":write") == 0:
		return modelWaitInLine(c, line, place, stand, c.Int("PTTL", key))
	}
	count := c.Int("HGET", key, owner)
	alive, enters := false, mode != "write"
	for n := range count {
		alive = alive || c.Int("EXISTS", TimeoutKey(key, owner, n+1)) == 1
	}
	if !alive {
		count = 0
	}
	var turns lineTurns
	if enters = enters && !alive; enters {
		available := 1.0
		if held {
			available -= share
		}
		var left int64
		var refused bool
		left, refused, turns = modelReserved(c, line, place, available-share, available)
		refused = refused && !turns.came
		if c.Args[2] == "1" && !turns.came {
			if ends := lastWord(c, writers); ends > now(c) {
				left, refused = ends-now(c), true
			}
		}
		if refused {
			left, _ = modelWaitInLine(c, line, place, stand, left).(int64)
			if held && line != "" {
				left = min(left, readLook)
			}
			return left
		}
	}
	count++
	if !held {
		c.Do("HSET", key, "mode", "read")
	}
	c.Do("HSET", key, owner, text(count))
	c.Do("SET", TimeoutKey(key, owner, count), "1", "PX", lease)
	if c.Int("PTTL", key) < number(lease) {
		c.Do("PEXPIRE", key, lease)
	}
	if enters {
		next := teller{line: line, channel: c.Keys[1], publish: arg(c, 7), counted: arg(c, 6), message: "1", available: 1 - share}
		next.admitReader(c, place, stand, turns, !held)
	} else {
		modelGiveWay(c, line, place, stand)
	}
	if count > 1 {
		return fakeredis.Status(text(count))
	}
	return nil
}

// lineIn is the line, the last key of a read-write lock's script, or "".
func lineIn(c *fakeredis.Call) string {
	if last := c.Keys[len(c.Keys)-1]; strings.HasPrefix(last, "lockwire_line:") {
		return last
	}
	return ""
}

// tellsFree returns the teller of a read-write lock without holders, or with readers left. args are the server's knowledge of
// listeners, and the client's id.
func tellsFree(c *fakeredis.Call, publish string, args int, message string, readers bool) teller {
	t := teller{line: lineIn(c), channel: c.Keys[1], publish: publish, counted: arg(c, args), id: arg(c, args+1), message: message, available: 1}
	if readers {
		t.available -= share
	}
	return t
}

func modelReadRelease(c *fakeredis.Call) any {
	key, latch := c.Keys[0], c.Keys[4]
	lease, owner, publish := c.Args[0], c.Args[1], c.Args[2]
	life, answer, known := released(c, latch)
	if known {
		return answer
	}
	mode, _ := c.Do("HGET", key, "mode").(string)
	text, holds := c.Do("HGET", key, owner).(string)
	if !holds || mode == "" {
		c.Do(append([]string{"DEL", c.Keys[3]}, slices.DeleteFunc(slices.Clone(c.Keys[min(5, len(c.Keys)):]), func(key string) bool { return key == lineIn(c) })...)...)
		return unheld(c, latch, life)
	}
	modelGiveWay(c, lineIn(c), arg(c, 8), arg(c, 9))
	rest, waiting := leaveReaders(c, tellsFree(c, publish, 6, "0", false), owner, number(text), number(text)-1, lease)
	if rest > 0 {
		leaveLatch(c, latch, life, "HSET", key, owner, text)
		return int64(0)
	}
	c.Do("SET", latch, "1", "PX", life)
	return freed(waiting)
}

// leaveReaders has rest of an owner's holds remain, or none without a lease, and frees the lock if there is no reader any more.
func leaveReaders(c *fakeredis.Call, free teller, owner string, count, rest int64, lease string) (left, waiting int64) {
	key := c.Keys[0]
	if number(lease) == 0 {
		rest = 0
	}
	gone := setHolds(c, key, owner, count, rest, lease)
	read, lasts := c.Do("HGET", key, "mode") == "read", int64(0)
	if read {
		lasts = readersLeft(c, key, gone)
	}
	if rest > 0 {
		c.Do("HSET", key, owner, text(rest))
	} else {
		c.Do("HDEL", key, owner)
	}
	switch {
	case !read:
		return rest, someone
	case lasts > 0:
		c.Do("PEXPIRE", key, text(lasts))
		return rest, someone
	}
	c.Do("DEL", key)
	return rest, modelTellFree(c, free)
}

func modelReadUndo(c *fakeredis.Call) any {
	key := c.Keys[0]
	lease, owner, publish, before := c.Args[0], c.Args[1], c.Args[2], number(c.Args[3])
	if late := tooLate(c, c.Args[4]); late != nil {
		return late
	}
	if undone(c, c.Keys[4], c.Args[4]) {
		return int64(0)
	}
	count := int64(0)
	if c.Do("HGET", key, "mode") != nil {
		count = c.Int("HGET", key, owner)
	}
	if count <= before {
		return int64(0)
	}
	leaveReaders(c, tellsFree(c, publish, len(c.Args)-2, "0", false), owner, count, before, lease)
	return int64(1)
}

func modelReadRenew(c *fakeredis.Call) any {
	lease := c.Args[0]
	outcomes := make([]any, len(c.Args)-1)
	for i, key := range c.Keys[:len(outcomes)] {
		owner := c.Args[i+1]
		mode, _ := ask(c, "HGET", key, "mode").(string)
		count, held := ask(c, "HGET", key, owner).(string)
		switch held = held && mode != ""; {
		case held:
			outcomes[i] = int64(0)
			for n := range number(count) {
				if timeout := TimeoutKey(key, owner, n+1); slices.Contains(c.Keys, timeout) && c.Int("EXISTS", timeout) == 1 {
					extend(c, timeout, lease)
					outcomes[i] = int64(1)
				}
			}
			if outcomes[i] == int64(1) {
				extend(c, key, lease)
			}
		case c.Int("EXISTS", key) == 0:
			outcomes[i] = int64(0)
		default:
			outcomes[i] = int64(-1)
		}
	}
	return outcomes
}

func modelReadWriteForce(c *fakeredis.Call) any {
	if late := tooLate(c, c.Args[1]); late != nil {
		return late
	}
	key, mode, payload := c.Keys[0], c.Args[2], "0"
	if mode == "write" {
		payload = "1"
	}
	if held := c.Do("HGET", key, "mode"); held == nil && c.Int("EXISTS", key) == 1 {
		return otherKind
	} else if held != mode {
		return int64(0)
	}
	c.Do("DEL", key)
	modelTellFree(c, tellsFree(c, c.Args[0], 3, payload, false))
	return int64(1)
}

func modelReadWriteInfo(c *fakeredis.Call) any {
	key := c.Keys[0]
	left := c.Int("PTTL", key)
	mode, _ := c.Do("HGET", key, "mode").(string)
	if left != -2 && mode != "read" && mode != "write" {
		return otherKind
	}
	info := []any{left, mode}
	list, _ := c.Do("HGETALL", key).([]any)
	for pair := range slices.Chunk(list, 2) {
		owner, count := pair[0].(string), pair[1].(string)
		if owner == "mode" {
			continue
		}
		longest := readerLeft(c, key, owner, number(count))
		if strings.HasSuffix(owner, ":write") {
			longest = left
		}
		info = append(info, owner, count, longest)
	}
	return info
}

func modelWriteAcquire(c *fakeredis.Call) any {
	key, writers, lease, owner, told := c.Keys[0], c.Keys[2], c.Args[0], c.Args[1], c.Args[2]
	if late := tooLate(c, c.Args[3]); late != nil {
		return late
	}
	if latched(c) {
		return int64(-1)
	}
	line, place, stand := lineIn(c), arg(c, 4), standOf(c, 5)
	if c.Int("HEXISTS", key, owner) == 1 {
		count := c.Int("HINCRBY", key, owner, "1")
		modelGiveWay(c, line, place, stand)
		if c.Int("PTTL", key) < number(lease) {
			c.Do("PEXPIRE", key, lease)
		}
		return fakeredis.Status(text(count))
	}
	mode, _ := c.Do("HGET", key, "mode").(string)
	if mode == "" && c.Int("EXISTS", key) == 1 {
		return otherKind
	}
	left, reserved, turns := int64(0), false, lineTurns{}
	switch {
	case mode == "":
		left, reserved, turns = modelReserved(c, line, place, 0, 1)
	case mode == "read" && stand != "":
		_, _, turns = modelReserved(c, line, place, 0, 1-share)
	}
	if mode == "" && !reserved {
		c.Do("HSET", key, "mode", "write", owner, "1")
		c.Do("PEXPIRE", key, lease)
		if told != "0" {
			c.Do("ZREM", writers, owner)
		}
		modelGiveWay(c, line, place, stand)
		return nil
	}
	reader := strings.TrimSuffix(owner, ":write")
	for n := range c.Int("HGET", key, reader) {
		if c.Int("EXISTS", TimeoutKey(key, reader, n+1)) == 1 {
			return fakeredis.Status("upgrade")
		}
	}
	if told != "0" {
		c.Do("ZADD", writers, text(now(c)+number(told)), owner)
		c.Do("PEXPIRE", writers, told)
	}
	if mode != "" {
		if left = c.Int("PTTL", key); turns.count > 0 && (left < 0 || left > turns.first) {
			left = turns.first
		}
	}
	w := wait{}
	if mode == "read" {
		w.beside = &turns
	}
	again, _ := modelWaitAs(c, line, place, stand, left, w)
	return again
}

func modelWriteRelease(c *fakeredis.Call) any {
	key, latch := c.Keys[0], c.Keys[4]
	lease, owner := c.Args[0], c.Args[1]
	life, answer, known := released(c, latch)
	if known {
		return answer
	}
	count := c.Int("HGET", key, owner)
	if count == 0 {
		return unheld(c, latch, life)
	}
	if count > 1 && number(lease) > 0 {
		keepWriter(c, owner, number(lease), count-1)
		leaveLatch(c, latch, life, "HSET", key, owner, text(count))
		modelGiveWay(c, lineIn(c), arg(c, 8), arg(c, 9))
		return int64(0)
	}
	waiting := endWrite(c, owner, 6)
	c.Do("SET", latch, "1", "PX", life)
	return freed(waiting)
}

// keepWriter leaves a writer a number of holds, and sets the lock's expiry to the longest need of its holds and reads.
func keepWriter(c *fakeredis.Call, owner string, lease, count int64) {
	key, reader := c.Keys[0], strings.TrimSuffix(owner, ":write")
	c.Do("PEXPIRE", key, text(max(lease, readerLeft(c, key, reader, c.Int("HGET", key, reader)))))
	c.Do("HSET", key, owner, text(count))
}

// endWrite ends the write lock, and keeps the reads of its owner beneath. args are as for tellsFree; a place may be behind them.
func endWrite(c *fakeredis.Call, owner string, args int) (waiting int64) {
	key, reader := c.Keys[0], strings.TrimSuffix(owner, ":write")
	left := readerLeft(c, key, reader, c.Int("HGET", key, reader))
	if left > 0 {
		c.Do("PEXPIRE", key, text(left))
		becomeRead(c, key, owner, nil, nil)
	} else {
		c.Do("DEL", key)
	}
	modelGiveWay(c, lineIn(c), arg(c, args+2), arg(c, args+3))
	return modelTellFree(c, tellsFree(c, c.Args[2], args, "1", left > 0))
}

// becomeRead makes a writer's lock a read lock, and sets the further fields then; before are these fields as they were. If the user may not
// remove the writer, the lock is the writer's as before.
func becomeRead(c *fakeredis.Call, key, writer string, then, before []string) {
	c.Do(append([]string{"HSET", key, "mode", "read"}, then...)...)
	if _, failed := c.TryDo("HDEL", key, writer).(fakeredis.Err); failed {
		c.Do(append([]string{"HSET", key, "mode", "write"}, before...)...)
		c.Do("HDEL", key, writer)
	}
}

func modelWriteUndo(c *fakeredis.Call) any {
	lease, owner, before := c.Args[0], c.Args[1], number(c.Args[3])
	if late := tooLate(c, c.Args[4]); late != nil {
		return late
	}
	waited := c.Int("ZREM", c.Keys[2], owner)
	tellers := len(c.Args) - 2
	if waited == 1 {
		next := tellsFree(c, c.Args[2], tellers, "1", false)
		next.available = availableOf(c, c.Keys[0])
		modelTellFree(c, next)
	}
	if undone(c, c.Keys[4], c.Args[4]) {
		return waited
	}
	if c.Int("HGET", c.Keys[0], owner) <= before {
		return waited
	}
	if before > 0 && number(lease) > 0 {
		keepWriter(c, owner, number(lease), before)
	} else {
		endWrite(c, owner, tellers)
	}
	return int64(1)
}

func modelDowngrade(c *fakeredis.Call) any {
	key, lease, owner, writeLease := c.Keys[0], c.Args[0], c.Args[1], number(c.Args[3])
	if late := tooLate(c, c.Args[4]); late != nil {
		return late
	}
	if latched(c) {
		return int64(-1)
	}
	writes := c.Int("HGET", key, owner+":write")
	if writes == 0 {
		return fakeredis.Status("unheld")
	}
	count, rest := c.Int("HGET", key, owner), int64(0)
	left := readerLeft(c, key, owner, count)
	if left == 0 {
		count = 0
	}
	count++
	until := max(left, number(lease))
	c.Do("SET", TimeoutKey(key, owner, count), "1", "PX", lease)
	if writeLease > 0 && writes > 1 {
		rest, until = writes-1, max(until, writeLease)
		c.Do("HSET", key, owner+":write", text(rest), owner, text(count))
	} else {
		becomeRead(c, key, owner+":write", []string{owner, text(count)}, []string{owner, text(count - 1)})
	}
	c.Do("PEXPIRE", key, text(until))
	if rest == 0 {
		modelTellFree(c, tellsFree(c, c.Args[2], 5, "1", true))
	}
	return []any{count, rest}
}
