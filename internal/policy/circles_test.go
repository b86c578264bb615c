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
