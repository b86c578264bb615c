// Lockwire holds, shows and releases the locks of package lock from a shell.
//
//	lockwire run nightly-report -- ./report.sh     run a command while holding a lock
//	lockwire status nightly-report                 who has the lock
//	lockwire help                                  all commands
//
// The server is named by the environment variable REDIS_URL, or by a file given with --url-file. "lockwire help COMMAND"
// describes a command with examples.
package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/lockwire/lockwire/internal/netfail"
	"github.com/lockwire/lockwire/resp"
)

func main() { os.Exit(execute(os.Args[1:])) }

// execute runs the command with the given arguments, and returns its exit code.
func execute(args []string) int {
	name := "help"
	if len(args) > 0 {
		name, args = args[0], args[1:]
	}
	switch name {
	case "help", "-h", "-help", "--help":
		return report(false, "help", help(args))
	case "-version", "--version":
		name = "version"
	}
	words := append([]string{name}, args...)
	c, rest := find(words)
	switch {
	case c == nil && strings.HasPrefix(name, "-"):
		return report(false, "help", usageError("the command comes first, and %s behind it: see lockwire help", name))
	case c == nil:
		return report(false, name, unknown(name))
	}
	in, err := c.parse(rest)
	switch {
	case errors.Is(err, errHelp):
		return report(false, c.name, c.help(&output{file: os.Stdout}))
	case err != nil:
		return report(in.json(), c.name, err)
	}
	in.out = &output{file: os.Stdout}
	in.signals = catchSignals()
	defer in.signals.stop()
	if err = in.run(in.signals.ctx, in); err == nil {
		err = in.out.err
	}
	return report(in.json(), c.name, err)
}

// unknown is the error for a word that begins no command, or not alone.
func unknown(word string) error {
	second := secondWords(word)
	if c, _ := find([]string{word}); c == nil && len(second) > 0 {
		return usageError("unknown command: %[1]s is followed by %[2]s: see lockwire help %[1]s %[3]s", word, strings.Join(second, " or "), second[0])
	}
	return usageError("unknown command: see lockwire help")
}

// find returns the command that words begin with, and the rest of the words. A name may have two words.
func find(words []string) (*command, []string) {
	for n := min(2, len(words)); n > 0; n-- {
		i := slices.IndexFunc(commands(), func(c *command) bool { return slices.Equal(c.words(), words[:n]) })
		if i >= 0 {
			return commands()[i], words[n:]
		}
	}
	return nil, words
}

// report prints an error, and returns the exit code.
func report(json bool, command string, err error) int {
	if err == nil {
		return 0
	}
	code := codeOf(err)
	if exit, ok := errors.AsType[*exitError](err); ok && exit.err == nil {
		return code
	}
	if json {
		printJSON(os.Stderr, map[string]any{"error": err.Error(), "command": command, "code": code})
	} else {
		for line := range strings.Lines(err.Error()) {
			fmt.Fprintf(os.Stderr, "lockwire %s: %s\n", command, printable(strings.TrimSuffix(line, "\n")))
		}
		if errors.Is(err, resp.ErrNoPerm) || netfail.DeniedInside(err) {
			fmt.Fprintf(os.Stderr, "lockwire %s: OPERATIONS.md has the rules for users; on the server ACL LOG shows what was refused\n", command)
		}
	}
	return code
}

// commands returns all commands, in the order of the help.
func commands() []*command {
	return []*command{
		runCommand(), leaderRunCommand(), leaderShowCommand(), statusCommand(), listCommand(), heldCommand(), watchCommand(),
		waitCommand(), releaseCommand(), doctorCommand(), completionCommand(), versionCommand(),
	}
}
