package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// batchSize is how many seeds a process runs: each process translates the scripts anew.
const batchSize = 25

// program is the tests of package simulation as a program for this machine. Each run of a seed has another schedule.
type program struct {
	path  string
	brief bool // seeds are run with little of each
}

// newProgram builds the tests. The caller calls remove.
func newProgram(ctx context.Context, root string) (*program, error) {
	dir, err := os.MkdirTemp("", "simulation")
	if err != nil {
		return nil, err
	}
	p := &program{path: filepath.Join(dir, "simulation.test")}
	build := exec.CommandContext(ctx, "go", "test", "-c", "-o", p.path, "./internal/simulation")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		p.remove()
		return nil, fmt.Errorf("%w: %s", err, out)
	}
	return p, nil
}

func (p *program) remove() { _ = os.RemoveAll(filepath.Dir(p.path)) }

// run runs seeds one after the other in a process. The process has one processor: to pass the goroutines of a seed from one to
// another takes half as long again.
func (p *program) run(ctx context.Context, first uint64, seeds int) ([]byte, []*report, error) {
	run := exec.CommandContext(ctx, p.path, append(testArgs(p.brief), fmt.Sprint("-first=", first), fmt.Sprint("-seeds=", seeds), "-test.parallel=1")...)
	run.Env = append(os.Environ(), "GOMAXPROCS=1")
	out, err := run.CombinedOutput()
	text, reports := parse(out)
	if _, exited := errors.AsType[*exec.ExitError](err); exited && len(reports) == seeds {
		err = nil // said by the output
	}
	return text, reports, err
}
