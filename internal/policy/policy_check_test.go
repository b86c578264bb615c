package policy

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

const module = "github.com/lockwire/lockwire"

// source is one Go file.
type source struct {
	path, dir string // with slashes, from the root of the repository; dir is "" there
	module    string // the folder of its go.mod, "" for the root module
	text      string
	files     *token.FileSet
	file      *ast.File
}

func (s source) test() bool { return strings.HasSuffix(s.path, "_test.go") }

func (s source) line(at token.Pos) int { return s.files.Position(at).Line }

// imports returns the paths it imports.
func (s source) imports() []string {
	var list []string
	for _, spec := range s.file.Imports {
		name, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			name = spec.Path.Value
		}
		list = append(list, name)
	}
	return list
}

// files returns the paths of all files that are the project's own text.
func files(fsys fs.FS) ([]string, error) {
	var list []string
	err := fs.WalkDir(fsys, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.Type().IsRegular():
			list = append(list, name)
		case !entry.IsDir(): // a link, as .servers may be
		case entry.Name() == "testdata", name == ".git", name == ".servers":
			return fs.SkipDir
		}
		return nil
	})
	return list, err
}

// parse reads all Go files.
func parse(fsys fs.FS) ([]source, error) {
	names, err := files(fsys)
	if err != nil {
		return nil, err
	}
	var sources []source
	for _, name := range names {
		if !strings.HasSuffix(name, ".go") {
			continue
		}
		text, err := fs.ReadFile(fsys, name)
		if err != nil {
			return nil, err
		}
		s := source{path: name, dir: folder(name), text: string(text), files: token.NewFileSet()}
		for s.module = s.dir; s.module != "" && !slices.Contains(names, s.module+"/go.mod"); {
			s.module = folder(s.module)
		}
		s.file, err = parser.ParseFile(s.files, name, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		sources = append(sources, s)
	}
	return sources, nil
}

// folder is path.Dir, but "" for the root.
func folder(name string) string {
	if dir := path.Dir(name); dir != "." {
		return dir
	}
	return ""
}

func inRoot(sources []source) []source {
	return slices.DeleteFunc(sources, func(s source) bool { return s.module != "" })
}

// checkImports compares the imports within the module with a table.
func checkImports(sources []source, table map[string][]string) (problems []string) {
	for _, s := range sources {
		allowed, ok := table[s.dir]
		if !ok {
			problems = append(problems, fmt.Sprintf("%s: package %q has no row in the table of imports", s.path, s.dir))
			continue
		}
		for _, name := range s.imports() {
			target, ours := strings.CutPrefix(name+"/", module+"/")
			target = strings.TrimSuffix(target, "/")
			switch {
			case !ours, slices.Contains(allowed, target):
			case s.test() && (s.dir == "" || strings.HasPrefix(path.Base(s.path), "example") || target == s.dir || strings.HasPrefix(target, "internal/")):
			default:
				problems = append(problems, fmt.Sprintf("%s: %q may not import %q", s.path, s.dir, target))
			}
		}
	}
	return problems
}

// checkStandardOnly finds imports from other modules.
func checkStandardOnly(sources []source) (problems []string) {
	for _, s := range sources {
		for _, name := range s.imports() {
			first, _, _ := strings.Cut(name, "/")
			if name == "C" || strings.Contains(first, ".") && name != module && !strings.HasPrefix(name, module+"/") {
				problems = append(problems, fmt.Sprintf("%s: imports %q, which is not in the standard library", s.path, name))
			}
		}
	}
	return problems
}

// checkGoMod finds anything in a go.mod but its name and its versions of Go.
func checkGoMod(text string) (problems []string) {
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "//")
		words := strings.Fields(line)
		if len(words) > 0 && !slices.Contains([]string{"module", "go", "toolchain"}, words[0]) {
			problems = append(problems, fmt.Sprintf("go.mod: %q: the root module requires nothing", strings.TrimSpace(line)))
		}
	}
	return problems
}

