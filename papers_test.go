package lockwire_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// Each link of a paper to a file of the repository leads to a file, and to a heading of it.
func TestLinks(t *testing.T) {
	var papers []string
	for _, pattern := range []string{"*.md", "bench/*.md"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		papers = append(papers, found...)
	}
	link := regexp.MustCompile(`\]\(([^)#:]*)(#[^)]*)?\)`)
	links := 0
	for _, paper := range papers {
		for _, found := range link.FindAllStringSubmatch(read(t, paper), -1) {
			links++
			file := paper
			if found[1] != "" {
				file = filepath.Join(filepath.Dir(paper), found[1])
			}
			switch _, err := os.Stat(file); {
			case err != nil:
				t.Errorf("%s: the link %s leads nowhere", paper, found[0])
			case found[2] != "" && !strings.Contains(anchorsOf(read(t, file)), found[2]+"\n"):
				t.Errorf("%s: the link %s leads to no heading", paper, found[0])
			}
		}
	}
	if links == 0 {
		t.Error("there are no links")
	}
}

// anchorsOf returns the anchors of a paper's headings, each in a line.
func anchorsOf(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if heading, ok := strings.CutPrefix(strings.TrimLeft(line, "#"), " "); ok && line[0] == '#' {
			b.WriteString("#" + strings.Map(anchorRune, strings.ToLower(strings.TrimSpace(heading))) + "\n")
		}
	}
	return b.String()
}

// anchorRune is what becomes of a letter of a heading in its anchor: most marks are left out.
func anchorRune(r rune) rune {
	switch {
	case r == ' ':
		return '-'
	case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
		return r
	}
	return -1
}

// The panels and alerts that OPERATIONS.md explains are those of the dashboard and of the rules.
func TestOperationsKnowTheDashboard(t *testing.T) {
	text := read(t, "OPERATIONS.md")
	dashboard, alerts := read(t, "contrib/prometheus/dashboard.json"), read(t, "contrib/prometheus/alerts.yml")
	_, table, ok := strings.Cut(text, "| panel | normal | otherwise |\n|---|---|---|\n")
	table, _, end := strings.Cut(table, "\n\n")
	if !ok || !end {
		t.Fatal("OPERATIONS.md has no table of panels")
	}
	for line := range strings.Lines(table) {
		panels, _, _ := strings.Cut(strings.TrimPrefix(line, "| "), " |")
		for panel := range strings.SplitSeq(panels, ", ") {
			if !strings.Contains(dashboard, `"title": "`+panel+`"`) {
				t.Errorf("the dashboard has no panel %q", panel)
			}
		}
	}
	for _, alert := range regexp.MustCompile("`(Lockwire[A-Za-z]+)`").FindAllStringSubmatch(text, -1) {
		if !strings.Contains(alerts, "alert: "+alert[1]+"\n") {
			t.Errorf("there is no alert %s", alert[1])
		}
	}
	for _, alert := range regexp.MustCompile("alert: ([A-Za-z]+)\n").FindAllStringSubmatch(alerts, -1) {
		if !strings.Contains(text, "| `"+alert[1]+"` |") {
			t.Errorf("OPERATIONS.md does not explain the alert %s", alert[1])
		}
	}
}

// The ways through lock, and beneath it, in DESIGN.md lead over functions that are there.
func TestWays(t *testing.T) {
	_, ways, _ := strings.Cut(read(t, "DESIGN.md"), "### Ways through")
	ways, _, _ = strings.Cut(ways, "\n## ")
	var code strings.Builder
	folders := []string{"lock", "lock/internal/cleanup", "lock/internal/watchdog", "script", "conn", "conn/internal/pipeline", "cluster"}
	for _, folder := range folders {
		files, err := filepath.Glob(folder + "/*.go")
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			code.WriteString(read(t, file))
		}
	}
	names := regexp.MustCompile("`([a-zA-Z]+)`").FindAllStringSubmatch(ways, -1)
	for _, name := range names {
		isFolder := slices.ContainsFunc(folders, func(folder string) bool { return filepath.Base(folder) == name[1] })
		if !isFolder && !regexp.MustCompile(`(?m)^func (\(.*\) )?`+name[1]+`[(\[]`).MatchString(code.String()) {
			t.Errorf("there is no function %s", name[1])
		}
	}
	if len(names) < 20 {
		t.Errorf("%d names, want the functions of the ways", len(names))
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
