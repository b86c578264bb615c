package lockwire_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/lockwire/lockwire/internal/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// The program in README.md is the example, and its snippets are parts of examples, which are compiled and run. README.zh-CN.md has
// the same code.
func TestReadmeIsTheExample(t *testing.T) {
	example := between(t, "example_test.go", "package lockwire_test\n", "\t// Output")
	program := "package main\n" + strings.Replace(example, "func Example() {", "func main() {", 1) + "}\n"
	tasks := between(t, "example_tasks_test.go", "func try(", "func work(")
	blocks := codeOf(t, "README.md", "go")
	if len(blocks) != 7 || blocks[0] != program {
		t.Errorf("README.md has\n%s\nand the example is\n%s", strings.Join(blocks, "\n---\n"), program)
	}
	for _, block := range blocks[1:] {
		var indented strings.Builder
		for line := range strings.Lines(block) {
			indented.WriteString("\t" + line)
		}
		if !strings.Contains(tasks, indented.String()) {
			t.Errorf("README.md has code that no example has:\n%s", block)
		}
	}
}

// README.zh-CN.md has the code of README.md, and tables with the same code in each row.
func TestTranslation(t *testing.T) {
	for _, language := range []string{"go", "sh"} {
		if got, want := codeOf(t, "README.zh-CN.md", language), codeOf(t, "README.md", language); !slices.Equal(got, want) {
			t.Errorf("README.zh-CN.md has the code\n%s\nand README.md\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	got, want := rowsOf(t, "README.zh-CN.md"), rowsOf(t, "README.md")
	for i := range max(len(got), len(want)) {
		switch {
		case i >= len(got):
			t.Fatalf("README.zh-CN.md has %d rows, README.md %d", len(got), len(want))
		case i >= len(want) || got[i] != want[i]:
			t.Fatalf("README.zh-CN.md has the row %q, want %q", got[i], want[min(i, len(want)-1)])
		}
	}
}

// rowsOf returns the code in each row of the tables of a file.
func rowsOf(t *testing.T, file string) (rows []string) {
	t.Helper()
	code := regexp.MustCompile("`[^`]+`")
	for line := range strings.Lines(read(t, file)) {
		if strings.HasPrefix(line, "| ") {
			rows = append(rows, strings.Join(code.FindAllString(line, -1), " "))
		}
	}
	return rows
}

// The code in TESTING.md is code of tests, which are compiled and run.
func TestTestingIsTested(t *testing.T) {
	var tests strings.Builder
	for _, file := range []string{
		"lock/locktest/importer_test.go", "lock/locktest/example_test.go", "internal/thirdparty/miniredis_users_test.go",
	} {
		tests.WriteString(read(t, file))
	}
	blocks := codeOf(t, "TESTING.md", "go")
	for _, code := range blocks {
		if !strings.Contains(tests.String(), code) {
			t.Errorf("TESTING.md has code that no test has:\n%s", code)
		}
	}
	if len(blocks) == 0 {
		t.Error("TESTING.md has no code")
	}
}

// codeOf returns the blocks of code of a language in a file.
func codeOf(t *testing.T, file, language string) (blocks []string) {
	t.Helper()
	for _, block := range strings.Split(read(t, file), "```"+language+"\n")[1:] {
		code, _, ok := strings.Cut(block, "```")
		if !ok {
			t.Fatalf("%s has a block without an end:\n%s", file, block)
		}
		blocks = append(blocks, code)
	}
	return blocks
}

func between(t *testing.T, file, begin, end string) string {
	t.Helper()
	_, rest, ok := strings.Cut(read(t, file), begin)
	if !ok {
		t.Fatalf("%s has no %q", file, begin)
	}
	part, _, ok := strings.Cut(rest, end)
	if !ok {
		t.Fatalf("%s has no %q behind %q", file, end, begin)
	}
	return part
}
