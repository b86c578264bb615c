package fakeredis

import (
	"cmp"
	"maps"
	"slices"
)

func setCommands() []command {
	return []command{
		{name: "sadd", arity: -3, flags: onWrite, run: sadd},
		{name: "smembers", arity: 2, run: smembers},
	}
}

type stringSet struct{ members map[string]bool }

func (s *stringSet) size() int { return len(s.members) }

// sorted lists the members: numbers by value, as Redis lists a set of integers, before the rest.
func (s *stringSet) sorted() []string {
	return slices.SortedFunc(maps.Keys(s.members), func(a, b string) int {
		n, aNumber := parseInt(a)
		m, bNumber := parseInt(b)
		switch {
		case aNumber && bNumber:
			return cmp.Compare(n, m)
		case aNumber != bNumber:
			return cmp.Compare(boolInt(bNumber), boolInt(aNumber))
		}
		return cmp.Compare(a, b)
	})
}

func sadd(x *call) any {
	s, bad := find[*stringSet](x, x.args[1])
	if bad != nil {
		return bad
	}
	if s == nil {
		s = &stringSet{members: map[string]bool{}}
		x.set(x.args[1], s)
	}
	before := s.size()
	for _, m := range x.args[2:] {
		s.members[m] = true
	}
	added := s.size() - before
	if added > 0 {
		x.touch(x.args[1])
	}
	return added
}

func smembers(x *call) any {
	s, bad := find[*stringSet](x, x.args[1])
	if bad != nil {
		return bad
	}
	list := members{}
	if s != nil {
		for _, m := range s.sorted() {
			list = append(list, m)
		}
	}
	return list
}
