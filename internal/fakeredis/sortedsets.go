package fakeredis

import (
	"cmp"
	"math"
	"slices"
	"strings"
)

func sortedSetCommands() []command {
	return []command{
		{name: "zadd", arity: -4, flags: onWrite, run: zadd},
		{name: "zincrby", arity: 4, flags: onWrite, run: zincrBy},
		{name: "zrem", arity: -3, flags: onWrite, run: zrem},
		{name: "zscore", arity: 3, run: zscore},
		{name: "zcard", arity: 2, run: zcard},
		{name: "zcount", arity: 4, run: zcount},
		{name: "zrank", arity: 3, run: zrank},
		{name: "zrange", arity: -4, run: zrange},
		{name: "zrevrange", arity: -4, run: func(x *call) any { return zrangeBy(x, zquery{reverse: true}, x.args[4:], "WITHSCORES") }},
		{name: "zrangebyscore", arity: -4, run: func(x *call) any {
			return zrangeBy(x, zquery{byScore: true}, x.args[4:], "WITHSCORES LIMIT")
		}},
		{name: "zremrangebyscore", arity: 4, flags: onWrite, run: zremRangeByScore},
	}
}

type sortedSet struct{ scores map[string]float64 }

func (z *sortedSet) size() int { return len(z.scores) }

// member is a member of a sorted set and its score.
type member struct {
	name  string
	score float64
}

// ordered lists the members by score, then by name.
func (z *sortedSet) ordered() []member {
	var list []member
	if z == nil {
		return nil
	}
	for name, score := range z.scores {
		list = append(list, member{name, score})
	}
	slices.SortFunc(list, func(a, b member) int {
		return cmp.Or(cmp.Compare(a.score, b.score), cmp.Compare(a.name, b.name))
	})
	return list
}

type zaddOptions struct{ nx, xx, gt, lt, ch, incr bool }

// zaddOptionsOf returns the options of ZADD and the arguments after the options.
func zaddOptionsOf(words []string) (zaddOptions, []string) {
	var o zaddOptions
	for ; len(words) > 0; words = words[1:] {
		switch strings.ToUpper(words[0]) {
		case "NX":
			o.nx = true
		case "XX":
			o.xx = true
		case "GT":
			o.gt = true
		case "LT":
			o.lt = true
		case "CH":
			o.ch = true
		case "INCR":
			o.incr = true
		default:
			return o, words
		}
	}
	return o, words
}

func (o zaddOptions) check(words int) any {
	switch {
	case words == 0 || words%2 != 0:
		return errStx
	case o.nx && o.xx:
		return Err("ERR XX and NX options at the same time are not compatible")
	case o.gt && o.lt || o.nx && (o.gt || o.lt):
		return Err("ERR GT, LT, and/or NX options at the same time are not compatible")
	case o.incr && words > 2:
		return Err("ERR INCR option supports a single increment-element pair")
	}
	return nil
}

func zadd(x *call) any {
	o, words := zaddOptionsOf(x.args[2:])
	if bad := o.check(len(words)); bad != nil {
		return bad
	}
	var list []member
	for ; len(words) > 0; words = words[2:] {
		score, valid := parseFloat(words[0])
		if !valid {
			return errFloat
		}
		list = append(list, member{words[1], score})
	}
	return x.zadd(o, list)
}

func zincrBy(x *call) any {
	by, valid := parseFloat(x.args[2])
	if !valid {
		return errFloat
	}
	return x.zadd(zaddOptions{incr: true}, []member{{x.args[3], by}})
}

// zadd adds or changes members; with o.incr its reply is the new score of the only member, or nil for an unchanged member.
func (x *call) zadd(o zaddOptions, list []member) any {
	key := x.args[1]
	z, bad := find[*sortedSet](x, key)
	if bad != nil {
		return bad
	}
	if z == nil {
		if o.xx {
			return pickAny(o.incr, nil, 0)
		}
		z = &sortedSet{scores: map[string]float64{}}
	}
	added, changed := 0, 0
	var score any
	for _, m := range list {
		old, found := z.scores[m.name]
		if found && o.nx || !found && o.xx {
			continue
		}
		if o.incr {
			m.score += old
		}
		if math.IsNaN(m.score) {
			return Err("ERR resulting score is not a number (NaN)")
		}
		if found && (o.gt && m.score <= old || o.lt && m.score >= old) {
			continue
		}
		score = m.score
		z.scores[m.name] = m.score
		switch {
		case !found:
			added++
		case old != m.score:
			changed++
		}
	}
	if added+changed > 0 {
		if x.get(key) == nil {
			x.set(key, z)
		}
		x.touch(key)
	}
	if o.incr {
		return score
	}
	return pickAny(o.ch, added+changed, added)
}

func pickAny(yes bool, a, b any) any {
	if yes {
		return a
	}
	return b
}

func zrem(x *call) any {
	z, bad := find[*sortedSet](x, x.args[1])
	if bad != nil || z == nil {
		return orZero(bad)
	}
	return x.zdrop(z, x.args[2:])
}

// zdrop removes members and returns the number of removed members.
func (x *call) zdrop(z *sortedSet, names []string) int {
	before := z.size()
	for _, name := range names {
		delete(z.scores, name)
	}
	n := before - z.size()
	if n > 0 {
		x.settle(x.args[1], z)
	}
	return n
}

