package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"
	"github.com/tetratelabs/wazero/sys"
)

// machine runs the tests of package simulation, each time from the beginning.
type machine struct {
	runtime wazero.Runtime
	program wazero.CompiledModule
	brief   bool // seeds are run with little of each
}

// newMachine builds the tests, and translates the tests to machine code.
func newMachine(ctx context.Context, root string) (*machine, error) {
	dir, err := os.MkdirTemp("", "simulation")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	binary := filepath.Join(dir, "simulation.wasm")
	build := exec.CommandContext(ctx, "go", "test", "-c", "-o", binary, "./internal/simulation")
	build.Dir = root
	build.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0", "GOFLAGS=")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w: %s", err, out)
	}
	code, err := os.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	m := &machine{runtime: wazero.NewRuntime(ctx)} // not WithCloseOnContextDone, whose checks in each loop make a run five times as long
	if _, err = wasi_snapshot_preview1.Instantiate(ctx, m.runtime); err == nil {
		m.program, err = m.runtime.CompileModule(ctx, code)
	}
	if err != nil {
		m.close(ctx)
		return nil, err
	}
	return m, nil
}

func (m *machine) close(ctx context.Context) { _ = m.runtime.Close(ctx) }

// run runs a seed, and returns its output and its report. Only the seed has an influence on either.
func (m *machine) run(ctx context.Context, seed uint64, history bool, omit ...int) ([]byte, *report, error) {
	var out bytes.Buffer
	args := append([]string{"simulation.test"}, append(testArgs(m.brief), fmt.Sprint("-seed=", seed))...)
	if history {
		args = append(args, "-history")
	}
	if len(omit) > 0 {
		words := strings.Fields(strings.Trim(fmt.Sprint(omit), "[]"))
		args = append(args, "-omit="+strings.Join(words, ","))
	}
	var key [32]byte
	copy(key[:], fmt.Sprint("seed ", seed))
	clock := int64(0)
	cfg := wazero.NewModuleConfig().WithName("").WithArgs(args...).WithStdout(&out).WithStderr(&out).
		WithRandSource(rand.NewChaCha8(key)).
		WithNanotime(func() int64 { clock += 1000; return clock }, sys.ClockResolution(1)).
		WithNanosleep(func(ns int64) { clock += ns }).
		WithWalltime(func() (int64, int32) { return startOfTime + clock/1e9, int32(clock % 1e9) }, sys.ClockResolution(1))
	module, err := m.runtime.InstantiateModule(ctx, m.program, cfg)
	if module != nil {
		_ = module.Close(ctx)
	}
	if exit, ok := errors.AsType[*sys.ExitError](err); ok && exit.ExitCode() <= 2 {
		err = nil // said by the output
	}
	text, reports := parse(out.Bytes())
	if len(reports) != 1 {
		return text, nil, err
	}
	return text, reports[0], err
}

// testArgs are the arguments of the tests for runs with a report.
func testArgs(brief bool) []string {
	return []string{"-report", fmt.Sprint("-brief=", brief), "-test.run=^TestSimulation$", "-test.timeout=0"}
}

// runSome runs a single seed.
func (m *machine) runSome(ctx context.Context, seed uint64, _ int) ([]byte, []*report, error) {
	out, r, err := m.run(ctx, seed, false)
	if r == nil {
		return out, nil, err
	}
	return out, []*report{r}, err
}

// startOfTime is what the wall clock says at the beginning of each run, in seconds since 1970.
const startOfTime = 946684800

// report is the report of a run; nil for an unfinished run.
type report struct {
	Seed                             uint64
	Operations, Holds, Looks, Losses int
	Faults, Excused, Events          map[string]int
	Virtual                          int64
	Violations, Happened             int
}

func (r *report) failed() bool { return r == nil || r.Violations > 0 }

// parse takes the reports out of the output of runs.
func parse(out []byte) (text []byte, reports []*report) {
	const mark = "REPORT "
	for line := range bytes.Lines(out) {
		rest, ok := bytes.CutPrefix(line, []byte(mark))
		var found report
		if !ok || json.Unmarshal(rest, &found) != nil {
			text = append(text, line...)
			continue
		}
		reports = append(reports, &found)
	}
	return text, reports
}
