package policy

import (
	"strings"
	"testing"
	"testing/fstest"
)

var (
	longBody  = strings.Repeat("\t_ = 1\n", 80)
	manyCases = strings.Repeat("\tcase 1:\n", 80)
)

// badInputs shows each of the policy's checks something bad, and something next to it that is good.
var badInputs = []struct {
	name  string
	files map[string]string
	check func(fstest.MapFS, []source) []string
	want  []string // a part of each problem, in order
}{{
	name: "imports",
	files: map[string]string{
		"resp/a.go":          `package resp; import _ "` + module + `/conn"`,
		"conn/a.go":          `package conn; import _ "` + module + `/resp"`,
		"conn/b.go":          `package conn; import _ "` + module + `/internal/fakeredis"`,
		"conn/b_test.go":     `package conn; import _ "` + module + `/internal/fakeredis"`,
		"conn/c_test.go":     `package conn; import _ "` + module + `/lock"`,
		"conn/d_test.go":     `package conn_test; import _ "` + module + `/conn"`,
		"new/a.go":           `package new`,
		"a_test.go":          `package lockwire_test; import _ "` + module + `/lock"`,
		"lock/a.go":          `package lock; import _ "` + module + `/cluster"`,
		"bench/go.mod":       `module m`,
		"bench/other/a.go":   `package other; import _ "` + module + `/lock"`,
		"script/testdata.go": `package script; import _ "` + module + `/pubsub"`,
	},
	check: func(_ fstest.MapFS, s []source) []string { return checkImports(inRoot(s), mayImport) },
	want: []string{
		`conn/b.go: "conn" may not import "internal/fakeredis"`,
		`conn/c_test.go: "conn" may not import "lock"`,
		`lock/a.go: "lock" may not import "cluster"`,
		`new/a.go: package "new" has no row`,
		`resp/a.go: "resp" may not import "conn"`,
		`script/testdata.go: "script" may not import "pubsub"`,
	},
}, {
	name: "other modules",
	files: map[string]string{
		"a.go":            `package a; import ("net/http"; "` + module + `/lock")`,
		"a_test.go":       `package a; import "golang.org/x/sys/unix"`,
		"b.go":            `package a; import "C"`,
		"c.go":            `package a; import "` + module + `2/lock"`,
		"inner/go.mod":    `module m`,
		"inner/inner.go":  `package inner; import "example.org/m"`,
		"inner/sub/in.go": `package sub; import "example.org/m"`,
	},
	check: func(_ fstest.MapFS, s []source) []string { return checkStandardOnly(inRoot(s)) },
	want:  []string{`a_test.go: imports "golang.org/x/sys/unix"`, `b.go: imports "C"`, `c.go: imports "` + module + `2/lock"`},
}, {
	name:  "unsafe",
	files: map[string]string{"a.go": `package a; import "unsafe"`, "b.go": `package a; import "unsafe"`, "c.go": `package a`, "e.go": `package a; import "unsafe"`},
	check: func(_ fstest.MapFS, s []source) []string {
		return checkUnsafe(s, map[string]string{"b.go": "it must", "c.go": "it must", "e.go": ""})
	},
	want: []string{"a.go imports unsafe and is not", "c.go is in the table, but nothing", "e.go is in the table without"},
}, {
	name: "goroutines",
	files: map[string]string{
		"a.go":            "package a\nfunc f() { go f(); g.Go(f) }\nfunc (x *T[K]) m() { time.AfterFunc(1, f) }\nvar v = func() { context.AfterFunc(c, f) }",
		"b.go":            "package a\nfunc known() { go f() }\nfunc quiet() { f() }",
		"a_test.go":       "package a\nfunc f() { go f() }",
		"internal/x/x.go": "package x\nfunc f() { go f() }",
	},
	check: func(_ fstest.MapFS, s []source) []string {
		return checkGoroutines(s, map[string]string{"b.go:known": "Close", "b.go:quiet": "Close"})
	},
	want: []string{
		"a.go:T.m starts a goroutine and is not in the table", "a.go:f starts", "a.go:f#2 starts", "a.go:var starts",
		"b.go:quiet is in the table, but nothing there starts a goroutine",
	},
}, {
	name: "sizes",
	files: map[string]string{
		"a.go": "package a\nfunc f() {\n" + longBody + "}\n",
		"b.go": "package a\nfunc f() int {\n\tswitch x {\n" + manyCases + "\t}\n\treturn 0\n}\n",
		"c.go": "package a\nfunc (t T) m() {\n\tswitch x {\n\tcase 1:\n" + longBody + "\t}\n}\n",
		"d.go": "package a\n" + strings.Repeat("\n", 600),
		"e.go": "package a\nfunc f() {\n" + strings.Repeat("\t_ = 1\n", 78) + "}\n",
		"f.go": "package a\n" + strings.Repeat("\n", 599),
	},
	check: func(_ fstest.MapFS, s []source) []string { return checkSizes(s) },
	want:  []string{"a.go:2: f has 82 lines", "c.go:2: T.m has 85 lines", "d.go: 601 lines"},
}, {
	name: "waiting",
	files: map[string]string{
		"a.go":      "package a\nfunc f() { time.Sleep(1) }",
		"a_test.go": "package a\nfunc f() { time.Sleep(1) }",
		"b_test.go": "package a\nimport \"testing/synctest\"\nfunc f() { time.Sleep(1) }",
		"c_test.go": "package a\nfunc f() { t.Skip() }\nfunc g(in *Reader) { in.Skip() }\nfunc h() { b.Skipf(\"\") }",
	},
	check: func(_ fstest.MapFS, s []source) []string { return checkWaiting(s) },
	want:  []string{"a_test.go:2: sleeps", "c_test.go:2: skips", "c_test.go:4: skips"},
}, {
	name: "markers",
	files: map[string]string{
		"a.go":           "package a // TO" + "DO: more",
		"README.md":      "fine\nFIX" + "ME",
		"scripts/do":     "mktemp /tmp/XXXX" + "XX",
		"testdata/x":     "TO" + "DO",
		".servers/x/log": "TO" + "DO",
	},
	check: func(fsys fstest.MapFS, _ []source) []string { return checkMarkers(fsys) },
	want:  []string{"README.md:2: ", "a.go:1: "},
}, {
	name: "scripts",
	files: map[string]string{
		"lock/a.go":     "package lock\n\n//go:embed once.lua\nvar a string\n\n//go:embed twice.lua\nvar b string\n",
		"lock/b.go":     "package lock\n\nvar (\n\t//go:embed twice.lua\n\tc string\n)\n",
		"other/c.go":    "package other\n\n//go:embed never.lua\nvar c string\n",
		"lock/d.go":     "package lock\n\n//go:embed many_*.lua\nvar d embed.FS\n",
		"lock/once.lua": "", "lock/twice.lua": "", "lock/never.lua": "", "lock/many_once.lua": "",
	},
	check: func(fsys fstest.MapFS, s []source) []string { return checkEmbedded(fsys, s) },
	want:  []string{"lock/never.lua: embedded 0 times", "lock/twice.lua: embedded 2 times"},
}}

