package main

import (
	"bytes"
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
	all := runAll(t.Context(), m, &out, 1, seeds)
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