func zscore(x *call) any {
	z, bad := find[*sortedSet](x, x.args[1])
	if bad != nil || z == nil {
		return bad
	}
	return z.score(x.args[2])
}

func (z *sortedSet) score(name string) any {
	if z != nil {
		if score, found := z.scores[name]; found {
			return score
		}
	}
	return nil
}

func zcard(x *call) any {
	z, bad := find[*sortedSet](x, x.args[1])
	if bad != nil || z == nil {
		return orZero(bad)
	}
	return z.size()
}

func zrank(x *call) any {
	z, bad := find[*sortedSet](x, x.args[1])
	if bad != nil {
		return bad
	}
	rank := slices.IndexFunc(z.ordered(), func(m member) bool { return m.name == x.args[2] })
	if rank < 0 {
		return nil
	}
	return rank
}

// bounds is an interval of scores.
type bounds struct {
	min, max         float64
	openMin, openMax bool
}

func (b bounds) has(score float64) bool {
	return (score > b.min || !b.openMin && score == b.min) && (score < b.max || !b.openMax && score == b.max)
}

func boundsOf(low, high string) (b bounds, bad any) {
	var lowValid, highValid bool
	low, b.openMin = strings.CutPrefix(low, "(")
	high, b.openMax = strings.CutPrefix(high, "(")
	b.min, lowValid = parseFloat(low)
	b.max, highValid = parseFloat(high)
	if !lowValid || !highValid {
		return b, Err("ERR min or max is not a float")
	}
	return b, nil
}

func zcount(x *call) any {
	b, bad := boundsOf(x.args[2], x.args[3])
	if bad != nil {
		return bad
	}
	z, bad := find[*sortedSet](x, x.args[1])
	if bad != nil {
		return bad
	}
	n := 0
	for _, m := range z.ordered() {
		n += int(boolInt(b.has(m.score)))
	}
	return n
}

func zremRangeByScore(x *call) any {
	list, bad := x.zselect(zquery{byScore: true, limit: -1})
	if bad != nil {
		return bad
	}
	z, _ := find[*sortedSet](x, x.args[1])
	if z == nil {
		return 0
	}
	names := make([]string, len(list))
	for i, m := range list {
		names[i] = m.name
	}
	return x.zdrop(z, names)
}

// scored is a reply of members and scores: in RESP3 each pair is an array.
func scored(proto int, list []member) any {
	out := []any{}
	for _, m := range list {
		if proto == 3 {
			out = append(out, []any{m.name, m.score})
			continue
		}
		out = append(out, m.name, m.score)
	}
	return out
}

// zquery is the range of ZRANGE and its kin.
type zquery struct {
	byScore, reverse, scores, limited bool
	offset, limit                     int64
}

func zrange(x *call) any {
	return zrangeBy(x, zquery{}, x.args[4:], "WITHSCORES LIMIT BYSCORE REV")
}

func zrangeBy(x *call, q zquery, words []string, allowed string) any {
	q.limit = -1
	for ; len(words) > 0; words = words[1:] {
		word := strings.ToUpper(words[0])
		if !slices.Contains(strings.Fields(allowed), word) {
			return errStx
		}
		switch word {
		case "WITHSCORES":
			q.scores = true
		case "BYSCORE":
			q.byScore = true
		case "REV":
			q.reverse = true
		case "LIMIT":
			if len(words) < 3 {
				return errStx
			}
			offset, valid := parseInt(words[1])
			limit, valid2 := parseInt(words[2])
			if !valid || !valid2 {
				return errInt
			}
			q.limited, q.offset, q.limit = true, offset, limit
			words = words[2:]
		}
	}
	if q.limited && !q.byScore {
		return Err("ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX")
	}
	list, bad := x.zselect(q)
	if bad != nil {
		return bad
	}
	if q.scores {
		return scored(x.c.proto, list)
	}
	names := make([]string, len(list))
	for i, m := range list {
		names[i] = m.name
	}
	return names
}

// zselect returns the members of the key that lie in the range of the third and fourth argument.
func (x *call) zselect(q zquery) ([]member, any) {
	low, high := x.args[2], x.args[3]
	if q.byScore {
		if q.reverse {
			low, high = high, low
		}
		b, bad := boundsOf(low, high)
		if bad != nil {
			return nil, bad
		}
		z, bad := find[*sortedSet](x, x.args[1])
		if bad != nil {
			return nil, bad
		}
		list := slices.DeleteFunc(z.ordered(), func(m member) bool { return !b.has(m.score) })
		return q.cut(list), nil
	}
	first, valid := parseInt(low)
	last, valid2 := parseInt(high)
	if !valid || !valid2 {
		return nil, errInt
	}
	z, bad := find[*sortedSet](x, x.args[1])
	if bad != nil {
		return nil, bad
	}
	list := q.cut(z.ordered())
	from, end := clip(first, last, len(list))
	return list[from:end], nil
}

// cut applies the order and the LIMIT of a query.
func (q zquery) cut(list []member) []member {
	if q.reverse {
		slices.Reverse(list)
	}
	switch {
	case !q.limited:
		return list
	case q.offset < 0 || q.offset >= int64(len(list)):
		return nil
	}
	list = list[q.offset:]
	if q.limit >= 0 && q.limit < int64(len(list)) {
		list = list[:q.limit]
	}
	return list
}
