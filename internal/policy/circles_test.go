package policy

import (
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// largestCircle is the number of files in the largest circle of a package: files that all reach each other by the names they
// use. DESIGN.md says which files stand above which; a new circle takes down one of these walls.
var largestCircle = map[string]int{
	"resp": 5, "conn": 3, "script": 0, "pubsub": 8, "cluster": 5, "lock": 8,
}

func TestCirclesOfFiles(t *testing.T) {
	exports := exportData(t)
	for dir, most := range largestCircle {
		uses := fileUses(t, dir, exports)
		if circle := largest(uses); len(circle) > most {
			t.Errorf("%s: a circle of %d files, at most %d allowed: %s", dir, len(circle), most, strings.Join(circle, " "))
		}
	}
}

// The files of a package stand in the rows of its table in DESIGN.md, each in one, and use only files of their row or of rows above.
func TestRowsOfFiles(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(top, "DESIGN.md"))
	if err != nil {
		t.Fatal(err)
	}
	exports := exportData(t)
	for _, dir := range []string{"lock", "cluster", "conn"} {
		_, table, ok := strings.Cut(string(text), "| row | files of `"+dir+"` |\n|---|---|\n")
		if !ok {
			t.Fatalf("DESIGN.md has no table of the files of %s", dir)
		}
		table, _, _ = strings.Cut(table, "\n\n")
		rows := rowsOf(t, dir, table)
		for from, uses := range fileUses(t, dir, exports) {
			for to := range uses {
				if rows[to] > rows[from] {
					t.Errorf("%s/%s in row %d uses %s in row %d", dir, from, rows[from], to, rows[to])
				}
			}
		}
	}
}

// DESIGN.md says what the packages behind conn and lock are for.
func TestPackagesAreNamed(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(top, "DESIGN.md"))
	if err != nil {
		t.Fatal(err)
	}
	dirs, err := filepath.Glob(filepath.Join(top, "*", "internal", "*"))
	if err != nil || len(dirs) == 0 {
		t.Fatalf("no packages: %v", err)
	}
	for _, dir := range dirs {
		name := filepath.Base(dir)
		if !strings.Contains(string(text), "/internal/"+name+"`") && !strings.Contains(string(text), "`"+name+"`") {
			t.Errorf("DESIGN.md does not name %s", dir)
		}
	}
}

// rowsOf returns the number of each file's row in a table, where the names may have a *.
func rowsOf(t *testing.T, dir, table string) map[string]int {
	t.Helper()
	rows := map[string]int{}
	named := regexp.MustCompile("`([a-z_*]+\\.go)`")
	for i, row := range strings.Split(table, "\n") {
		for _, name := range named.FindAllStringSubmatch(row, -1) {
			paths, err := filepath.Glob(filepath.Join(top, dir, name[1]))
			if err != nil || len(paths) == 0 {
				t.Errorf("DESIGN.md names %s of %s, and there is none: %v", name[1], dir, err)
			}
			for _, path := range paths {
				file := filepath.Base(path)
				if rows[file] != 0 {
					t.Errorf("%s/%s is in the rows %d and %d", dir, file, rows[file], i+1)
				}
				rows[file] = i + 1
			}
		}
	}
	all, err := filepath.Glob(filepath.Join(top, dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range all {
		if file := filepath.Base(path); rows[file] == 0 && file != "doc.go" && !strings.HasSuffix(file, "_test.go") {
			t.Errorf("%s/%s is in no row of DESIGN.md", dir, file)
		}
	}
	return rows
}

// exportData returns the files with the export data of all packages, by import path.
func exportData(t *testing.T) map[string]string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}", "./lock", "./cluster", "./script")
	cmd.Dir = top
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	exports := map[string]string{}
	for line := range strings.Lines(string(out)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		exports[path] = file
	}
	return exports
}

// fileUses returns for each file of a package the files whose names it uses.
func fileUses(t *testing.T, dir string, exports map[string]string) map[string]map[string]bool {
	t.Helper()
	set := token.NewFileSet()
	names, err := filepath.Glob(filepath.Join(top, dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	var files []*ast.File
	for _, name := range names {
		f, err := parser.ParseFile(set, name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(name, "_test.go") {
			files = append(files, f)
		}
	}
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	cfg := types.Config{
		Importer: importer.ForCompiler(set, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) }),
		Error:    func(error) {}, // files for several systems declare the same names
	}
	pkg, _ := cfg.Check(dir, set, files, info)
	file := func(at token.Pos) string { return filepath.Base(set.Position(at).Filename) }
	uses := map[string]map[string]bool{}
	for id, o := range info.Uses {
		if o.Pkg() != pkg || o.Parent() != nil && o.Parent() != pkg.Scope() { // of another package, or local
			continue
		}
		if uses[file(id.Pos())] == nil {
			uses[file(id.Pos())] = map[string]bool{}
		}
		uses[file(id.Pos())][file(o.Pos())] = true
	}
	return uses
}

// largest returns the largest group of files that all reach each other.
func largest(uses map[string]map[string]bool) (circle []string) {
	reached := map[string]map[string]bool{}
	for from := range uses {
		reached[from] = reach(uses, from)
	}
	for from := range uses {
		var group []string
		for to := range reached[from] {
			if reached[to][from] {
				group = append(group, to)
			}
		}
		if len(group) > max(1, len(circle)) {
			slices.Sort(group)
			circle = group
		}
	}
	return circle
}

// reach returns the files that a file uses, directly or by way of further files.
func reach(uses map[string]map[string]bool, from string) map[string]bool {
	seen := map[string]bool{}
	for next := []string{from}; len(next) > 0; {
		at := next[0]
		next = next[1:]
		for to := range uses[at] {
			if !seen[to] {
				seen[to] = true
				next = append(next, to)
			}
		}
	}
	return seen
}
