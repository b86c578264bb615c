package lockscripts

import (
	"strconv"

	"github.com/lockwire/lockwire/internal/fakeredis"
)

const notNumber = fakeredis.Err("WRONGTYPE The key does not hold a number")

// numberAt is the number in key. there is false without a key; bad: the key holds something else.
func numberAt(c *fakeredis.Call, key string) (n int64, there, bad bool) {
	text, there := c.Do("GET", key).(string)
	if !there {
		return 0, false, false
	}
	n, err := strconv.ParseInt(text, 10, 64)
	return n, true, err != nil
}

// outcome is where a change leaves its outcome: its latch, and the last moment of the request.
type outcome struct{ latch, last string }

// remembered is the result of a late change, or the outcome of an earlier request with the same latch.
func (o outcome) remembered(c *fakeredis.Call) (any, bool) {
	if late := tooLate(c, o.last); late != nil {
		return late, true
	}
	text, _ := c.Do("GET", o.latch).(string) // empty of a request that was refused halfway
	return number(text), text != ""
}

// remember leaves the outcome of a change under its latch, and returns the outcome.
func (o outcome) remember(c *fakeredis.Call, n int64) any {
	life := number(o.last) - now(c) + number(c.Args[0])
	c.Do("SET", o.latch, strconv.FormatInt(n, 10), "PX", strconv.FormatInt(life, 10))
	return n
}

// change runs a command that changes a number. If the user may not run it, o is forgotten: a repeat would be taken for done.
func (o outcome) change(c *fakeredis.Call, command ...string) int64 {
	n, done := c.TryDo(command...).(int64)
	if !done {
		c.Do("SET", o.latch, "", "PX", "1")
		c.Do(command...)
	}
	return n
}

func announce(c *fakeredis.Call, publish string, free int64) {
	c.Do(publish, c.Keys[1], strconv.FormatInt(max(0, free), 10))
}

// tellPermits tells of so many free permits. args are what the server knows of listeners, and the client's id.
func tellPermits(c *fakeredis.Call, line, publish string, args int, told, available, before int64) {
	modelTellFree(c, teller{line, c.Keys[1], publish, arg(c, args), arg(c, args+1), text(max(0, told)), float64(available), true, float64(before)})
}

// asker is a client's part in the line, in an acquire of permits.
type asker struct{ line, place, stand, counted, publish string }

// refused has a client wait without these permits. A called client passes the call on.
func (a asker) refused(c *fakeredis.Call, permits, free, left int64, turns lineTurns) any {
	behind := ""
	if turns.came && c.Do("ZSCORE", a.line, a.place) != nil {
		behind = a.place
	}
	w := wait{most: permitLook, permits: permits}
	if permits > max(1, free) {
		w.beside = &turns
	}
	again, keeps := modelWaitAs(c, a.line, a.place, a.stand, left, w)
	if turns.came && !keeps && float64(free) > turns.reserved+turns.awaited {
		a.teller(c, free).callNext(c, behind)
	}
	return again
}

func (a asker) teller(c *fakeredis.Call, free int64) teller {
	return teller{a.line, c.Keys[1], a.publish, a.counted, "", text(free), float64(free), true, float64(free)}
}

// granted ends or moves the place of a client with permits, and calls further clients if permits are left.
func (a asker) granted(c *fakeredis.Call, free int64, lined bool) {
	modelGiveWay(c, a.line, a.place, a.stand)
	if free > 0 && lined && c.Int("EXISTS", a.line) == 1 {
		modelTellFree(c, a.teller(c, free))
	}
}

