package kinds_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/lockwire/lockwire/lock/internal/kinds"
)

// Each script is a file. Its header has the purpose, KEYS, ARGV and the return value. It sets no global, and the package runs it.
func TestScriptFiles(t *testing.T) {
	files, err := filepath.Glob("lua/*.lua")
	if err != nil || len(files) == 0 {
		t.Fatalf("Glob() = %v, %v", files, err)
	}
	sources := map[string]bool{}
	for _, scripts := range kinds.All() {
		for _, s := range scripts {
			sources[s.Source()] = true
		}
	}
	if len(sources)+len(kinds.Texts) != len(files) {
		t.Errorf("%d scripts, %d common texts and %d files", len(sources), len(kinds.Texts), len(files))
	}
	title := regexp.MustCompile(`^-- [A-Z][a-z -]+, ([a-z]+): .*\.$`)
	global := regexp.MustCompile(`^\s*(?:function\s|([A-Za-z_]\w*)\s*=)`)
	declared := regexp.MustCompile(`(?m)^\s*local ((?:\w+, )*\w+)(?: =|$)`)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		_, common := kinds.Texts[filepath.Base(file)]
		source := withTexts(string(text))
		if !common && !sources[source] {
			t.Errorf("%s is not the source of a script", file)
		}
		head, _, _ := strings.Cut(string(text), "\nlocal ")
		lines := strings.Split(head, "\n")
		operation := strings.TrimSuffix(file[strings.LastIndex(file, "_")+1:], ".lua")
		if m := title.FindStringSubmatch(lines[0]); m == nil || m[1] != operation {
			t.Errorf("%s does not open with its kind, its operation and its purpose: %s", file, lines[0])
		}
		for _, part := range []string{"\n-- KEYS  1", "\n-- Returns "} {
			if !strings.Contains(head, part) && !common {
				t.Errorf("the head of %s has no %q", file, part[1:])
			}
		}
		if strings.Contains(string(text), "ARGV[") && !common && !strings.Contains(head, "\n-- ARGV  1 ") {
			t.Errorf("the head of %s does not name ARGV", file)
		}
		if n := strings.Count(string(text), "\n"); n > 80 && string(text) != kinds.LineScript {
			t.Errorf("%s has %d lines, more than 80", file, n)
		}
		if common {
			continue // its names are those of the scripts
		}
		var locals []string
		for _, m := range declared.FindAllStringSubmatch(source, -1) {
			locals = append(locals, strings.Split(m[1], ", ")...)
		}
		for line := range strings.Lines(source) {
			if m := global.FindStringSubmatch(line); m != nil && !slices.Contains(locals, m[1]) {
				t.Errorf("%s may set a global: %s", file, line)
			}
		}
	}
}

// textLine is a line in whose place a script has a common text.
var textLine = regexp.MustCompile(`(?m)^-- (\w+\.lua)\n`)

// withTexts returns a file with the texts that it names.
func withTexts(file string) string {
	return textLine.ReplaceAllStringFunc(file, func(line string) string {
		return line + withTexts(kinds.Texts[textLine.FindStringSubmatch(line)[1]])
	})
}

// A common text stands in several scripts, and no script has a text of its own, but for one that would have more than 80 lines.
func TestScriptTexts(t *testing.T) {
	uses := map[string]int{}
	seen := map[string]bool{}
	for _, scripts := range kinds.All() {
		for _, s := range scripts {
			for _, m := range textLine.FindAllStringSubmatch(s.Source(), -1) {
				if kinds.Texts[m[1]] == "" {
					t.Errorf("%s names %s, which is no common text", s.Name(), m[1])
				}
				if !seen[s.Source()] {
					uses[m[1]]++
				}
			}
			seen[s.Source()] = true
		}
	}
	for file := range kinds.Texts {
		if uses[file] < 2 && file != "fastermulti_wait.lua" {
			t.Errorf("%s stands in %d scripts, want several", file, uses[file])
		}
	}
}