// checkLight finds packages that are too heavy among those that the library depends on.
func checkLight(deps, heavy []string) (problems []string) {
	if !slices.Contains(deps, module+"/lock") {
		problems = append(problems, "the library is not among what it depends on: "+strings.Join(deps, " "))
	}
	for _, name := range heavy {
		if slices.Contains(deps, name) {
			problems = append(problems, fmt.Sprintf("the library depends on %s", name))
		}
	}
	return problems
}

// checkLinked compares the scripts in a program with those whose names begin with kind, and those of all kinds.
func checkLinked(scripts fs.FS, program []byte, kind string) (problems []string) {
	names, err := fs.Glob(scripts, "*.lua")
	if err != nil || len(names) == 0 {
		return []string{fmt.Sprintf("no scripts: %v", err)}
	}
	for _, name := range names {
		text, err := fs.ReadFile(scripts, name)
		if err != nil {
			return append(problems, err.Error())
		}
		switch linked, want := bytes.Contains(program, text), strings.HasPrefix(name, kind) || strings.HasPrefix(name, "all_"); {
		case linked && !want:
			problems = append(problems, name+" is linked into a program that does not use it")
		case !linked && want:
			problems = append(problems, name+" is not in a program that uses it")
		}
	}
	return problems
}

// checkUnsafe compares the files that import unsafe with a table.
func checkUnsafe(sources []source, table map[string]string) (problems []string) {
	found := map[string]bool{}
	for _, s := range sources {
		if slices.Contains(s.imports(), "unsafe") {
			found[s.path] = true
		}
	}
	return compare("imports unsafe", found, table)
}

// checkGoroutines compares the places that start goroutines, in the library, with a table.
func checkGoroutines(sources []source, table map[string]string) (problems []string) {
	found := map[string]bool{}
	for _, s := range sources {
		if s.test() || strings.HasPrefix(s.dir, "internal/") {
			continue
		}
		for _, decl := range s.file.Decls {
			place, n := s.path+":"+declName(decl), 0
			ast.Inspect(decl, func(node ast.Node) bool {
				if !startsGoroutine(node) {
					return true
				}
				if n++; n == 1 {
					found[place] = true
				} else {
					found[fmt.Sprintf("%s#%d", place, n)] = true
				}
				return true
			})
		}
	}
	return compare("starts a goroutine", found, table)
}

// startsGoroutine knows go statements, and calls of WaitGroup.Go and its kind, time.AfterFunc and context.AfterFunc.
func startsGoroutine(node ast.Node) bool {
	switch node := node.(type) {
	case *ast.GoStmt:
		return true
	case *ast.CallExpr:
		callee, ok := node.Fun.(*ast.SelectorExpr)
		return ok && (callee.Sel.Name == "Go" || callee.Sel.Name == "AfterFunc")
	}
	return false
}

// declName is Function, Type.Method, or "var" for anything else.
func declName(decl ast.Decl) string {
	fn, ok := decl.(*ast.FuncDecl)
	if !ok {
		return "var"
	}
	if fn.Recv == nil {
		return fn.Name.Name
	}
	typ := fn.Recv.List[0].Type
	for {
		switch t := typ.(type) {
		case *ast.StarExpr:
			typ = t.X
		case *ast.IndexExpr:
			typ = t.X
		case *ast.IndexListExpr:
			typ = t.X
		case *ast.Ident:
			return t.Name + "." + fn.Name.Name
		default:
			return fn.Name.Name
		}
	}
}

// compare reports what is there and not in the table, and what is in the table, has no reason, or is not there any more.
func compare(what string, found map[string]bool, table map[string]string) (problems []string) {
	for place := range found {
		if _, ok := table[place]; !ok {
			problems = append(problems, fmt.Sprintf("%s %s and is not in the table", place, what))
		}
	}
	for place, why := range table {
		switch {
		case !found[place]:
			problems = append(problems, fmt.Sprintf("%s is in the table, but nothing there %s", place, what))
		case why == "":
			problems = append(problems, fmt.Sprintf("%s is in the table without a word of explanation", place))
		}
	}
	slices.Sort(problems)
	return problems
}

const maxFile, maxFunction = 600, 80

