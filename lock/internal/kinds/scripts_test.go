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
			sources[strings.NewReplacer(kinds.LineScript, "", kinds.LeaveScript, "", kinds.ValuesScript, "").Replace(s.Source())] = true
		}
	}
	sources[kinds.LineScript], sources[kinds.LeaveScript], sources[kinds.ValuesScript] = true, true, true
	if len(sources) != len(files) {
		t.Errorf("%d scripts and %d files", len(sources), len(files))
	}
	title := regexp.MustCompile(`^-- [A-Z][a-z -]+, ([a-z]+): .*\.$`)
	global := regexp.MustCompile(`^\s*(?:function\s|([A-Za-z_]\w*)\s*=)`)
	declared := regexp.MustCompile(`(?m)^\s*local ((?:\w+, )*\w+)(?: =|$)`)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !sources[string(text)] {
			t.Errorf("%s is not the source of a script", file)
		}
		head, _, _ := strings.Cut(string(text), "\nlocal ")
		lines := strings.Split(head, "\n")
		operation := strings.TrimSuffix(file[strings.LastIndex(file, "_")+1:], ".lua")
		if m := title.FindStringSubmatch(lines[0]); m == nil || m[1] != operation {
			t.Errorf("%s does not open with its kind, its operation and its purpose: %s", file, lines[0])
		}
		library := slices.Contains([]string{kinds.LineScript, kinds.LeaveScript, kinds.ValuesScript}, string(text))
		for _, part := range []string{"\n-- KEYS  1", "\n-- Returns "} {
			if !strings.Contains(head, part) && !library {
				t.Errorf("the head of %s has no %q", file, part[1:])
			}
		}
		if strings.Contains(string(text), "ARGV[") && !strings.Contains(head, "\n-- ARGV  1 ") {
			t.Errorf("the head of %s does not name ARGV", file)
		}
		if n := strings.Count(string(text), "\n"); n > 80 && string(text) != kinds.LineScript {
			t.Errorf("%s has %d lines, more than 80", file, n)
		}
		var locals []string
		for _, m := range declared.FindAllStringSubmatch(string(text), -1) {
			locals = append(locals, strings.Split(m[1], ", ")...)
		}
		for line := range strings.Lines(string(text)) {
			if m := global.FindStringSubmatch(line); m != nil && !slices.Contains(locals, m[1]) {
				t.Errorf("%s may set a global: %s", file, line)
			}
		}
	}
}

// Functions of the same name are the same in all scripts.
func TestScriptFunctions(t *testing.T) {
	function := regexp.MustCompile(`(?ms)^local function (head)\(.*?^end$`)
	texts := map[string]string{}
	for _, scripts := range kinds.All() {
		for _, s := range scripts {
			for _, m := range function.FindAllStringSubmatch(s.Source(), -1) {
				if other := texts[m[1]]; other != "" && other != m[0] {
					t.Errorf("%s is in one script\n%s\nand in another\n%s", m[1], other, m[0])
				}
				texts[m[1]] = m[0]
			}
		}
	}
	if len(texts) != 1 {
		t.Errorf("%d functions found", len(texts))
	}
}
