package lockscripts

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockwire/lockwire/internal/fakeredis"
)

// fairModel is the keys of a fair lock during a script.
type fairModel struct {
	*fakeredis.Call
	lock, channel, queue, timeouts, idle string
	now                                  int64
}

const (
	// fairSpare is how much longer than a lease a waiter's time lasts at least, when others are granted or leave.
	fairSpare = 60_000
	// fairFew is the number of waiters examined at each grant, and at each leave.
	fairFew = 32
)

func newFairModel(c *fakeredis.Call) *fairModel {
	m := &fairModel{Call: c, lock: c.Keys[0], channel: c.Keys[1], queue: c.Keys[2], timeouts: c.Keys[3]}
	if len(c.Keys) > 4 {
		m.idle = c.Keys[4]
	}
	clock := c.Do("TIME").([]any)
	m.now = number(clock[0].(string))*1000 + number(clock[1].(string))/1000
	return m
}

func (m *fairModel) score(waiter string) (int64, bool) {
	text, ok := m.Do("ZSCORE", m.timeouts, waiter).(string)
	return number(text), ok
}

// head drops waiters without time left from the front of the queue and returns the first waiter, "" for an empty queue. except
// is never dropped.
func (m *fairModel) head(except string) string {
	for {
		first, ok := m.Do("LINDEX", m.queue, "0").(string)
		if score, _ := m.score(first); !ok || first == except || score > m.now {
			return first
		}
		m.drop(first)
	}
}

func (m *fairModel) drop(first string) {
	m.Do("LPOP", m.queue)
	m.Do("ZREM", m.timeouts, first)
}

func (m *fairModel) members(key string) []string {
	var list []string
	for _, member := range m.Do(map[bool]string{true: "LRANGE", false: "ZRANGE"}[key == m.queue], key, "0", "-1").([]any) {
		list = append(list, member.(string))
	}
	return list
}

// advance brings the times of waiters forward by the same amount, which brings none to before soonest.
func (m *fairModel) advance(waiters []string, sooner, soonest int64) {
	waiters = slices.DeleteFunc(waiters, func(waiter string) bool { _, ok := m.score(waiter); return !ok })
	for _, waiter := range waiters {
		score, _ := m.score(waiter)
		sooner = min(sooner, score-soonest)
	}
	if sooner <= 0 {
		return
	}
	for _, waiter := range waiters {
		score, _ := m.score(waiter)
		m.Do("ZADD", m.timeouts, strconv.FormatInt(score-sooner, 10), waiter)
	}
}

// keep has queue and timeouts last for a day longer than the last of the times in it.
func (m *fairModel) keep() {
	var last int64
	for _, waiter := range m.members(m.timeouts) {
		score, _ := m.score(waiter)
		last = max(last, score)
	}
	for _, key := range []string{m.queue, m.timeouts} {
		m.Do("PEXPIRE", key, strconv.FormatInt(last-m.now+24*time.Hour.Milliseconds(), 10))
	}
}

// tellHead tells the first waiter of a queue, and further waiters as long as nobody hears, if the server counts all
// listeners.
func (m *fairModel) tellHead(publish string, counts bool) {
	most := int64(1)
	if counts {
		most = 100
	}
	if _, bad := m.TryDo("LINDEX", m.queue, "0").(fakeredis.Err); bad {
		return
	}
	waiter := m.head("")
	for place := int64(1); waiter != "" && place <= most; place++ {
		deaf := publish == "PUBLISH" && m.deaf(publish, waiter, counts)
		if told := (place == 1 || !deaf) && m.tell(publish, waiter); told && !deaf {
			return
		}
		waiter, _ = m.Do("LINDEX", m.queue, strconv.FormatInt(place, 10)).(string)
	}
}

// tell tells waiter, and reports whether waiter hears.
func (m *fairModel) tell(publish, waiter string) bool {
	return waiter != "" && m.TryDo(publish, m.channel+":"+waiter, "0") != int64(0)
}

// deaf reports whether waiter has no listener, on a server that counts all listeners.
func (m *fairModel) deaf(publish, waiter string, counts bool) bool {
	numsub := "NUMSUB"
	if publish == "SPUBLISH" {
		numsub = "SHARDNUMSUB"
	}
	list, _ := m.TryDo("PUBSUB", numsub, m.channel+":"+waiter).([]any)
	return counts && len(list) == 2 && list[1] == int64(0)
}

