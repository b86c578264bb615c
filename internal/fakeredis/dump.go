package fakeredis

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Key is a key of database 0. Its text equals the text of redistest.Key, so that a test can expect the same of both servers.
type Key struct {
	Name string
	Type string        // as in the reply to TYPE
	TTL  time.Duration // whole milliseconds; -1 ms if the key does not expire
	// Value of a string is the string; a list is ["a" "b"], a set {"a" "b"} in order of its members, a hash {"field":"value"
	// ...} in order of its fields, and a sorted set {"member":1 ...} in the server's order.
	Value string
}

// String is type, name, remaining time in milliseconds and value, that of a string quoted.
func (k Key) String() string {
	value := k.Value
	if k.Type == "string" {
		value = strconv.Quote(value)
	}
	return fmt.Sprintf("%s %s %d %s", k.Type, k.Name, k.TTL.Milliseconds(), value)
}

// Key returns a key. ok is false for a missing key.
func (s *Server) Key(name string) (key Key, ok bool) {
	for _, k := range s.Keys() {
		if k.Name == name {
			return k, true
		}
	}
	return Key{}, false
}

// Keys returns all living keys of database 0, in order of their names.
func (s *Server) Keys() []Key {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []Key
	x := &call{s: s, db: &s.dbs[0], now: nowMs()}
	for _, name := range x.live() {
		e := x.get(name)
		ttl := int64(-1)
		if e.until != 0 {
			ttl = e.until - x.now
		}
		list = append(list, Key{name, typeName(e.value), time.Duration(ttl) * time.Millisecond, render(e.value)})
	}
	return list
}

// Dump is Keys as text, a line for each.
func (s *Server) Dump() []string {
	var lines []string
	for _, k := range s.Keys() {
		lines = append(lines, k.String())
	}
	return lines
}

func render(value any) string {
	var words []string
	switch v := value.(type) {
	case string:
		return v
	case *list:
		for _, item := range v.items {
			words = append(words, strconv.Quote(item))
		}
		return "[" + strings.Join(words, " ") + "]"
	case *hash:
		for field, text := range v.values {
			words = append(words, strconv.Quote(field)+":"+strconv.Quote(text))
		}
		slices.Sort(words)
	case *stringSet:
		for _, m := range slices.Sorted(maps.Keys(v.members)) {
			words = append(words, strconv.Quote(m))
		}
	case *sortedSet:
		for _, m := range v.ordered() {
			words = append(words, strconv.Quote(m.name)+":"+formatFloat(m.score))
		}
	}
	return "{" + strings.Join(words, " ") + "}"
}
