//go:build unix

package main

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/lockwire/lockwire/internal/redistest"
)

// No name of a lock reaches the terminal with characters that change the terminal or the table.
func TestServerNamesOnATerminal(t *testing.T) {
	s := redistest.Start(t, redistest.Options{})
	name := "evil\x1b[31m\nline\ttwo\u202e"
	holder := startHeld(t, s.URL(), "run", name, "--kind", "reentrant", "--", "sh", "-c", "echo $LOCKWIRE_OWNER; cat")
	owner := holder.line()
	for _, args := range [][]string{
		{"list"}, {"held"}, {"status", name}, {"run", name, "-n", "--", "true"}, {"wait", name, "--timeout", "10ms"},
		{"release", name, "--owner", "a:1"}, {"leader", "show", name},
	} {
		r := do(t, s.URL(), args...)
		text := r.stdout + r.stderr
		if strings.ContainsAny(text, "\x1b\t\u202e") || strings.Contains(text, "\nline") || !strings.Contains(text, `evil\x1b[31m\nline\ttwo\u202e`) {
			t.Errorf("%s: %q", args[0], text)
		}
	}
	do(t, s.URL(), "release", name, "--owner", owner).check(t, 0, `evil\x1b[31m`)
	holder.end().check(t, codeLost, `!evil\x1b[31m`)
}

// The error of a lock that is taken names the process.
func TestServerRunNamesTheProcess(t *testing.T) {
	s := redistest.Start(t, redistest.Options{})
	holder := startHeld(t, s.URL(), "run", "job", "--", "sh", "-c", "echo ready; cat")
	holder.line()
	host, _ := os.Hostname()
	do(t, s.URL(), "run", "job", "-n", "--", "true").check(t, codeNotAcquired, "", "!held by ", "!, process "+host[:min(3, len(host))])
	holder.release()
	holder.end().check(t, 0)
}

// A replica takes no locks: the commands say so at once.
func TestServerReplica(t *testing.T) {
	master := redistest.Start(t, redistest.Options{})
	s := redistest.Start(t, redistest.Options{})
	host, port, _ := strings.Cut(strings.TrimPrefix(master.URL(), "redis://"), ":")
	s.Do("REPLICAOF", host, strings.TrimSuffix(port, "/"))
	r := do(t, s.URL(), "doctor", "--scan=false")
	r.check(t, codeFailed, "takes no locks")
	if strings.Contains(r.stdout, "kind fenced") {
		t.Errorf("doctor tries kinds on a replica: %s", r.stdout)
	}
	do(t, s.URL(), "run", "job", "-n", "--", "true").check(t, codeNoServer, "", "!READONLY")
}

// The JSON of each command has the fields that OPERATIONS.md names, and no others.
func TestServerJSON(t *testing.T) {
	s := redistest.Start(t, redistest.Options{})
	s.Do("CONFIG", "SET", "notify-keyspace-events", "KA")
	seen := map[string]map[string]bool{}
	note := func(command, text string) {
		if seen[command] == nil {
			seen[command] = map[string]bool{}
		}
		for _, line := range decode(t, text) {
			flatten(seen[command], "", line)
		}
	}
	watcher := startJob(t, s.URL(), "watch", "-o", "json")
	var held []*job
	var owners []string
	for _, args := range [][]string{
		{"run", "job", "-o", "json"}, {"run", "rw", "--kind", "read"}, {"run", "p", "--kind", "permit", "--permits", "1"},
		{"run", "queue", "--kind", "fair"}, {"leader", "run", "lead", "-o", "json"},
	} {
		j := startHeld(t, s.URL(), append(args, "--", "sh", "-c", "echo $LOCKWIRE_OWNER; cat")...)
		owners, held = append(owners, j.line()), append(held, j)
	}
	waiting := startJob(t, s.URL(), "run", "queue", "--kind", "fair", "--", "true")
	waits := startJob(t, s.URL(), "run", "job", "--", "true")
	await(t, "a client waits in the queue, and one listens", func() bool {
		r := do(t, s.URL(), "status", "queue", "job", "-o", "json")
		return strings.Contains(r.stdout, `"queue"`) && strings.Contains(r.stdout, `"listening"`)
	})
	note("status", do(t, s.URL(), "status", "job", "rw", "p", "queue", "-o", "json").stdout)
	note("list", do(t, s.URL(), "list", "-o", "json").stdout)
	note("held", do(t, s.URL(), "held", "-o", "json").stdout)
	note("leader show", do(t, s.URL(), "leader", "show", "lead", "-o", "json").stdout)
	note("release", do(t, s.URL(), "release", "job", "--owner", "a:1", "-o", "json").stdout)
	note("wait", do(t, s.URL(), "wait", "no-such", "-o", "json").stdout)
	note("version", do(t, "", "version", "-o", "json").stdout)
	note("doctor", do(t, s.URL(), "doctor", "-o", "json").stdout)
	note("errors of all", do(t, s.URL(), "run", "job", "-n", "-o", "json", "--", "true").stderr)
	note("watch", watcher.line()+"\n"+watcher.line())
	do(t, s.URL(), "release", "job", "--owner", owners[0]).check(t, 0) // for an event with an error
	for i, j := range held {
		j.release()
		r := j.end()
		if name := []string{0: "run", 4: "leader run"}[i]; name != "" {
			events, failure, _ := strings.Cut(r.stderr, `{"code"`)
			note(name, events)
			if failure != "" {
				note("errors of all", `{"code"`+failure)
			}
		}
	}
	waiting.end().check(t, 0)
	waits.end().check(t, 0)
	watcher.signal(syscall.SIGINT)
	watcher.end()
	compareFields(t, seen)
}

// flatten adds the fields of a value to set: holders[].owner.
func flatten(set map[string]bool, prefix string, value any) {
	switch value := value.(type) {
	case map[string]any:
		for name, v := range value {
			flatten(set, strings.TrimPrefix(prefix+"."+name, "."), v)
		}
	case []any:
		for _, v := range value {
			flatten(set, prefix+"[]", v)
		}
	default:
		set[prefix] = true
	}
}

// compareFields compares the fields of commands with the table in OPERATIONS.md.
func compareFields(t *testing.T, seen map[string]map[string]bool) {
	t.Helper()
	text, err := os.ReadFile("../../OPERATIONS.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, ok := strings.Cut(string(text), "| JSON of | fields |\n|---|---|\n")
	if !ok {
		t.Fatal("OPERATIONS.md has no table of the JSON")
	}
	table, _, _ = strings.Cut(table, "\n\n")
	code := regexp.MustCompile("`[^`]+`")
	documented := map[string]bool{}
	for line := range strings.Lines(table) {
		cells := strings.Split(line, " | ")
		fields := map[string]bool{}
		for _, field := range code.FindAllString(cells[1], -1) {
			fields[strings.Trim(field, "`")] = true
		}
		for _, command := range code.FindAllString(cells[0], -1) {
			command = strings.Trim(command, "`")
			documented[command] = true
			for _, field := range slices.Sorted(maps.Keys(seen[command])) {
				if !fields[field] {
					t.Errorf("%s has a field %s, which OPERATIONS.md does not have", command, field)
				}
			}
		}
		if !strings.Contains(line, "`list`") {
			continue
		}
		for field := range fields {
			if !seen["list"][field] && !seen["status"][field] {
				t.Errorf("no output has the field %s", field)
			}
		}
	}
	for command := range seen {
		if !documented[command] {
			t.Error(fmt.Sprint("OPERATIONS.md does not have ", command))
		}
	}
}
