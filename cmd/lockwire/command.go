package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
)

// command is a subcommand.
type command struct {
	name     string // one word or two
	args     string // the arguments, as in the line of usage
	short    string // one line
	long     string // paragraphs
	examples []example

	// names is the number of arguments in front of the flags and "--": at least and at most.
	least, most int
	program     bool // "--" and a program with its arguments follow
	local       bool // no server is needed

	run action
	// define, if not nil, adds the command's own flags to flags, and returns the action in place of run.
	define func(flags *flag.FlagSet) action
}

// action runs a command after parsing.
type action func(ctx context.Context, in *invocation) error

// example is a command line and its exit code.
type example struct {
	about string
	line  string
	code  int
}

// invocation is a command with its arguments.
type invocation struct {
	connection
	run     action
	format  string
	args    []string
	program []string // behind "--"
	out     *output
	signals *signals
}

// bareNumber matches the error for a duration that is only a number.
var bareNumber = regexp.MustCompile(`^(invalid value "\d+" .*): parse error$`)

var errHelp = errors.New("help is wanted")

func (c *command) words() []string { return strings.Fields(c.name) }

// flags returns the flags of the command, and the invocation for their values.
func (c *command) flags() (own, common *flag.FlagSet, in *invocation) {
	in = &invocation{run: c.run}
	own = flag.NewFlagSet(c.name, flag.ContinueOnError)
	if c.define != nil {
		in.run = c.define(own)
	}
	common = flag.NewFlagSet(c.name, flag.ContinueOnError)
	common.StringVar(&in.format, "o", "text", "`FORMAT` of the output and of errors: text or json")
	if !c.local {
		in.connection.define(common)
	}
	return own, common, in
}

// eachFlag calls fn for each flag of the command, the common flags last.
func (c *command) eachFlag(fn func(*flag.Flag)) {
	own, common, _ := c.flags()
	own.VisitAll(fn)
	common.VisitAll(fn)
}

// parse parses the arguments of a command. Flags may be before, between and behind the arguments, up to "--". Behind that is the program or, without
// a program, arguments that may begin with "-".
func (c *command) parse(words []string) (*invocation, error) {
	own, common, in := c.flags()
	all := flag.NewFlagSet(c.name, flag.ContinueOnError)
	all.SetOutput(io.Discard)
	add := func(f *flag.Flag) { all.Var(f.Value, f.Name, f.Usage) }
	own.VisitAll(add)
	common.VisitAll(add)
	before, behind := words, []string(nil)
	if i := slices.Index(words, "--"); i >= 0 {
		before, behind = words[:i], words[i+1:]
	}
	for len(before) > 0 {
		if err := all.Parse(before); errors.Is(err, flag.ErrHelp) {
			return in, errHelp
		} else if err != nil {
			return in, c.parseError(err)
		}
		if before = all.Args(); len(before) > 0 {
			in.args, before = append(in.args, before[0]), before[1:]
		}
	}
	if c.program {
		in.program = behind
	} else {
		in.args = append(in.args, behind...)
	}
	return in, c.check(in)
}

// parseError says what to write in place of a wrong flag.
func (c *command) parseError(err error) error {
	if name, unknown := strings.CutPrefix(err.Error(), "flag provided but not defined: -"); unknown {
		return usageError("unknown flag %s: see lockwire help %s", dashed(name), c.name)
	}
	return usageError("%s", bareNumber.ReplaceAllString(err.Error(), "$1: write it with its unit, such as 5s or 10m"))
}

// check compares the number of arguments with the limits of the command.
func (c *command) check(in *invocation) error {
	switch {
	case in.format != "text" && in.format != "json":
		return usageError("-o is text or json")
	case c.program && len(in.program) == 0:
		return usageError("the program is missing; write: lockwire %s %s", c.name, c.args)
	case len(in.args) < c.least:
		return usageError("an argument is missing; write: lockwire %s %s", c.name, c.args)
	case len(in.args) > c.most && c.program:
		return usageError("too many arguments in front of --; write: lockwire %s %s", c.name, c.args)
	case len(in.args) > c.most:
		return usageError("too many arguments; write: lockwire %s %s", c.name, c.args)
	}
	return nil
}

// first returns the first argument, or fallback without arguments.
func (in *invocation) first(fallback string) string { return append(in.args, fallback)[0] }

func (in *invocation) json() bool { return in.format == "json" }

// usageError is an error of the command line.
func usageError(format string, args ...any) error {
	return &exitError{codeUsage, fmt.Errorf(format, args...)}
}
