package script

import (
	"reflect"
	"sync"

	"github.com/lockwire/lockwire/conn"
)

// remembered is how many servers a script keeps notes about. A server beyond that is not known to forget scripts.
const remembered = 16

// servers holds what a script has learnt about the servers behind the Doers it ran on, the last used first. It only saves
// work: a wrong note leads to one reply more, or to a script that RunRO runs without the server minding its writes.
//
// A Doer is told by its address, which keeps nothing alive. When another Doer comes to lie at the address of a dead one
// it inherits the notes, and the next NOSCRIPT corrects them. A Doer that is not a pointer has no notes.
type servers struct {
	mu    sync.Mutex
	notes [remembered]note // mu guards it
}

type note struct {
	doer          uintptr
	forgotten     int  // how many NOSCRIPT replies came
	lacksReadOnly bool // the server does not know EVALSHA_RO
}

func address(d conn.Doer) uintptr {
	if v := reflect.ValueOf(d); v.Kind() == reflect.Pointer {
		return v.Pointer()
	}
	return 0
}

// findLocked moves the notes about the Doer at the address to the front and returns them, or nil.
func (s *servers) findLocked(address uintptr) *note {
	for i, n := range s.notes {
		if n.doer == address {
			copy(s.notes[1:i+1], s.notes[:i])
			s.notes[0] = n
			return &s.notes[0]
		}
	}
	return nil
}

// change applies fn to the notes about d, making them if need be, and returns the result.
func (s *servers) change(d conn.Doer, fn func(*note)) note {
	at := address(d)
	if at == 0 {
		var n note
		fn(&n)
		return n
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.findLocked(at)
	if n == nil {
		copy(s.notes[1:], s.notes[:])
		s.notes[0] = note{doer: at}
		n = &s.notes[0]
	}
	fn(n)
	return *n
}

func (s *servers) read(d conn.Doer) note {
	at := address(d)
	if at == 0 {
		return note{}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.findLocked(at); n != nil {
		return *n
	}
	return note{}
}

// forgot notes a NOSCRIPT reply and returns how many of them came so far.
func (s *servers) forgot(d conn.Doer) int {
	return s.change(d, func(n *note) { n.forgotten++ }).forgotten
}

func (s *servers) lacksReadOnly(d conn.Doer) bool { return s.read(d).lacksReadOnly }

func (s *servers) setLacksReadOnly(d conn.Doer, lacks bool) {
	s.change(d, func(n *note) { n.lacksReadOnly = lacks })
}