func modelSemaphoreAcquire(c *fakeredis.Call) any {
	if late := tooLate(c, c.Args[4]); late != nil {
		return late
	}
	key, latch, permits := c.Keys[0], c.Keys[2], number(c.Args[2])
	a := asker{lineKey(c, 3), arg(c, 5), arg(c, 6), arg(c, 7), arg(c, 8)}
	switch taken, ok := c.Do("GET", latch).(string); {
	case taken == "0":
		return int64(-1)
	case ok:
		within, left := number(c.Args[0]), c.Int("PTTL", latch)
		if left > within/5 {
			left = 2 * within
		}
		c.Do("PEXPIRE", latch, strconv.FormatInt(max(1, left), 10))
		return nil
	}
	free, there, bad := numberAt(c, key)
	switch {
	case bad:
		return notNumber
	case !there && c.Args[3] != "1":
		return fakeredis.Status("unset")
	}
	lined := a.line != "" && c.Int("EXISTS", a.line) == 1
	left, reserved, turns := modelReserved(c, a.line, a.place, float64(free-permits), float64(free))
	switch {
	case free < permits:
		return a.refused(c, permits, free, -1, turns)
	case reserved:
		return a.refused(c, permits, free, left, turns)
	}
	c.Do("SET", latch, c.Args[2], "PX", strconv.FormatInt(2*number(c.Args[0]), 10))
	if _, refused := c.TryDo("DECRBY", key, c.Args[2]).(fakeredis.Err); refused {
		c.Do("SET", latch, "0", "PX", "1")
		c.Do("DECRBY", key, c.Args[2])
	}
	a.granted(c, free-permits, lined)
	return nil
}

func modelSemaphoreUndo(c *fakeredis.Call) any {
	if late := tooLate(c, c.Args[4]); late != nil {
		return late
	}
	key, latch := c.Keys[0], c.Keys[2]
	_, there, bad := numberAt(c, key)
	if bad {
		return notNumber
	}
	taken, ok := c.Do("GET", latch).(string)
	life, left := max(1, number(c.Args[4])-now(c)), c.Int("PTTL", latch)
	if taken == "0" {
		life = max(life, left)
	}
	c.Do("PEXPIRE", latch, text(life))
	c.Do("SET", latch, "0", "PX", text(life))
	if !ok || taken == "0" || !there {
		return int64(0)
	}
	total, done := c.TryDo("INCRBY", key, taken).(int64)
	if !done {
		c.Do("SET", latch, taken, "PX", text(max(life, left)))
		c.Do("INCRBY", key, taken)
	}
	tellPermits(c, lineKey(c, 3), c.Args[2], len(c.Args)-2, total, total, total-number(taken))
	return int64(1)
}

func modelSemaphoreInfo(c *fakeredis.Call) any {
	free, there, bad := numberAt(c, c.Keys[0])
	switch {
	case bad:
		return notNumber
	case !there:
		return []any{}
	}
	return []any{free, c.Do("PTTL", c.Keys[0])}
}

func modelSemaphoreSet(c *fakeredis.Call) any {
	o := outcome{c.Keys[2], c.Args[4]}
	if n, ok := o.remembered(c); ok {
		return n
	}
	_, there, bad := numberAt(c, c.Keys[0])
	if bad {
		return notNumber
	}
	if there {
		return o.remember(c, 0)
	}
	set := []string{"SET", c.Keys[0], c.Args[2]}
	if c.Args[3] != "0" {
		set = append(set, "PX", c.Args[3])
	}
	c.Do(set...)
	tellPermits(c, lineKey(c, 3), c.Args[1], 5, number(c.Args[2]), number(c.Args[2]), 0)
	return o.remember(c, 1)
}

func modelSemaphoreAdd(c *fakeredis.Call) any {
	o := outcome{c.Keys[2], c.Args[4]}
	if n, ok := o.remembered(c); ok {
		return n
	}
	_, there, bad := numberAt(c, c.Keys[0])
	if bad {
		return notNumber
	}
	line := lineKey(c, 3)
	if line != "" {
		c.Do("PEXPIRE", line, lineLife)
	}
	if !there && c.Args[3] == "1" {
		return o.remember(c, 0)
	}
	done := o.remember(c, 1)
	total := o.change(c, "INCRBY", c.Keys[0], c.Args[2])
	tellPermits(c, line, c.Args[1], 5, total, total, total-number(c.Args[2]))
	return done
}

func modelSemaphoreDrain(c *fakeredis.Call) any {
	o := outcome{c.Keys[2], c.Args[2]}
	if n, ok := o.remembered(c); ok {
		return n
	}
	free, _, bad := numberAt(c, c.Keys[0])
	if bad {
		return notNumber
	}
	done := o.remember(c, free)
	if free != 0 {
		o.change(c, "DECRBY", c.Keys[0], strconv.FormatInt(free, 10))
	}
	return done
}
