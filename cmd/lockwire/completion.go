package main

import (
	"context"
	"flag"
	"fmt"
	"strings"
)

func completionCommand() *command {
	return &command{
		name:  "completion",
		args:  "bash|zsh|fish",
		short: "print the completion for a shell",
		long: `
Prints a script that completes commands, flags and their values. For bash, put the line of the example into ~/.bashrc; for
zsh into ~/.zshrc, behind compinit; for fish, write the output to ~/.config/fish/completions/lockwire.fish.`,
		examples: []example{
			{"for bash, in this shell", `eval "$(lockwire completion bash)"`, 0},
			{"for fish", `lockwire completion fish > "$(mktemp)"`, 0},
		},
		least: 1, most: 1, local: true,
		run: complete,
	}
}

func complete(_ context.Context, in *invocation) error {
	switch in.args[0] {
	case "bash":
		fmt.Print(bashCompletion())
	case "zsh":
		fmt.Print("autoload -U +X bashcompinit && bashcompinit\n" + bashCompletion())
	case "fish":
		fmt.Print(fishCompletion())
	default:
		return usageError("the shell is bash, zsh or fish")
	}
	return nil
}

// values are the words that may follow a flag, or a command.
func values(word string) []string {
	switch word {
	case "-o":
		return []string{"text", "json"}
	case "--kind":
		return kinds
	case "completion":
		return []string{"bash", "zsh", "fish"}
	}
	return nil
}

// flagWords returns the flags of a command as they are written.
func (c *command) flagWords() []string {
	var words []string
	own, common, _ := c.flags()
	for _, set := range []*flag.FlagSet{own, common} {
		set.VisitAll(func(f *flag.Flag) { words = append(words, dashed(f.Name)) })
	}
	return append(words, "--help")
}

// firstWords returns the first words of all commands, each once.
func firstWords() []string {
	words := []string{}
	for _, c := range commands() {
		if first := c.words()[0]; len(words) == 0 || words[len(words)-1] != first {
			words = append(words, first)
		}
	}
	return append(words, "help", "version")
}

// bashCompletion returns a function for bash and zsh.
func bashCompletion() string {
	var b strings.Builder
	b.WriteString(`_lockwire() {
  local word="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}" i
  COMPREPLY=()
  for ((i = 1; i < COMP_CWORD; i++)); do
    if [ "${COMP_WORDS[i]}" = -- ]; then
      COMPREPLY=($(compgen -f -c -- "$word"))
      return
    fi
  done
  case "$before" in
`)
	for _, word := range []string{"-o", "--kind", "completion"} {
		fmt.Fprintf(&b, "    %s) COMPREPLY=($(compgen -W %q -- \"$word\")); return ;;\n", word, strings.Join(values(word), " "))
	}
	b.WriteString(`    --url-file|--password-file) COMPREPLY=($(compgen -f -- "$word")); return ;;
  esac
  if [ "$COMP_CWORD" = 1 ]; then
`)
	fmt.Fprintf(&b, "    COMPREPLY=($(compgen -W %q -- \"$word\"))\n    return\n  fi\n  case \"${COMP_WORDS[1]}\" in\n", strings.Join(firstWords(), " "))
	for _, c := range commands() {
		words := append(c.words()[1:], c.flagWords()...)
		fmt.Fprintf(&b, "    %s) COMPREPLY=($(compgen -W %q -- \"$word\")) ;;\n", c.words()[0], strings.Join(words, " "))
	}
	fmt.Fprintf(&b, "    help) COMPREPLY=($(compgen -W %q -- \"$word\")) ;;\n", strings.Join(firstWords(), " "))
	b.WriteString("  esac\n}\ncomplete -F _lockwire lockwire\n")
	return b.String()
}

// fishCompletion returns the completion for fish.
func fishCompletion() string {
	var b strings.Builder
	b.WriteString("complete -c lockwire -f\n")
	for _, c := range commands() {
		first := c.words()[0]
		fmt.Fprintf(&b, "complete -c lockwire -n __fish_use_subcommand -a %s -d %s\n", first, fishQuoted(c.short))
		for _, word := range append(c.words()[1:], values(first)...) {
			fmt.Fprintf(&b, "complete -c lockwire -n '__fish_seen_subcommand_from %s' -a %s\n", first, word)
		}
		own, common, _ := c.flags()
		for _, set := range []*flag.FlagSet{own, common} {
			set.VisitAll(func(f *flag.Flag) { b.WriteString(fishFlag(first, f)) })
		}
	}
	return b.String()
}

func fishFlag(command string, f *flag.Flag) string {
	kind, name := "-l", f.Name
	if len(f.Name) == 1 {
		kind = "-s"
	}
	placeholder, usage := flag.UnquoteUsage(f)
	line := fmt.Sprintf("complete -c lockwire -n '__fish_seen_subcommand_from %s' %s %s -d %s", command, kind, name, fishQuoted(usage))
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
