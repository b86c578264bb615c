package fakeredis

import (
	"math"
	"strconv"
	"strings"
)

func stringCommands() []command {
	return []command{
		{name: "get", arity: 2, run: get},
		{name: "set", arity: -3, flags: onWrite, run: set},
		{name: "setnx", arity: 3, flags: onWrite, run: setNX},
		{name: "mget", arity: -2, run: mget},
		{name: "mset", arity: -3, flags: onWrite, run: mset},
		{name: "append", arity: 3, flags: onWrite, run: appendTo},
		{name: "strlen", arity: 2, run: strlen},
		{name: "incr", arity: 2, flags: onWrite, run: func(x *call) any { return incr(x, 1) }},
		{name: "decr", arity: 2, flags: onWrite, run: func(x *call) any { return incr(x, -1) }},
		{name: "incrby", arity: 3, flags: onWrite, run: incrBy},
		{name: "decrby", arity: 3, flags: onWrite, run: decrBy},
	}
}

// text is a key's value as a reply: a string, nil or an error.
func (x *call) text(key string) any {
	e := x.get(key)
	if e == nil {
		return nil
	}
	if s, ok := e.value.(string); ok {
		return s
	}
	return errType
}

func get(x *call) any { return x.text(x.args[1]) }

// setOptions are the words behind SET's value or GETEX's key.
type setOptions struct {
	nx, xx, get, keep, persist bool
	unit, amount               string // EX, PX, EXAT or PXAT, and its number
	until                      int64  // the resulting Unix ms; 0: no deadline
}

func (x *call) setOptions(words []string, allowed string) (setOptions, any) {
	var o setOptions
	for i := 0; i < len(words); i++ {
		word := strings.ToUpper(words[i])
		if !strings.Contains(allowed, " "+word+" ") {
			return o, errStx
		}
		switch word {
		case "NX":
			o.nx = true
		case "XX":
			o.xx = true
		case "GET":
			o.get = true
		case "KEEPTTL":
			o.keep = true
		case "PERSIST":
			o.persist = true
		default:
			if o.unit != "" || i+1 == len(words) {
				return o, errStx
			}
			i++
			o.unit, o.amount = word, words[i]
		}
	}
	if o.nx && o.xx || o.unit != "" && (o.keep || o.persist) {
		return o, errStx
	}
	if o.unit == "" {
		return o, nil
	}
	until, bad := x.deadline(o.unit, o.amount)
	o.until = until
	return o, bad
}

// deadline makes Unix ms of an option such as EX 10. The deadline must be after the epoch, not after the present.
func (x *call) deadline(unit, amount string) (int64, any) {
	n, ok := parseInt(amount)
	if !ok {
		return 0, errInt
	}
	ms, base := int64(1), x.now
	if strings.HasPrefix(unit, "E") {
		ms = 1000
	}
	if strings.HasSuffix(unit, "AT") {
		base = x.s.epoch()
	}
	if n <= 0 {
		return 0, Err("ERR invalid expire time in '" + x.cmd.name + "' command")
	}
	return x.expiryAt(n, ms, base)
}

func set(x *call) any {
	o, bad := x.setOptions(x.args[3:], " NX XX GET KEEPTTL EX PX EXAT PXAT ")
	if bad != nil {
		return bad
	}
	key := x.args[1]
	old := x.get(key)
	var before any
	if o.get {
		before = x.text(key)
		if before == errType {
			return errType
		}
	}
	if o.nx && old != nil || o.xx && old == nil {
		return before
	}
	e := x.set(key, x.args[2])
	e.until = o.until
	if o.keep && old != nil {
		e.until = old.until
	}
	if o.get {
		return before
	}
	return ok
}

func setNX(x *call) any {
	if x.get(x.args[1]) != nil {
		return 0
	}
	x.set(x.args[1], x.args[2])
	return 1
}

func mget(x *call) any {
	values := []any{}
	for _, key := range x.args[1:] {
		s, found := x.text(key).(string)
		if !found {
			values = append(values, nil)
			continue
		}
		values = append(values, s)
	}
	return values
}

func mset(x *call) any {
	if len(x.args)%2 == 0 {
		return errArity(x.cmd.name)
	}
	for i := 1; i < len(x.args); i += 2 {
		x.set(x.args[i], x.args[i+1])
	}
	return ok
}

// change gives a string a new value and keeps its deadline.
func (x *call) change(key, value string) {
	until := int64(0)
	if e := x.get(key); e != nil {
		until = e.until
	}
	x.set(key, value).until = until
}

func appendTo(x *call) any {
	old, bad := find[string](x, x.args[1])
	if bad != nil {
		return bad
	}
	x.change(x.args[1], old+x.args[2])
	return len(old) + len(x.args[2])
}

func strlen(x *call) any {
	s, bad := find[string](x, x.args[1])
	if bad != nil {
		return bad
	}
	return len(s)
}

// clip turns a first and a last index, counted from the end if negative, into a slice's bounds.
func clip(first, last int64, size int) (int, int) {
	n := int64(size)
	if first < 0 {
		first = max(first+n, 0)
	}
	if last < 0 {
		last += n
	}
	last = min(last, n-1)
	if first > last {
		return 0, 0
	}
	return int(first), int(last + 1)
}

func incrBy(x *call) any {
	n, bad := x.int64At(2)
	if bad != nil {
		return bad
	}
	return incr(x, n)
}

func decrBy(x *call) any {
	n, bad := x.int64At(2)
	if bad != nil {
		return bad
	}
	if n == math.MinInt64 {
		return Err("ERR decrement would overflow")
	}
	return incr(x, -n)
}

func incr(x *call, by int64) any {
	s, bad := find[string](x, x.args[1])
	if bad != nil {
		return bad
	}
	n := int64(0)
	if x.get(x.args[1]) != nil {
		v, valid := parseInt(s)
		if !valid {
			return errInt
		}
		n = v
	}
	sum, fits := add(n, by)
	if !fits {
		return errOver
	}
	x.change(x.args[1], strconv.FormatInt(sum, 10))
	return sum
}

func add(a, b int64) (int64, bool) {
	sum := a + b
	return sum, (sum > a) == (b > 0) || b == 0
}
