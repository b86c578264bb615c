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

// servers counts the NOSCRIPT replies of the servers behind a script's last Doers, the last used first. A wrong count costs
// one command more or less.
//
// The address of a Doer identifies the Doer without keeping it alive. A new Doer at the address of a dead one inherits its
// count. A Doer that is not a pointer is not counted.
type servers struct {
	mu    sync.Mutex
	notes []note // at most maxNotes; mu guards it
}

type note struct {
	doer      uintptr
	noScripts int
}

// countNoScript counts a NOSCRIPT reply and returns the number of NOSCRIPT replies so far.
func (s *servers) countNoScript(d conn.Doer) int {
	at := reflect.ValueOf(d)
	if at.Kind() != reflect.Pointer {
		return 1
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	n := note{doer: at.Pointer()}
	if i := slices.IndexFunc(s.notes, func(other note) bool { return other.doer == n.doer }); i >= 0 {
		n = s.notes[i]
		s.notes = slices.Delete(s.notes, i, i+1)
	}
	n.noScripts++
	s.notes = slices.Insert(s.notes[:min(len(s.notes), maxNotes-1)], 0, n)
	return n.noScripts
}
