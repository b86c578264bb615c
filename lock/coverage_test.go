package lock_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Each of Redisson's own tests of its locks has a test here that shows the same, or a word on why not. They are listed in
// testdata/redisson-tests/list.txt; the answers are the tables in the other files there: a heading with the name of the
// class, then rows of a test's name and ours. Ours is a list of names with commas, subtests with slashes, or "not: " and why.
// Each has one row.
func TestRedissonTests(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("testdata", "redisson-tests", "list.txt"))
	if err != nil {
		t.Fatal(err)
	}
	listed := strings.Split(strings.TrimSpace(string(text)), "\n")
	files, err := filepath.Glob(filepath.Join("testdata", "redisson-tests", "*.md"))
	if err != nil || len(files) == 0 {
		t.Fatalf("Glob() = %v, %v", files, err)
	}
	tests := testsOfRepository(t)
	answered := map[string]string{}
	for _, file := range files {
		for _, row := range tableRows(t, file) {
			name := row.heading + " " + row.cells[0]
			if other := answered[name]; other != "" {
				t.Errorf("%s: %s has a row already, in %s", file, name, other)
			}
			if answered[name] = file; !slices.Contains(listed, name) {
				t.Errorf("%s: %s is not listed", file, name)
			}
			for _, problem := range tests.missing(row.cells[1]) {
				t.Errorf("%s: %s: %s", file, name, problem)
			}
		}
	}
	for _, name := range listed {
		if answered[name] == "" {
			t.Errorf("%s has no row", name)
		}
	}
}

// Each fault of Redisson's that has a number in testdata/anomalies.md has a test that we do not share it.
func TestAnomalies(t *testing.T) {
	tests, rows := testsOfRepository(t), map[string]bool{}
	for _, row := range tableRows(t, filepath.Join("testdata", "anomalies.md")) {
		number := row.cells[0]
		if rows[number] {
			t.Errorf("%s has two rows", number)
		}
		rows[number] = true
		for _, problem := range tests.missing(row.cells[2]) {
			t.Errorf("%s: %s", number, problem)
		}
		if !strings.HasPrefix(row.cells[2], "not: ") && !strings.Contains(row.cells[2], "Test"+number) {
			t.Errorf("%s: no test is named by the number: %s", number, row.cells[2])
		}
	}
	for n := range 30 {
		if number := fmt.Sprintf("A%02d", n+1); !rows[number] {
			t.Errorf("%s has no row", number)
		}
	}
	for name := range tests.functions {
		if m := regexp.MustCompile(`^TestA\d\d`).FindString(name); m != "" && !rows[m[4:]] {
			t.Errorf("%s is about a fault that is not in the table", name)
		}
	}
}

// tableRow is a row of a Markdown table and the last heading before it.
type tableRow struct {
	heading string
	cells   []string
}

func tableRows(t *testing.T, file string) (rows []tableRow) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	heading, head := "", true
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "## "):
			heading = line[len("## "):]
		case !strings.HasPrefix(line, "|"):
			head = true
		case strings.HasPrefix(line, "|-"), strings.HasPrefix(line, "| -"):
			head = false
		case !head:
			cells := strings.Split(strings.Trim(line, "|"), "|")
			for i := range cells {
				cells[i] = strings.TrimSpace(cells[i])
			}
			rows = append(rows, tableRow{heading, cells})
		}
	}
	if len(rows) == 0 {
		t.Errorf("%s has no table", file)
	}
	return rows
}

// repositoryTests is what the test files say, and the package of tests for all servers.
type repositoryTests struct {
	functions map[string]bool
	text      string
}

func testsOfRepository(t *testing.T) repositoryTests {
	t.Helper()
	tests, text := repositoryTests{functions: map[string]bool{}}, strings.Builder{}
	function := regexp.MustCompile(`(?m)^func ((?:Test|Example)\w+)\(`)
	for _, pattern := range []string{"*_test.go", "internal/*/*_test.go", "../*/*_test.go", "../internal/*/*.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			source, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range function.FindAllStringSubmatch(string(source), -1) {
				tests.functions[m[1]] = true
			}
			text.Write(source)
		}
	}
	tests.text = text.String()
	return tests
}

// missing reports what is wrong with an answer: tests that are not there, or no word on why there is none.
func (r repositoryTests) missing(answer string) (problems []string) {
	if why, none := strings.CutPrefix(answer, "not: "); none {
		if len(strings.Fields(why)) < 3 {
			problems = append(problems, "it does not say why not")
		}
		return problems
	}
	for name := range strings.SplitSeq(answer, ",") {
		parts := strings.Split(strings.TrimSpace(name), "/")
		if !r.functions[parts[0]] {
			problems = append(problems, fmt.Sprintf("there is no test %q", parts[0]))
		}
		for _, part := range parts[1:] {
			if !strings.Contains(r.text, `"`+part+`"`) {
				problems = append(problems, fmt.Sprintf("there is no subtest %q", part))
			}
		}
	}
	return problems
}
