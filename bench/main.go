// Bench measures lockwire beside its peers, and beside floors below which no client can get, on servers of its own. It writes
// results.json, RESULTS.md, TABLES.md and charts into a folder, and replaces only measured cases there.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/lockwire/lockwire/bench/catalog"
	"github.com/lockwire/lockwire/bench/footprint"
	"github.com/lockwire/lockwire/bench/report"
	"github.com/lockwire/lockwire/bench/runner"
	"github.com/lockwire/lockwire/bench/system"
)

func main() {
	if len(os.Args) == 3 && os.Args[1] == runner.Flag {
		exit(runner.Child(os.Args[2], os.Stdin, os.Stdout))
	}
	exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

func exit(err error) {
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		os.Exit(0)
	}
	fmt.Fprintln(os.Stderr, "bench:", err)
	os.Exit(1)
}

type settings struct {
	only   *regexp.Regexp
	with   []string // contenders; empty: all
	rounds int
	speed  float64
	dir    string
	readme string
	list   bool
	report bool
}

func parse(args []string, stderr io.Writer) (settings, error) {
	s := settings{only: regexp.MustCompile("")}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(stderr)
	only := flags.String("only", "", "regular `expressions`, separated by commas: cases whose name matches one as a whole or up to a -")
	with := flags.String("with", "", "contenders' `names`, separated by commas: measure only those, and only print what that shows")
	flags.IntVar(&s.rounds, "rounds", 5, "`times` that each contender is measured")
	flags.Float64Var(&s.speed, "speed", 1, "`factor` by which measurements are shortened")
	flags.StringVar(&s.dir, "dir", "bench", "`folder` of the results, in which the module of the benchmarks is")
	flags.StringVar(&s.readme, "readme", "", "`file` into which the main chart and table are written too")
	flags.BoolVar(&s.list, "list", false, "list the cases and what takes part in them, and measure nothing")
	flags.BoolVar(&s.report, "report", false, "write RESULTS.md, TABLES.md and the charts anew from results.json, and measure nothing")
	if err := flags.Parse(args); err != nil {
		return s, err
	}
	if *with != "" {
		s.with = strings.Split(*with, ",")
	}
	if *only == "" {
		return s, nil
	}
	var err error
	s.only, err = regexp.Compile("^(" + strings.ReplaceAll(*only, ",", "|") + ")(-|$)")
	return s, err
}

func run(args []string, stdout, stderr io.Writer) error {
	s, err := parse(args, stderr)
	if err != nil {
		return err
	}
	var names []string
	var cases []catalog.Case
	for _, c := range catalog.Cases() {
		names = append(names, c.Name)
		if s.only.MatchString(c.Name) {
			cases = append(cases, c.With(s.with))
		}
	}
	names = append(names, footprint.Build, footprint.Run)
	path := filepath.Join(s.dir, report.File)
	results, err := report.Load(path)
	if err != nil {
		return err
	}
	switch {
	case s.list:
		return list(stdout, cases)
	case s.report:
		results.Sort(names)
		return write(s, &results)
	}
	if err := measureAll(s, cases, &results, stdout, stderr); err != nil || s.with != nil {
		return err
	}
	results.Sort(names)
	if err := results.Save(path); err != nil {
		return err
	}
	return write(s, &results)
}

// write turns the results into text and charts.
func write(s settings, results *report.Results) error {
	if err := results.Write(s.dir); err != nil || s.readme == "" {
		return err
	}
	return results.Readme(s.readme, s.dir)
}

func list(w io.Writer, cases []catalog.Case) error {
	for _, c := range cases {
		var names []string
		for _, x := range c.Contenders {
			names = append(names, x.Name)
		}
		if _, err := fmt.Fprintf(w, "%-20s %s\n%20s %s\n", c.Name, c.Title, "", strings.Join(names, ", ")); err != nil {
			return err
		}
	}
	return nil
}

// measureAll runs the cases and puts the outcomes into results.
func measureAll(s settings, cases []catalog.Case, results *report.Results, stdout, stderr io.Writer) error {
	small := s.only.MatchString(footprint.Build) || s.only.MatchString(footprint.Run)
	if len(cases) == 0 && !small {
		return errors.New("no case of that name; -list shows all")
	}
	begin := time.Now()
	r := &runner.Runner{Rounds: s.rounds, Speed: s.speed, Log: stderr}
	if err := r.Open(); err != nil {
		return err
	}
	defer r.Close()
	results.Machine = machine(r.Pinned())
	results.Versions = versions()
	for name, version := range r.Versions() {
		results.Versions[name] = version
	}
	put := func(c report.Case) {
		results.Put(c)
		c.Table(stdout)
		fmt.Fprintf(stdout, "%s\n\n", c.Line())
	}
	for i, c := range cases {
		fmt.Fprintf(stderr, "%v  %d of %d: %s\n", time.Since(begin).Round(time.Second), i+1, len(cases), c.Name)
		put(r.Run(c))
	}
	if small {
		fmt.Fprintf(stderr, "%v  footprint\n", time.Since(begin).Round(time.Second))
		list, err := footprint.Measure(s.dir, s.rounds, stderr)
		if err != nil {
			return err
		}
		for _, c := range list {
			put(c)
		}
	}
	for _, c := range cases {
		fmt.Fprintln(stdout, results.Case(c.Name).Line())
	}
	return nil
}

func machine(pinned bool) string {
	how := "processes pinned"
	if !pinned {
		how = "processes not pinned"
	}
	return fmt.Sprintf("%s, %d CPUs, %s/%s, %s", system.CPUModel(), runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, how)
}

// versions are the versions of Go and of the compared modules.
func versions() map[string]string {
	v := map[string]string{"Go": strings.TrimPrefix(runtime.Version(), "go")}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	for _, m := range info.Deps {
		for _, part := range []string{"redis", "radix", "redigo", "redsync", "etcd/client/v3"} {
			if strings.Contains(m.Path, part) && !strings.Contains(m.Path, "miniredis") {
				v[m.Path] = m.Version
			}
		}
	}
	return v
}
