package script_test

import (
	"testing"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/script"
)

// loads returns the number of SCRIPT LOAD that a batch of one call sends on d after the server has
// lost the script. r records the commands of d.
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

// A script keeps notes about the servers used last, up to a limit: a server that loses the script
// for the second time gets SCRIPT LOAD.
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
			t.Errorf("%d SCRIPT LOAD on server %d, after the second NOSCRIPT, want 1", n, i)
		}
	}
	if n := loads(t, s, all[0], all[0]); n != 0 {
		t.Errorf("%d SCRIPT LOAD on the server used least recently, want none", n)
	}
}

// value is a Doer without an address.
type value struct{ *recorder }

// A script keeps no notes about a Doer without an address.
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
		t.Errorf("%d commands, want 12: EVALSHA and EVAL for each run", n)
	}
}