func TestPolicyCanFail(t *testing.T) {
	for _, c := range badInputs {
		t.Run(c.name, func(t *testing.T) {
			fsys := fstest.MapFS{}
			for name, text := range c.files {
				fsys[name] = &fstest.MapFile{Data: []byte(text)}
			}
			sources, err := parse(fsys)
			if err != nil {
				t.Fatal(err)
			}
			expect(t, c.check(fsys, sources), c.want)
		})
	}
}

func TestGoModPolicyCanFail(t *testing.T) {
	good := "module m // a name\n\ngo 1.26\n\ntoolchain go1.26.8\n"
	expect(t, checkGoMod(good), nil)
	expect(t, checkGoMod(good+"require example.org/m v1.0.0\nreplace m => ../m\n"), []string{"require", "replace"})
	expect(t, checkGoMod(good+"require (\n\texample.org/m v1.0.0\n)\n"), []string{"require (", "example.org/m", `")"`})
}

func TestLightPolicyCanFail(t *testing.T) {
	good := []string{"fmt", module + "/lock"}
	expect(t, checkLight(good, tooHeavy), nil)
	expect(t, checkLight(append(good, "net/http", "encoding/json"), tooHeavy), []string{"depends on encoding/json", "depends on net/http"})
	expect(t, checkLight([]string{"fmt"}, tooHeavy), []string{"the library is not among"})
}

func TestLinkedPolicyCanFail(t *testing.T) {
	scripts := fstest.MapFS{"a_get.lua": {Data: []byte("-- get a")}, "a_set.lua": {Data: []byte("-- set a")}, "b_get.lua": {Data: []byte("-- get b")}}
	expect(t, checkLinked(scripts, []byte("code-- set acode-- get a"), "a_"), nil)
	expect(t, checkLinked(scripts, []byte("code-- get a-- get b"), "a_"), []string{"a_set.lua is not in", "b_get.lua is linked"})
	expect(t, checkLinked(fstest.MapFS{}, nil, "a_"), []string{"no scripts"})
}

func TestPolicyReadsOnlyGo(t *testing.T) {
	if _, err := parse(fstest.MapFS{"a.go": {Data: []byte("not Go")}}); err == nil {
		t.Error("a file that is not Go was parsed")
	}
}

// expect compares problems with a part of each.
func expect(t *testing.T, got, want []string) {
	t.Helper()
	for i := range max(len(got), len(want)) {
		switch {
		case i >= len(got):
			t.Errorf("no problem that says %q", want[i])
		case i >= len(want):
			t.Errorf("unexpected problem: %s", got[i])
		case !strings.Contains(got[i], want[i]):
			t.Errorf("problem %d is %q, want %q in it", i, got[i], want[i])
		}
	}
}