func modelFairAcquire(c *fakeredis.Call) any {
	m := newFairModel(c)
	lease, owner, wait, stands, reenters := number(c.Args[0]), c.Args[1], number(c.Args[2]), c.Args[3] == "1", c.Args[4] == "1"
	if late := tooLate(c, c.Args[5]); late != nil {
		return late
	}
	if c.Int("EXISTS", c.Keys[5]) == 1 {
		return int64(-1)
	}
	if c.Do("HEXISTS", m.lock, owner) == int64(1) {
		if !reenters {
			return fakeredis.Status("reentry")
		}
		count := c.Int("HINCRBY", m.lock, owner, "1")
		c.Do("PEXPIRE", m.lock, strconv.FormatInt(max(c.Int("PTTL", m.lock), lease), 10))
		if stands && c.Int("ZREM", m.timeouts, owner) == 1 {
			c.Do("LREM", m.queue, "1", owner)
		}
		return fakeredis.Status(strconv.FormatInt(count, 10))
	}
	first, left := m.head(owner), c.Int("PTTL", m.lock)
	if left == -2 && (first == "" || first == owner) {
		score, _ := m.score(owner)
		waiting := c.Int("ZCARD", m.timeouts)
		c.Do("DEL", m.idle)
		if first == "" {
			c.Do("DEL", m.timeouts)
		} else {
			m.drop(owner)
		}
		sooner := score - m.now - lease
		if waiting <= fairFew || sooner > waiting*max(wait, fairSpare)/8 {
			m.advance(m.members(m.timeouts), sooner, m.now+lease+fairSpare)
		}
		c.Do("HINCRBY", m.lock, owner, "1")
		c.Do("PEXPIRE", m.lock, c.Args[0])
		if lease <= uncalled {
			m.tellHead(arg(c, 7), arg(c, 6) != "0")
		}
		return nil
	}
	if stands {
		m.stand(owner, left, wait)
	}
	if left == -2 {
		return int64(0)
	}
	if left > 0 {
		own, stands := m.score(owner)
		if front, ok := m.score(first); ok && stands {
			left += max(0, min(uncalled, 100*((own-front)/max(1, wait))))
		}
	}
	return left
}

// stand puts owner at the end of the queue, or renews the time of a queued owner.
func (m *fairModel) stand(owner string, left, wait int64) {
	score, known := m.score(owner)
	if m.Int("LLEN", m.queue) != m.Int("ZCARD", m.timeouts) {
		known = m.sort(owner)
	}
	if known && score >= m.now+min(wait, fairSpare/2) {
		return
	}
	base := m.now + max(left, 0)
	if last, ok := m.Do("LINDEX", m.queue, "-1").(string); ok && !known {
		behind, _ := m.score(last)
		base = max(base, behind)
	}
	m.Do("ZADD", m.timeouts, strconv.FormatInt(base+wait, 10), owner)
	if !known {
		m.Do("RPUSH", m.queue, owner)
	}
	m.keep()
}

// sort leaves each waiter with a time, and owner, once in the queue, and removes all further times. It reports whether owner
// stands in the queue.
func (m *fairModel) sort(owner string) bool {
	var stay []string
	for _, waiter := range m.members(m.queue) {
		if _, ok := m.score(waiter); (ok || waiter == owner) && !slices.Contains(stay, waiter) {
			stay = append(stay, waiter)
		}
	}
	left := m.Int("PTTL", m.queue)
	m.Do("DEL", m.queue)
	for _, waiter := range stay {
		m.Do("RPUSH", m.queue, waiter)
	}
	if len(stay) > 0 && left > 0 {
		m.Do("PEXPIRE", m.queue, strconv.FormatInt(left, 10))
	}
	for _, waiter := range m.members(m.timeouts) {
		if !slices.Contains(stay, waiter) {
			m.Do("ZREM", m.timeouts, waiter)
		}
	}
	return slices.Contains(stay, owner)
}

func modelFairPass(c *fakeredis.Call) any {
	m := newFairModel(c)
	owner, publish, counts := c.Args[0], c.Args[1], c.Args[2] == "1"
	if c.Int("EXISTS", m.lock) == 1 {
		return int64(0)
	}
	first := m.head(owner)
	if first == "" || first == owner {
		return int64(1)
	}
	line := m.members(m.queue)
	score, _ := m.score(first)
	mark := first + " " + strconv.FormatInt(score, 10) + " "
	seen, _ := c.Do("GET", m.idle).(string)
	last, same := strings.CutPrefix(seen, mark)
	age := 30_000 - c.Int("PTTL", m.idle)
	if !same || age < 0 {
		c.Do("SET", m.idle, mark+line[len(line)-1], "PX", "30000")
		return int64(0)
	}
	if age >= 15_000 || age >= 1000 && m.deaf(publish, first, counts) {
		if _, stands := m.score(last); !stands {
			last = first
		}
		for first != "" {
			dropped := first
			m.drop(first)
			if first = m.head(owner); dropped == last || first == owner || first != "" && !m.deaf(publish, first, counts) {
				break
			}
		}
	}
	if first == "" || first == owner {
		return int64(1)
	}
	if age >= 1000 {
		m.tell(publish, first)
	}
	return int64(0)
}

