package script

import (
	"reflect"
	"slices"
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
	notes []note // at most maxNotes; mu guards it
}

type note struct {
	doer          uintptr
	noScripts     int  // NOSCRIPT replies so far
	lacksReadOnly bool // the server does not have EVALSHA_RO
}

// change applies fn to the notes about d and returns the result.
func (s *servers) change(d conn.Doer, fn func(*note)) (n note) {
	at := reflect.ValueOf(d)
	if at.Kind() != reflect.Pointer {
		fn(&n)
		return n
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	n.doer = at.Pointer()
	if i := slices.IndexFunc(s.notes, func(other note) bool { return other.doer == n.doer }); i >= 0 {
		n = s.notes[i]
		s.notes = slices.Delete(s.notes, i, i+1)
	}
	fn(&n)
	s.notes = slices.Insert(s.notes[:min(len(s.notes), maxNotes-1)], 0, n)
	return n
}

// countNoScript counts a NOSCRIPT reply and returns the number of NOSCRIPT replies so far.
func (s *servers) countNoScript(d conn.Doer) int {
	return s.change(d, func(n *note) { n.noScripts++ }).noScripts
}

func (s *servers) lacksReadOnly(d conn.Doer) bool {
	return s.change(d, func(*note) {}).lacksReadOnly
}

func (s *servers) setLacksReadOnly(d conn.Doer, lacks bool) {
	s.change(d, func(n *note) { n.lacksReadOnly = lacks })
}
