package report_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lockwire/lockwire/bench/report"
)

// The table stands between its two lines, and takes the place of the one before.
func TestReadme(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "README.md")
	const begin, end = "<!-- make bench writes what follows -->\n", "<!-- until here -->\n"
	if err := os.WriteFile(path, []byte("before\n"+begin+"old\n"+end+"after\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	r := report.Results{Cases: []report.Case{sample()}}
	for range 2 {
		if err := r.Readme(path, filepath.Join(dir, "bench")); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	got := string(text)
	row := "| GET, 64 callers | ops/s | 3000 | 1000 | rueidis | 3.00 | 0.00 |\n"
	if strings.Count(got, row) != 1 || strings.Contains(got, "old") || !strings.Contains(got, "(bench/charts/leads.svg)") ||
		!strings.HasPrefix(got, "before\n"+begin) || !strings.HasSuffix(got, end+"after\n") {
		t.Errorf("README.md is\n%s", got)
	}
	if err := os.WriteFile(path, []byte("nothing\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := r.Readme(path, filepath.Join(dir, "bench")); err == nil {
		t.Error("a file without a place for results was written")
	}
}
