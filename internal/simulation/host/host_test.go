package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"
)

func TestMachine(t *testing.T) {
	m, err := newMachine(t.Context(), "../../..")
	if err != nil {
		t.Fatal(err)
	}
	defer m.close(t.Context())
	m.brief = true
	t.Run("seeds", func(t *testing.T) { testSeeds(t, m) })
	t.Run("same seed, same history", func(t *testing.T) { testSameHistory(t, m) })
}

// testSeeds fails if one of some seeds has a violation. To see more of it: make simulate BRIEF=1 SEED=n.
func testSeeds(t *testing.T, m *machine) {
	const seeds = 50
	var out bytes.Buffer
	all := runAll(t.Context(), &out, 1, seeds, 1, m.runSome)
	if all.bad > 0 || all.seeds != seeds {
		t.Errorf("%d of %d seeds have failed:\n%s", all.bad, all.seeds, out.Bytes())
	}
	if all.total.Holds < seeds || all.total.Looks < seeds || len(all.total.Faults) < 10 {
		t.Errorf("little has happened: %+v", all.total)
	}
}

// testSameHistory fails unless one seed gives one history, byte for byte, whatever ran before. Seed 3 has a cluster.
func testSameHistory(t *testing.T, m *machine) {
	histories := map[uint64][]byte{}
	for _, seed := range []uint64{3, 1, 3} {
		out, report, err := m.run(t.Context(), seed, true)
		if err != nil || report.failed() {
			t.Fatalf("seed %d: %v\n%s", seed, err, out)
		}
		if bytes.Count(out, []byte("\n")) < 100 {
			t.Errorf("seed %d: a history of %d bytes", seed, len(out))
		}
		if before, again := histories[seed]; again && !bytes.Equal(before, out) {
			t.Errorf("seed %d has two histories: %s", seed, difference(before, out))
		}
		histories[seed] = out
	}
	if bytes.Equal(histories[1], histories[3]) {
		t.Error("two seeds have one history")
	}
}

// The program for this machine runs seeds in batches, and the last batch is smaller. Nothing here asks for sound seeds: a schedule
// that finds a fault must not fail the gate.
func TestProgram(t *testing.T) {
	p, err := newProgram(t.Context(), "../../..")
	if err != nil {
		t.Fatal(err)
	}
	defer p.remove()
	p.brief = true
	all := runAll(t.Context(), io.Discard, 1, 5, 2, p.run)
	if all.seeds != 5 || all.total.Operations < 5 || all.bad != 0 && all.total.Violations == 0 {
		t.Errorf("of 5 seeds %d ran, and %d failed: %+v", all.seeds, all.bad, all.total)
	}
}

// Seeds without a report have failed.
func TestProgramThatDies(t *testing.T) {
	var out bytes.Buffer
	all := runAll(t.Context(), &out, 7, 5, 3, func(_ context.Context, first uint64, n int) ([]byte, []*report, error) {
		if first == 7 {
			return []byte("panic"), []*report{{Seed: 7}, {Seed: 8, Violations: 2}}, errors.New("exit status 2")
		}
		return nil, []*report{{Seed: 10}, {Seed: 11}}, nil
	})
	if all.seeds != 5 || all.bad != 2 || all.worst != 8 || all.total.Violations != 2 {
		t.Errorf("%d of %d seeds have failed, first %d, want 2 of 5, first 8", all.bad, all.seeds, all.worst)
	}
	if want := "seeds 7 to 9: exit status 2\npanic\n"; out.String() != want {
		t.Errorf("output %q, want %q", out.String(), want)
	}
}

// difference is the first line in which two texts differ.
func difference(a, b []byte) string {
	lines := bytes.Split(b, []byte("\n"))
	for i, line := range bytes.Split(a, []byte("\n")) {
		if i >= len(lines) || !bytes.Equal(line, lines[i]) {
			return string(line)
		}
	}
	return "at the end"
}
