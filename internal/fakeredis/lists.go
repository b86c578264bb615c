package fakeredis

import "slices"

func listCommands() []command {
	return []command{
		{name: "lpush", arity: -3, flags: onWrite, run: func(x *call) any { return pushTo(x, left) }},
		{name: "rpush", arity: -3, flags: onWrite, run: func(x *call) any { return pushTo(x, right) }},
		{name: "lpop", arity: -2, flags: onWrite, run: popLeft},
		{name: "llen", arity: 2, run: llen},
		{name: "lindex", arity: 3, run: lindex},
		{name: "lrange", arity: 4, run: lrange},
		{name: "lrem", arity: 4, flags: onWrite, run: lrem},
	}
}

type list struct{ items []string }

func (l *list) size() int { return len(l.items) }

// side is an end of a list.
type side bool

const (
	left  side = true
	right side = false
)

func (l *list) push(at side, item string) {
	if at == left {
		l.items = slices.Insert(l.items, 0, item)
		return
	}
	l.items = append(l.items, item)
}

func (l *list) pop(at side) string {
	if at == left {
		item := l.items[0]
		l.items = l.items[1:]
		return item
	}
	item := l.items[len(l.items)-1]
	l.items = l.items[:len(l.items)-1]
	return item
}

// list returns the list of a key that holds a list or nothing: then a new list.
func (x *call) list(key string) *list {
	l, _ := find[*list](x, key)
	if l == nil {
		l = &list{}
		x.set(key, l)
	}
	return l
}

func pushTo(x *call, at side) any {
	if _, bad := find[*list](x, x.args[1]); bad != nil {
		return bad
	}
	l := x.list(x.args[1])
	for _, item := range x.args[2:] {
		l.push(at, item)
	}
	x.touch(x.args[1])
	return l.size()
}

func popLeft(x *call) any {
	if len(x.args) > 3 {
		return errArity(x.cmd.name)
	}
	count := int64(1)
	if len(x.args) == 3 {
		n, valid := parseInt(x.args[2])
		if !valid || n < 0 {
			return errRange
		}
		count = n
	}
	l, bad := find[*list](x, x.args[1])
	switch {
	case bad != nil:
		return bad
	case l == nil && len(x.args) == 3:
		return nullArray{}
	case l == nil:
		return nil
	}
	popped := []any{}
	for ; count > 0 && l.size() > 0; count-- {
		popped = append(popped, l.pop(left))
	}
	if len(popped) > 0 {
		x.settle(x.args[1], l)
	}
	if len(x.args) == 3 {
		return popped
	}
	return popped[0]
}

func llen(x *call) any {
	l, bad := find[*list](x, x.args[1])
	if bad != nil || l == nil {
		return orZero(bad)
	}
	return l.size()
}

func lindex(x *call) any {
	l, bad := find[*list](x, x.args[1])
	if bad != nil || l == nil {
		return bad
	}
	i, bad := x.int64At(2)
	if bad != nil {
		return bad
	}
	at, found := l.index(i)
	if !found {
		return nil
	}
	return l.items[at]
}

// index counts from the end if i is negative.
func (l *list) index(i int64) (int, bool) {
	if i < 0 {
		i += int64(len(l.items))
	}
	return int(i), i >= 0 && i < int64(len(l.items))
}

// rangeOf parses the first and last index of LRANGE and LTRIM and applies them to the list of the key.
func (x *call) rangeOf() (l *list, first, end int, bad any) {
	from, bad := x.int64At(2)
	if bad != nil {
		return nil, 0, 0, bad
	}
	to, bad := x.int64At(3)
	if bad != nil {
		return nil, 0, 0, bad
	}
	l, bad = find[*list](x, x.args[1])
	if bad == nil && l != nil {
		first, end = clip(from, to, l.size())
	}
	return l, first, end, bad
}

func lrange(x *call) any {
	l, first, end, bad := x.rangeOf()
	if bad != nil {
		return bad
	}
	if l == nil {
		return []string{}
	}
	return slices.Clone(l.items[first:end])
}

func lrem(x *call) any {
	count, bad := x.int64At(2)
	if bad != nil {
		return bad
	}
	l, bad := find[*list](x, x.args[1])
	if bad != nil || l == nil {
		return orZero(bad)
	}
	if count < 0 {
		slices.Reverse(l.items)
	}
	n := int64(0)
	limit := max(count, -count)
	l.items = slices.DeleteFunc(l.items, func(item string) bool {
		if item != x.args[3] || limit != 0 && n == limit {
			return false
		}
		n++
		return true
	})
	if count < 0 {
		slices.Reverse(l.items)
	}
	if n > 0 {
		x.settle(x.args[1], l)
	}
	return n
}

func sidesAt(x *call, i int) (from, to side, bad any) {
	if !isAny(x.args[i], "LEFT", "RIGHT") || !isAny(x.args[i+1], "LEFT", "RIGHT") {
		return left, left, errStx
	}
	return side(isAny(x.args[i], "LEFT")), side(isAny(x.args[i+1], "LEFT")), nil
}

func move(x *call, source, target string, from, to side) any {
	l, bad := find[*list](x, source)
	if bad != nil || l == nil {
		return bad
	}
	if _, bad := find[*list](x, target); bad != nil {
		return bad
	}
	item := l.pop(from)
	if source != target {
		x.settle(source, l)
	}
	dest := x.list(target)
	dest.push(to, item)
	x.touch(target)
	return item
}
