package conn_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"testing"
)

// tasksLimit is the number of lines that go-redis takes for the tasks of Example_tasks.
const tasksLimit = 90

// The everyday tasks are short. Their functions count from the first line to the last, with the types and the script.
func TestTasksAreShort(t *testing.T) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, "example_tasks_test.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	lines, tasks := 0, 0
	for _, decl := range file.Decls {
		if d, ok := decl.(*ast.GenDecl); ok && d.Tok == token.IMPORT {
			continue
		}
		if d, ok := decl.(*ast.FuncDecl); ok {
			if d.Name.Name == "Example_tasks" {
				continue
			}
			tasks++
		}
		lines += files.Position(decl.End()).Line - files.Position(decl.Pos()).Line + 1
	}
	if lines > tasksLimit || tasks < 13 {
		t.Errorf("%d tasks take %d lines, want at least 13 in at most %d", tasks, lines, tasksLimit)
	}
	t.Logf("%d tasks in %d lines", tasks, lines)
}
