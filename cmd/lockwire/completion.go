package main

import (
	"context"
	"flag"
	"fmt"
	"slices"
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
		fmt.Fprint(in.out, bashCompletion()+"complete -F _lockwire lockwire\n")
	case "zsh":
		fmt.Fprint(in.out, zshBegin+bashCompletion()+zshEnd)
	case "fish":
		fmt.Fprint(in.out, fishCompletion())
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
	case "help":
		words := firstWords()
		return words[:len(words)-1] // all but help
	}
	return nil
}

// flagWords returns the flags of a command as they are written.
func (c *command) flagWords() []string {
	var words []string
	c.eachFlag(func(f *flag.Flag) { words = append(words, dashed(f.Name)) })
	return append(words, "--help")
}

// firstWords returns the first words of all commands, each once.
func firstWords() []string {
	words := []string{}
	for _, c := range commands() {
		words = append(words, c.words()[0])
	}
	return append(slices.Compact(words), "help")
}

// secondWords returns the words that may follow the first word of a command.
func secondWords(first string) []string {
	words := values(first)
	for _, c := range commands() {
		if of := c.words(); of[0] == first {
			words = append(words, of[1:]...)
		}
	}
	return words
}

// bashCompletion returns the function _lockwire for bash and zsh. Bash takes --kind=fair apart, and zsh does not.
func bashCompletion() string {
	var b strings.Builder
	b.WriteString(`_lockwire() {
  local word="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}" flag="" i
  COMPREPLY=()
  for ((i = 1; i < COMP_CWORD; i++)); do
    if [ "${COMP_WORDS[i]}" = -- ]; then
      if [ "$i" = "$((COMP_CWORD - 1))" ]; then
        COMPREPLY=($(compgen -c -- "$word"))
      else
        compopt -o default 2>/dev/null
      fi
      return
    fi
  done
  if [ "$word" = = ]; then
    word=""
  elif [ "$before" = = ]; then
    before="${COMP_WORDS[COMP_CWORD-2]}"
  elif [[ "$word" == --*=* ]]; then
    before="${word%%=*}" flag="${word%%=*}=" word="${word#*=}"
  fi
  case "$before" in
`)
	for _, word := range []string{"-o", "--kind"} {
		fmt.Fprintf(&b, "    %s) COMPREPLY=($(compgen -P \"$flag\" -W %q -- \"$word\")); return ;;\n", word, strings.Join(values(word), " "))
	}
	b.WriteString(`    --url-file|--password-file) COMPREPLY=($(compgen -P "$flag" -f -- "$word")); compopt -o filenames 2>/dev/null; return ;;
  esac
  local words="" first="${COMP_WORDS[1]}"
  case "$COMP_CWORD $first" in
`)
	fmt.Fprintf(&b, "    '1 '*) words=%q ;;\n", strings.Join(firstWords(), " "))
	for _, first := range firstWords() {
		if words := secondWords(first); len(words) > 0 {
			fmt.Fprintf(&b, "    '2 %s') words=%q ;;\n", first, strings.Join(words, " "))
		}
	}
	b.WriteString("    *) case \"$first ${COMP_WORDS[2]} \" in\n")
	for _, c := range commands() {
		fmt.Fprintf(&b, "      '%s '*) words=%q ;;\n", c.name, strings.Join(c.flagWords(), " "))
		if len(c.words()) > 1 {
			fmt.Fprintf(&b, "      'help %s '*) words=%q ;;\n", c.words()[0], strings.Join(secondWords(c.words()[0]), " "))
		}
	}
	b.WriteString(`    esac ;;
  esac
  COMPREPLY=($(compgen -W "$words" -- "$word"))
}
`)
	return b.String()
}

// The words behind "--" are a command line of their own.
const (
	zshBegin = "autoload -U +X bashcompinit && bashcompinit\n"
	zshEnd   = `_lockwire_zsh() {
  local i=${words[(i)--]}
  if ((i < CURRENT)); then
    shift $i words
    ((CURRENT -= i))
    _normal
  else
    _bash_complete -F _lockwire
  fi
}
compdef _lockwire_zsh lockwire
`
)
