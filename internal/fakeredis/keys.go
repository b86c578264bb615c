package fakeredis

import (
	"maps"
	"slices"
	"strconv"
	"strings"
)

func keyCommands() []command {
	return []command{
		{name: "del", arity: -2, flags: onWrite, run: del},
		{name: "unlink", arity: -2, flags: onWrite, run: del},
		{name: "exists", arity: -2, run: exists},
		{name: "type", arity: 2, run: typeOf},
		{name: "ttl", arity: 2, run: func(x *call) any { return ttl(x, 1000) }},
		{name: "pttl", arity: 2, run: func(x *call) any { return ttl(x, 1) }},
		{name: "expire", arity: -3, flags: onWrite, run: func(x *call) any { return expire(x, 1000, x.now) }},
		{name: "pexpire", arity: -3, flags: onWrite, run: func(x *call) any { return expire(x, 1, x.now) }},
		{name: "pexpireat", arity: -3, flags: onWrite, run: func(x *call) any { return expire(x, 1, x.s.epoch()) }},
		{name: "persist", arity: 2, flags: onWrite, run: persist},
		{name: "keys", arity: 2, run: keys},
		{name: "scan", arity: -2, run: scan},
		{name: "dbsize", arity: 1, run: func(x *call) any { return len(x.live()) }},
		{name: "flushall", arity: -1, flags: onWrite, run: flushAll},
	}
}

func del(x *call) any {
	n := 0
	for _, key := range x.args[1:] {
		if x.remove(key) {
			n++
		}
	}
	return n
}

func exists(x *call) any {
	n := 0
	for _, key := range x.args[1:] {
		if x.get(key) != nil {
			n++
		}
	}
	return n
}

func typeOf(x *call) any {
	e := x.get(x.args[1])
	if e == nil {
		return Status("none")
	}
	return Status(typeName(e.value))
}

func typeName(v any) string {
	switch v.(type) {
	case *hash:
		return "hash"
	case *list:
		return "list"
	case *stringSet:
		return "set"
	case *sortedSet:
		return "zset"
	}
	return "string"
}

// ttl answers the time left, or the deadline itself, in units of ms.
func ttl(x *call, unit int64) any {
	e := x.get(x.args[1])
	switch {
	case e == nil:
		return -2
	case e.until == 0:
		return -1
	}
	ms := e.until - x.now
	if unit == 1 {
		return ms
	}
	return (ms + 500) / 1000
}

func expire(x *call, unit, base int64) any {
	nx, xx, gt, lt, bad := expireOptions(x.args[3:])
	if bad != nil {
		return bad
	}
	n, bad := x.int64At(2)
	if bad != nil {
		return bad
	}
	until, bad := x.expiryAt(n, unit, base)
	if bad != nil {
		return bad
	}
	key := x.args[1]
	e := x.get(key)
	switch {
	case e == nil, nx && e.until != 0, xx && e.until == 0:
		return 0
	case gt && (e.until == 0 || until <= e.until), lt && e.until != 0 && until >= e.until:
		return 0
	case until <= x.now:
		x.remove(key)
		return 1
	}
	e.until = until
	x.touch(key)
	return 1
}

func expireOptions(words []string) (nx, xx, gt, lt bool, bad any) {
	for _, word := range words {
		switch strings.ToUpper(word) {
		case "NX":
			nx = true
		case "XX":
			xx = true
		case "GT":
			gt = true
		case "LT":
			lt = true
		default:
			return nx, xx, gt, lt, Err("ERR Unsupported option " + word)
		}
	}
	switch {
	case nx && (xx || gt || lt):
		bad = Err("ERR NX and XX, GT or LT options at the same time are not compatible")
	case gt && lt:
		bad = Err("ERR GT and LT options at the same time are not compatible")
	}
	return nx, xx, gt, lt, bad
}

func persist(x *call) any {
	e := x.get(x.args[1])
	if e == nil || e.until == 0 {
		return 0
	}
	e.until = 0
	x.touch(x.args[1])
	return 1
}

// live lists the living keys, sorted.
func (x *call) live() []string {
	var list []string
	for _, key := range slices.Sorted(maps.Keys(x.db.keys)) {
		if x.get(key) != nil {
			list = append(list, key)
		}
	}
	return list
}

