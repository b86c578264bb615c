package fakeredis

import (
	"slices"
	"strconv"
)

func hashCommands() []command {
	return []command{
		{name: "hset", arity: -4, flags: onWrite, run: hset},
		{name: "hsetnx", arity: 4, flags: onWrite, run: hsetNX},
		{name: "hget", arity: 3, run: hget},
		{name: "hmget", arity: -3, run: hmget},
		{name: "hgetall", arity: 2, run: hgetAll},
		{name: "hkeys", arity: 2, run: func(x *call) any { return hlist(x, true, false) }},
		{name: "hdel", arity: -3, flags: onWrite, run: hdel},
		{name: "hexists", arity: 3, run: hexists},
		{name: "hlen", arity: 2, run: hlen},
		{name: "hstrlen", arity: 3, run: hstrlen},
		{name: "hincrby", arity: 4, flags: onWrite, run: hincrBy},
		{name: "hscan", arity: -3, run: hscan},
	}
}

// hash keeps its fields in the order of arrival, like a small hash of Redis.
type hash struct {
	fields []string
	values map[string]string
}

func (h *hash) size() int { return len(h.fields) }

func (h *hash) get(field string) (string, bool) {
	if h == nil {
		return "", false
	}
	v, found := h.values[field]
	return v, found
}

// put reports whether the field is new.
func (h *hash) put(field, value string) bool {
	_, found := h.values[field]
	if !found {
		h.fields = append(h.fields, field)
	}
	h.values[field] = value
	return !found
}

func (h *hash) drop(field string) bool {
	if _, found := h.values[field]; !found {
		return false
	}
	delete(h.values, field)
	h.fields = slices.DeleteFunc(h.fields, func(f string) bool { return f == field })
	return true
}

// hash returns the hash of a key, or a new hash.
func (x *call) hash(key string) (*hash, any) {
	h, bad := find[*hash](x, key)
	if h == nil && bad == nil {
		h = &hash{values: map[string]string{}}
		x.set(key, h)
	}
	return h, bad
}

func hset(x *call) any {
	if len(x.args)%2 != 0 {
		return errArity(x.cmd.name)
	}
	h, bad := x.hash(x.args[1])
	if bad != nil {
		return bad
	}
	n := 0
	for i := 2; i < len(x.args); i += 2 {
		if h.put(x.args[i], x.args[i+1]) {
			n++
		}
	}
	x.touch(x.args[1])
	return n
}

func hsetNX(x *call) any {
	h, bad := find[*hash](x, x.args[1])
	if bad != nil {
		return bad
	}
	if _, found := h.get(x.args[2]); found {
		return 0
	}
	h, _ = x.hash(x.args[1])
	h.put(x.args[2], x.args[3])
	x.touch(x.args[1])
	return 1
}

func hget(x *call) any {
	h, bad := find[*hash](x, x.args[1])
	if bad != nil {
		return bad
	}
	if v, found := h.get(x.args[2]); found {
		return v
	}
	return nil
}

func hmget(x *call) any {
	h, bad := find[*hash](x, x.args[1])
	if bad != nil {
		return bad
	}
	values := []any{}
	for _, field := range x.args[2:] {
		if v, found := h.get(field); found {
			values = append(values, v)
			continue
		}
		values = append(values, nil)
	}
	return values
}

func hgetAll(x *call) any {
	reply := hlist(x, true, true)
	if list, isList := reply.([]any); isList {
		return pairs(list)
	}
	return reply
}

func hlist(x *call, fields, values bool) any {
	h, bad := find[*hash](x, x.args[1])
	if bad != nil {
		return bad
	}
	list := []any{}
	if h == nil {
		return list
	}
	for _, field := range h.fields {
		if fields {
			list = append(list, field)
		}
		if values {
			list = append(list, h.values[field])
		}
	}
	return list
}

func hdel(x *call) any {
	h, bad := find[*hash](x, x.args[1])
	if h == nil || bad != nil {
		return orZero(bad)
	}
	n := 0
	for _, field := range x.args[2:] {
		if h.drop(field) {
			n++
		}
	}
	if n > 0 {
		x.settle(x.args[1], h)
	}
	return n
}

// orZero is the reply of a command to a missing key, or to a key of the wrong type.
func orZero(bad any) any {
	if bad != nil {
		return bad
	}
	return 0
}

func hexists(x *call) any {
	h, bad := find[*hash](x, x.args[1])
	if bad != nil {
		return bad
	}
	_, found := h.get(x.args[2])
	return boolInt(found)
}

func hlen(x *call) any {
	h, bad := find[*hash](x, x.args[1])
	if h == nil || bad != nil {
		return orZero(bad)
	}
	return h.size()
}

func hstrlen(x *call) any {
	h, bad := find[*hash](x, x.args[1])
	if bad != nil {
		return bad
	}
	v, _ := h.get(x.args[2])
	return len(v)
}

func hincrBy(x *call) any {
	by, bad := x.int64At(3)
	if bad != nil {
		return bad
	}
	h, bad := find[*hash](x, x.args[1])
	if bad != nil {
		return bad
	}
	n := int64(0)
	if v, found := h.get(x.args[2]); found {
		old, valid := parseInt(v)
		if !valid {
			return Err("ERR hash value is not an integer")
		}
		n = old
	}
	sum, fits := add(n, by)
	if !fits {
		return errOver
	}
	h, _ = x.hash(x.args[1])
	h.put(x.args[2], strconv.FormatInt(sum, 10))
	x.touch(x.args[1])
	return sum
}

// hscan gives the whole hash at once, as Redis does with a small hash.
func hscan(x *call) any {
	if _, err := strconv.ParseUint(x.args[2], 10, 64); err != nil {
		return Err("ERR invalid cursor")
	}
	h, bad := find[*hash](x, x.args[1])
	if bad != nil {
		return bad
	}
	o, bad := scanOptionsOf(x.args[3:])
	if bad != nil {
		return bad
	}
	found := []any{}
	if h == nil {
		return []any{"0", found}
	}
	for _, field := range h.fields {
		if match(o.pattern, field) {
			found = append(found, field, h.values[field])
		}
	}
	return []any{"0", found}
}
