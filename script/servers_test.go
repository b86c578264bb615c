package script_test

import (
	"testing"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/script"
)

// loads returns how many scripts a batch of one call has loaded on d, whose commands r keeps and whose server has forgotten
// the script.
func loads(t *testing.T, s *script.Script, d conn.Doer, r *recorder) int {
	t.Helper()
	r.cmds, r.knows = nil, false
	replies, err := script.RunBatch(t.Context(), d, []script.Call{s.Call([]string{"n"}, 1)})
	if err != nil || len(replies) != 1 {
		t.Fatalf("RunBatch = %d replies, %v", len(replies), err)
	}
	n := 0
	for _, cmd := range r.cmds {
		if cmd.Name() == "SCRIPT" {
			n++
		}
	}
	return n
}

// A script keeps notes about the servers that it ran on last, and about no more than it has room for: from the second time on
// a server that forgets it is told to keep it.
func TestNotesAboutManyServers(t *testing.T) {
	s := script.New(source)
	var all []*recorder
	for range 17 {
		all = append(all, new(recorder))
	}
	for _, d := range all {
		if n := loads(t, s, d, d); n != 0 {
			t.Fatalf("%d SCRIPT LOAD on a new server, want none", n)
		}
	}
	for i := len(all) - 1; i > 0; i-- {
		if n := loads(t, s, all[i], all[i]); n != 1 {
			t.Errorf("%d SCRIPT LOAD on server %d, which has forgotten the script twice, want 1", n, i)
		}
	}
	if n := loads(t, s, all[0], all[0]); n != 0 {
		t.Errorf("%d SCRIPT LOAD on the server that was not used for longest, want none", n)
	}
}

// value is a Doer without an address.
type value struct{ *recorder }

// Of a Doer that cannot be told from another nothing is remembered.
func TestNoNotesAboutAValue(t *testing.T) {
	s := script.New(source)
	d := value{new(recorder)}
	for range 3 {
		if n := loads(t, s, d, d.recorder); n != 0 {
			t.Errorf("%d SCRIPT LOAD, want none", n)
		}
	}
	d.cmds, d.knows = nil, false
	for range 3 {
		if _, err := s.Run(t.Context(), d, []string{"n"}, 1); err != nil {
			t.Fatal(err)
		}
		if _, err := s.RunRO(t.Context(), d, []string{"n"}, 1); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(d.cmds); n != 12 {
		t.Errorf("%d commands, want twelve: an EVALSHA and an EVAL for each run", n)
	}
}
