package lockwire_test

import (
	"os"
	"strings"
	"testing"

	"github.com/lockwire/lockwire/internal/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// The program in README.md is the example, which is compiled and run.
func TestReadmeIsTheExample(t *testing.T) {
	readme := between(t, "README.md", "```go\n", "```")
	example := between(t, "example_test.go", "package lockwire_test\n", "\t// Output")
	if got := "package main\n" + strings.Replace(example, "func Example() {", "func main() {", 1) + "}\n"; got != readme {
		t.Errorf("README.md has\n%s\nand the example is\n%s", readme, got)
	}
}

// The code in TESTING.md is code of tests, which are compiled and run.
func TestTestingIsTested(t *testing.T) {
	text, err := os.ReadFile("TESTING.md")
	if err != nil {
		t.Fatal(err)
	}
	var tests strings.Builder
	for _, file := range []string{
		"lock/locktest/importer_test.go", "lock/locktest/example_test.go", "internal/thirdparty/miniredis_users_test.go",
	} {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		tests.Write(source)
	}
	blocks := strings.Split(string(text), "```go\n")[1:]
	for _, block := range blocks {
		if code, _, ok := strings.Cut(block, "```"); !ok || !strings.Contains(tests.String(), code) {
			t.Errorf("TESTING.md has code that no test has:\n%s", code)
		}
	}
	if len(blocks) == 0 {
		t.Error("TESTING.md has no code")
	}
}

func between(t *testing.T, file, begin, end string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(text), begin)
	if !ok {
		t.Fatalf("%s has no %q", file, begin)
	}
	part, _, ok := strings.Cut(rest, end)
	if !ok {
		t.Fatalf("%s has no %q behind %q", file, end, begin)
	}
	return part
}
