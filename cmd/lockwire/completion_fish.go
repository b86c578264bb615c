package main

import (
	"flag"
	"fmt"
	"strings"
)

// fishFunctions tell where the cursor is: behind exactly these words, anywhere behind them, or behind "--".
const fishFunctions = `function __lockwire_at
    set -l words (commandline -opc)
    set -e words[1]
    test "$argv" = "$words"
end
function __lockwire_in
    set -l words (commandline -opc)
    set -e words[1]
    not contains -- -- $words; and test "$argv" = "$words[1..$(count $argv)]"
end
function __lockwire_behind
    contains -- -- (commandline -opc)
end
function __lockwire_program
    set -l words (commandline -opc)
    set -l i (contains -i -- -- $words)
    set -e words[1..$i]
    complete -C (string join ' ' -- (string escape -- $words) (commandline -ct))
end
complete -c lockwire -f
complete -c lockwire -n __lockwire_behind -a '(__lockwire_program)'
`

// fishCompletion returns the completion for fish.
func fishCompletion() string {
	var b strings.Builder
	b.WriteString(fishFunctions)
	about := map[string]string{"help": "describe a command", "leader": "lead, or show who leads"}
	for _, c := range commands() {
		about[c.name] = c.short
		c.eachFlag(func(f *flag.Flag) { b.WriteString(fishFlag(c.name, f)) })
	}
	for _, first := range firstWords() {
		fmt.Fprintf(&b, "complete -c lockwire -n __lockwire_at -a %s -d %s\n", first, fishQuoted(about[first]))
		for _, second := range secondWords(first) {
			fmt.Fprintf(&b, "complete -c lockwire -n '__lockwire_at %s' -a %s -d %s\n", first, second, fishQuoted(about[first+" "+second]))
		}
	}
	for _, second := range secondWords("leader") {
		fmt.Fprintf(&b, "complete -c lockwire -n '__lockwire_at help leader' -a %s\n", second)
	}
	return b.String()
}

func fishFlag(command string, f *flag.Flag) string {
	kind, name := "-l", f.Name
	if len(f.Name) == 1 {
		kind = "-s"
	}
	placeholder, usage := flag.UnquoteUsage(f)
	line := fmt.Sprintf("complete -c lockwire -n '__lockwire_in %s' %s %s -d %s", command, kind, name, fishQuoted(usage))
	switch words := values(dashed(f.Name)); {
	case len(words) > 0:
		line += " -x -a " + fishQuoted(strings.Join(words, " "))
	case placeholder == "FILE":
		line += " -r -F"
	case placeholder != "":
		line += " -x"
	}
	return line + "\n"
}

func fishQuoted(text string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, "'", `\'`).Replace(text) + "'"
}