func keys(x *call) any {
	matching := []string{}
	for _, key := range x.live() {
		if match(x.args[1], key) {
			matching = append(matching, key)
		}
	}
	return matching
}

// scan gives the keys in their order. A cursor stands for the last key given, so that new and deleted keys make the scan
// neither skip nor repeat a key.
func scan(x *call) any {
	cursor, err := strconv.ParseUint(x.args[1], 10, 64)
	if err != nil {
		return Err("ERR invalid cursor")
	}
	o, bad := scanOptionsOf(x.args[2:])
	if bad != nil {
		return bad
	}
	last, begun := x.s.cursors[cursor]
	if cursor != 0 && !begun {
		return []any{"0", []any{}}
	}
	found := []string{}
	seen, next := 0, ""
	for _, key := range x.live() {
		if begun && key <= last {
			continue
		}
		if seen == o.count {
			id := uint64(len(x.s.cursors) + 1)
			x.s.cursors[id] = next
			return []any{strconv.FormatUint(id, 10), found}
		}
		seen, next = seen+1, key
		if match(o.pattern, key) && (o.kind == "" || o.kind == typeName(x.get(key).value)) {
			found = append(found, key)
		}
	}
	return []any{"0", found}
}

type scanOptions struct {
	pattern, kind string
	count         int
}

func scanOptionsOf(words []string) (scanOptions, any) {
	o := scanOptions{pattern: "*", count: 10}
	for ; len(words) > 1; words = words[2:] {
		switch strings.ToUpper(words[0]) {
		case "MATCH":
			o.pattern = words[1]
		case "TYPE":
			o.kind = strings.ToLower(words[1])
		case "COUNT":
			n, valid := parseInt(words[1])
			if !valid {
				return o, errInt
			}
			if n < 1 {
				return o, errStx
			}
			o.count = int(n)
		default:
			return o, errStx
		}
	}
	if len(words) > 0 {
		return o, errStx
	}
	return o, nil
}

func flushAll(x *call) any {
	if bad := flushOption(x); bad != nil {
		return bad
	}
	for i := range x.s.dbs {
		x.empty(&x.s.dbs[i])
	}
	return ok
}

func flushOption(x *call) any {
	if len(x.args) > 2 || len(x.args) == 2 && !isAny(x.args[1], "SYNC", "ASYNC") {
		return errStx
	}
	return nil
}

func (x *call) empty(d *db) {
	for key := range d.keys {
		d.touch(key)
	}
	d.keys = map[string]*entry{}
}

func isAny(word string, words ...string) bool {
	return slices.Contains(words, strings.ToUpper(word))
}

// match reports whether s fits a glob pattern of Redis: * ? [a-c] [^a] and \ before a character that is meant literally.
func match(pattern, s string) bool {
	for pattern != "" {
		switch pattern[0] {
		case '*':
			for i := 0; i <= len(s); i++ {
				if match(pattern[1:], s[i:]) {
					return true
				}
			}
			return false
		case '[':
			if s == "" {
				return false
			}
			fits, rest := matchClass(pattern[1:], s[0])
			if !fits {
				return false
			}
			pattern, s = rest, s[1:]
			continue
		case '?':
			if s == "" {
				return false
			}
			pattern, s = pattern[1:], s[1:]
			continue
		case '\\':
			if len(pattern) > 1 {
				pattern = pattern[1:]
			}
		}
		if s == "" || pattern[0] != s[0] {
			return false
		}
		pattern, s = pattern[1:], s[1:]
	}
	return s == ""
}

// matchClass reports whether b is in the class up to the first ], and returns the rest of the pattern.
func matchClass(class string, b byte) (bool, string) {
	negated := strings.HasPrefix(class, "^")
	if negated {
		class = class[1:]
	}
	fits := false
	for class != "" && class[0] != ']' {
		switch {
		case class[0] == '\\' && len(class) > 1:
			fits = fits || class[1] == b
			class = class[2:]
		case len(class) > 2 && class[1] == '-':
			low, high := min(class[0], class[2]), max(class[0], class[2])
			fits = fits || low <= b && b <= high
			class = class[3:]
		default:
			fits = fits || class[0] == b
			class = class[1:]
		}
	}
	return fits != negated, strings.TrimPrefix(class, "]")
}
