//go:build unix

package main

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// completed are lines with the cursor at their end, and the words that complete them. All other words are wrong.
var completed = []struct {
	line string // words between single spaces
	want string
}{
	{"", "run leader status list held watch wait release doctor completion version help"},
	{"le", "leader"},
	{"leader ", "run show"},
	{"leader sh", "show"},
	{"help leader ", "run show"},
	{"completion z", "zsh"},
	{"run job --at", "--at-least --at-most"},
	{"leader run job --a", "--address"},
	{"leader show job --a", ""},
	{"status run --a", ""},
	{"run job --kind r", "read reentrant"},
	{"run job -o j", "json"},
	{"run job -- lockwire-test-progr", "lockwire-test-program"},
}

// Bash completes, and so do zsh and fish if they are installed here.
func TestCompletion(t *testing.T) {
	bash := "eval \"$1\"\nshift\nCOMP_WORDS=(lockwire \"$@\") COMP_CWORD=$#\n_lockwire\nprintf '%s\\n' \"${COMPREPLY[@]}\"\n"
	forBash := script(t, "bash")
	for _, tt := range completed {
		words := strings.Split(tt.line, " ")
		got := completions(t, append([]string{"bash", "-c", bash, "bash", forBash}, words...))
		check(t, "bash", tt.line, got, tt.want)
	}
	kind := completions(t, []string{"bash", "-c", bash, "bash", forBash, "run", "job", "--kind", "=", "pe"})
	check(t, "bash", "run job --kind=pe", kind, "permit")
	if _, err := exec.LookPath("fish"); err == nil {
		forFish := script(t, "fish")
		for _, tt := range completed {
			got := completions(t, []string{"fish", "-N", "-c", forFish + "complete -C " + fishQuoted("lockwire "+tt.line)})
			check(t, "fish", tt.line, got, tt.want)
		}
	}
	if _, err := exec.LookPath("zsh"); err == nil {
		zsh := "autoload -Uz compinit && compinit -u -D\neval \"$1\"\nshift\nfind() {\nemulate -L ksh\nCOMP_WORDS=(lockwire \"$@\") COMP_CWORD=$#\n_lockwire\n" +
			"print -l -- \"${COMPREPLY[@]}\"\n}\nfind \"$@\"\n[ \"${_comps[lockwire]}\" = _lockwire_zsh ] || echo unregistered\n"
		forZsh := script(t, "zsh")
		for _, line := range []string{"", "leader ", "help leader ", "run job --kind "} { // outside zsh's editor nothing is filtered
			words := strings.Split(line, " ")
			got := completions(t, append([]string{"zsh", "-f", "-c", zsh, "zsh", forZsh}, words...))
			want := completions(t, append([]string{"bash", "-c", bash, "bash", forBash}, words...))
			check(t, "zsh", line, got, strings.Join(want, " "))
		}
	}
}

// script returns the completion for a shell.
func script(t *testing.T, shell string) string {
	t.Helper()
	r := do(t, "", "completion", shell)
	r.check(t, 0)
	return r.stdout
}

// completions runs a program and returns the first words of its lines in their order, each once. A program
// lockwire-test-program can be found.
func completions(t *testing.T, args []string) []string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
	program := write(t, "lockwire-test-program", "#!/bin/sh\n", 0o755)
	cmd.Env = append(cmd.Environ(), fmt.Sprintf("PATH=%s:/usr/bin:/bin", strings.TrimSuffix(program, "/lockwire-test-program")))
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%q: %v", args, err)
	}
	var words []string
	for line := range strings.Lines(string(out)) {
		if fields := strings.FieldsFunc(line, func(r rune) bool { return r == '\t' || r == '\n' }); len(fields) > 0 {
			words = append(words, fields[0])
		}
	}
	slices.Sort(words)
	return slices.Compact(words)
}

func check(t *testing.T, shell, line string, got []string, want string) {
	t.Helper()
	words := strings.Fields(want)
	slices.Sort(words)
	if !slices.Equal(got, words) {
		t.Errorf("%s: %q: %q, want %q", shell, line, got, words)
	}
}
