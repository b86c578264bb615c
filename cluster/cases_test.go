package cluster_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Each case of testdata/cases.md has a test: the test files of the case's package contain its
// number.
func TestCases(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("testdata", "cases.md"))
	if err != nil {
		t.Fatal(err)
	}
	sources, rows := map[string]string{}, map[string]bool{}
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		number := strings.TrimSpace(cells[0])
		if len(cells) != 4 || !regexp.MustCompile(`^[BC]\d\d$`).MatchString(number) {
			continue
		}
		if rows[number] {
			t.Errorf("%s has two rows", number)
		}
		rows[number] = true
		named := false
		for name := range strings.SplitSeq(cells[3], ",") {
			pkg, function, other := strings.Cut(strings.TrimSpace(name), ".")
			if !other {
				pkg, function = "cluster", pkg
			}
			if sources[pkg] == "" {
				sources[pkg] = testSource(t, pkg)
			}
			if !strings.Contains(sources[pkg], "\nfunc "+function+"(t *testing.T)") {
				t.Errorf("%s: there is no %s in %s", number, function, pkg)
			}
			named = named || strings.Contains(sources[pkg], number)
		}
		if !named {
			t.Errorf("%s stands in no test", number)
		}
	}
	for n := range 24 {
		if number := fmt.Sprintf("C%02d", n+1); !rows[number] {
			t.Errorf("%s has no row", number)
		}
	}
	for _, n := range []int{26, 27, 28, 29, 30, 32, 34, 35} {
		if number := fmt.Sprint("B", n); !rows[number] {
			t.Errorf("%s has no row", number)
		}
	}
}

// testSource returns the text of a package's tests.
func testSource(t *testing.T, pkg string) string {
	files, err := filepath.Glob(filepath.Join("..", pkg, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		b.Write(source)
	}
	return b.String()
}