// checkSizes finds long files and functions. A function that is one flat switch may be longer.
func checkSizes(sources []source) (problems []string) {
	for _, s := range sources {
		if n := strings.Count(s.text, "\n"); n > maxFile {
			problems = append(problems, fmt.Sprintf("%s: %d lines, over %d", s.path, n, maxFile))
		}
		for _, decl := range s.file.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if !ok || fn.Body == nil {
				continue
			}
			if n := s.line(fn.End()) - s.line(fn.Pos()) + 1; n > maxFunction && !flatSwitch(fn.Body) {
				problems = append(problems, fmt.Sprintf("%s:%d: %s has %d lines, over %d", s.path, s.line(fn.Pos()), declName(fn), n, maxFunction))
			}
		}
	}
	return problems
}

// flatSwitch reports whether a body is a switch of short cases, with at most two plain statements around it.
func flatSwitch(body *ast.BlockStmt) bool {
	var cases []ast.Stmt
	for _, stmt := range body.List {
		switch stmt := stmt.(type) {
		case *ast.SwitchStmt:
			cases = append(cases, stmt.Body.List...)
		case *ast.TypeSwitchStmt:
			cases = append(cases, stmt.Body.List...)
		case *ast.ReturnStmt, *ast.AssignStmt, *ast.DeclStmt, *ast.ExprStmt:
		default:
			return false
		}
	}
	for _, c := range cases {
		if len(c.(*ast.CaseClause).Body) > 5 {
			return false
		}
	}
	return len(cases) > 0 && len(body.List) <= 3
}

// checkWaiting finds tests that sleep, but in files about virtual time, and tests that skip themselves other than by
// asking redistest for a server.
func checkWaiting(sources []source) (problems []string) {
	for _, s := range sources {
		if !s.test() {
			continue
		}
		virtual := slices.Contains(s.imports(), "testing/synctest")
		ast.Inspect(s.file, func(node ast.Node) bool {
			callee, ok := node.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			owner, _ := callee.X.(*ast.Ident)
			switch {
			case owner != nil && owner.Name == "time" && callee.Sel.Name == "Sleep" && !virtual:
				problems = append(problems, fmt.Sprintf("%s:%d: sleeps, and not in virtual time", s.path, s.line(node.Pos())))
			case slices.Contains([]string{"Skip", "Skipf", "SkipNow"}, callee.Sel.Name) && owner != nil && slices.Contains([]string{"t", "tb", "b", "f"}, owner.Name):
				problems = append(problems, fmt.Sprintf("%s:%d: skips itself", s.path, s.line(node.Pos())))
			}
			return true
		})
	}
	return problems
}

// marker is spelled so that it does not find itself.
var marker = regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME|XX` + `X)\b`)

// checkMarkers finds notes of what is still to be done, in any file.
func checkMarkers(fsys fs.FS) (problems []string) {
	names, err := files(fsys)
	if err != nil {
		return []string{err.Error()}
	}
	for _, name := range names {
		text, err := fs.ReadFile(fsys, name)
		if err != nil {
			problems = append(problems, err.Error())
			continue
		}
		n := 0
		for line := range strings.Lines(string(text)) {
			if n++; marker.MatchString(line) {
				problems = append(problems, fmt.Sprintf("%s:%d: %s", name, n, strings.TrimSpace(line)))
			}
		}
	}
	return problems
}

// checkEmbedded finds Lua files that are not embedded exactly once, by a Go file beside them.
func checkEmbedded(fsys fs.FS, sources []source) (problems []string) {
	names, err := files(fsys)
	if err != nil {
		return []string{err.Error()}
	}
	var patterns []string
	for _, s := range sources {
		for line := range strings.Lines(s.text) {
			if list, ok := strings.CutPrefix(strings.TrimSpace(line), "//go:embed "); ok {
				for _, pattern := range strings.Fields(list) {
					patterns = append(patterns, path.Join(s.dir, pattern))
				}
			}
		}
	}
	for _, name := range names {
		n := 0
		for _, pattern := range patterns {
			if matches, _ := path.Match(pattern, name); matches {
				n++
			}
		}
		if strings.HasSuffix(name, ".lua") && n != 1 {
			problems = append(problems, fmt.Sprintf("%s: embedded %d times, want once", name, n))
		}
	}
	return problems
}
