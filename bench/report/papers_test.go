package report_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/lockwire/lockwire/bench/report"
)

// RESULTS.md and TABLES.md say what results.json says, and BEHIND.md explains each missed goal.
func TestPapers(t *testing.T) {
	r, err := report.Load(filepath.Join("..", report.File))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := r.Write(dir); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"RESULTS.md", "TABLES.md"} {
		if read(t, filepath.Join(dir, file)) != read(t, filepath.Join("..", file)) {
			t.Errorf("%s is old: go run ./bench -report", file)
		}
	}
	_, missed, _ := strings.Cut(read(t, filepath.Join(dir, "RESULTS.md")), "| missed |")
	missed, _, _ = strings.Cut(missed, "\n\n")
	behind := read(t, filepath.Join("..", "BEHIND.md"))
	for _, row := range regexp.MustCompile("(?m)^\\| (`[^`]+`)").FindAllStringSubmatch(missed, -1) {
		if !strings.Contains(behind, row[1]) {
			t.Errorf("BEHIND.md does not explain %s", row[1])
		}
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