func modelFairRelease(c *fakeredis.Call) any {
	m := newFairModel(c)
	latch, lease, owner, publish := c.Keys[5], c.Args[0], c.Args[1], c.Args[2]
	life, answer, known := released(c, latch)
	if known {
		return answer
	}
	count, holds := c.Do("HGET", m.lock, owner).(string)
	if !holds {
		if c.Int("EXISTS", m.lock) == 0 {
			m.tellHead(publish, arg(m.Call, 6) == "1")
		}
		return unheld(c, latch, life)
	}
	if number(count) > 1 && number(lease) > 0 {
		c.Do("PEXPIRE", m.lock, lease)
		c.Do("HINCRBY", m.lock, owner, "-1")
		leaveLatch(c, latch, life, "HINCRBY", m.lock, owner, "1")
		return int64(0)
	}
	c.Do("DEL", m.lock)
	m.tellHead(publish, arg(m.Call, 6) == "1")
	c.Do("SET", latch, "1", "PX", life)
	return int64(1)
}

func modelFairUndo(c *fakeredis.Call) any {
	m := newFairModel(c)
	lease, owner, publish, before, wait := c.Args[0], c.Args[1], c.Args[2], number(c.Args[3]), number(c.Args[5])
	if late := tooLate(c, c.Args[4]); late != nil {
		return late
	}
	if undone(c, c.Keys[5], c.Args[4]) {
		return int64(0)
	}
	text, _ := c.Do("HGET", m.lock, owner).(string)
	c.Do("LINDEX", m.queue, "0")
	taken := number(text) > before
	switch {
	case taken && before > 0 && number(lease) > 0:
		c.Do("HSET", m.lock, owner, c.Args[3])
		c.Do("PEXPIRE", m.lock, lease)
	case taken:
		c.Do("DEL", m.lock)
	}
	if c.Args[6] != "1" {
		m.leave(owner, publish, wait, taken)
	} else if taken && c.Int("EXISTS", m.lock) == 0 {
		c.Do("LREM", m.queue, "0", owner)
		c.Do("LPUSH", m.queue, owner)
		c.Do("ZADD", m.timeouts, strconv.FormatInt(m.now+wait, 10), owner)
		m.keep()
	}
	if taken {
		return int64(1)
	}
	return int64(0)
}

// leave takes owner out of the queue. If the lock is free or will be soon, leave tells the new head of a head that leaves, and the next listener
// behind a dead head, in whose place owner may have been told.
func (m *fairModel) leave(owner, publish string, wait int64, taken bool) {
	line := m.members(m.queue)
	soonest := m.now + max(m.Int("PTTL", m.lock), 0) + fairSpare
	if place := slices.Index(line, owner); place >= len(line)-fairFew && place >= 0 {
		m.advance(line[place+1:], wait, soonest)
	}
	stood := m.Int("ZREM", m.timeouts, owner) == 1
	if place, end := slices.Index(line, owner), "1"; stood {
		if place >= len(line)-fairFew {
			end = "-1"
		}
		m.Do("LREM", m.queue, end, owner)
	}
	first, counts := len(line) > 0 && line[0] == owner, arg(m.Call, 8) == "1"
	deaf := stood && len(line) > 0 && !first && m.deaf(publish, line[0], counts)
	if left := m.Int("PTTL", m.lock); (taken || first || deaf) && left != -1 && left <= uncalled {
		m.tellHead(publish, counts)
	}
	if first {
		m.Do("DEL", m.idle)
	}
}

func modelFairForce(c *fakeredis.Call) any {
	if late := tooLate(c, c.Args[1]); late != nil {
		return late
	}
	m := newFairModel(c)
	if alien(c) {
		return otherKind
	} else if c.Int("EXISTS", m.lock) == 0 {
		return int64(0)
	}
	c.Do("DEL", m.lock)
	m.tellHead(c.Args[0], arg(c, 2) == "1")
	return int64(1)
}

func modelFairInfo(c *fakeredis.Call) any {
	m := newFairModel(c)
	if alien(c) {
		return otherKind
	}
	line := m.members(m.queue)
	info := []any{int64(len(line))}
	for _, waiter := range line {
		score, _ := m.score(waiter)
		info = append(info, waiter, max(score-m.now, 0))
	}
	holders, _ := c.Do("HGETALL", m.lock).([]any)
	return append(append(info, c.Do("PTTL", m.lock)), holders...)
}
