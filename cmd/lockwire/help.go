package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
)

const overview = `lockwire holds, shows and releases distributed locks on Redis, the same locks as Redisson's.

usage: lockwire COMMAND [ARGUMENT...]

commands:
`

const overviewEnd = `
"lockwire help COMMAND" describes a command with examples. Names that begin with "-" go behind "--",
where no program follows.

The environment variable REDIS_URL names the server, with its password:
  redis://user:password@host:6379/0               one server; rediss:// with TLS
  redis-sentinel://host:26379,host:26379/master   the master under Sentinel
  redis-cluster://host:6379,host:6380             a cluster
SSL_CERT_FILE names the file of a private authority for TLS.

exit codes:
  64 wrong usage         76 the lock was lost while the program ran
  69 no server           77 not permitted by the server
  75 not acquired        126, 127, 128+n as in a shell
`

// help prints the overview, or the help of the command that words name.
func help(words []string) error {
	out := &output{file: os.Stdout}
	if len(words) > 0 && words[0] != "help" {
		c, rest := find(words)
		if c == nil || len(rest) > 0 {
			return unknown(words[0])
		}
		return c.help(out)
	}
	fmt.Fprint(out, overview)
	tw := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	for _, c := range commands() {
		fmt.Fprintf(tw, "  %s\t%s\n", c.name, c.short)
	}
	_ = tw.Flush()
	fmt.Fprint(out, overviewEnd)
	return out.err
}

// help prints the help of a command.
func (c *command) help(w *output) error {
	fmt.Fprintf(w, "usage: lockwire %s %s\n\n%s\n", c.name, c.args, strings.TrimSpace(c.long))
	own, common, _ := c.flags()
	printFlags(w, "flags", own)
	printFlags(w, "common flags", common)
	if len(c.examples) > 0 {
		fmt.Fprint(w, "\nexamples:\n")
	}
	for _, e := range c.examples {
		fmt.Fprintf(w, "  # %s\n  %s\n", e.about, e.line)
	}
	return w.err
}

func printFlags(w io.Writer, title string, flags *flag.FlagSet) {
	tw := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	some := false
	flags.VisitAll(func(f *flag.Flag) {
		if !some {
			fmt.Fprintf(tw, "\n%s:\n", title)
			some = true
		}
		placeholder, text := flag.UnquoteUsage(f)
		if f.DefValue != "" && f.DefValue != "false" && f.DefValue != "0s" && f.DefValue != "0" {
			text += " (default " + f.DefValue + ")"
		}
		fmt.Fprintf(tw, "  %s\t%s\n", strings.TrimSpace(dashed(f.Name)+" "+placeholder), text)
	})
	_ = tw.Flush()
}

// dashed returns a flag as it is written: -o, --wait.
func dashed(name string) string {
	if len(name) == 1 {
		return "-" + name
	}
	return "--" + name
}
