package script

import (
	"reflect"
	"sync"

	"github.com/lockwire/lockwire/conn"
)

// maxNotes is the number of servers about which a script keeps notes. A further server takes the
// place of the server used least recently.
const maxNotes = 16

// servers holds a script's notes about the servers behind its last Doers, the last used first.
// Notes only save work. A wrong note costs an extra reply, or makes RunRO run a script without the
// server's protection against writes.
//
// The address of a Doer identifies the Doer without keeping it alive. A new Doer at the address of
// a dead one inherits the notes until the next NOSCRIPT corrects them. A Doer that is not a pointer
// has no notes.
type servers struct {
	mu    sync.Mutex
	notes [maxNotes]note // mu guards it
}

type note struct {
	doer          uintptr
	noScripts     int  // NOSCRIPT replies so far
	lacksReadOnly bool // the server does not have EVALSHA_RO
}

func address(d conn.Doer) uintptr {
	if v := reflect.ValueOf(d); v.Kind() == reflect.Pointer {
		return v.Pointer()
	}
	return 0
}

// findLocked moves the notes about the Doer at address to the front and returns them, or nil.
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

// change applies fn to the notes about d, which it creates if necessary, and returns the result.
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

// countNoScript counts a NOSCRIPT reply and returns the number of NOSCRIPT replies so far.
func (s *servers) countNoScript(d conn.Doer) int {
	return s.change(d, func(n *note) { n.noScripts++ }).noScripts
}

func (s *servers) lacksReadOnly(d conn.Doer) bool { return s.read(d).lacksReadOnly }

func (s *servers) setLacksReadOnly(d conn.Doer, lacks bool) {
	s.change(d, func(n *note) { n.lacksReadOnly = lacks })
}
