package footprint

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/lockwire/lockwire/bench/report"
	"github.com/lockwire/lockwire/bench/system"
)

// The names of the two cases.
const (
	Build = "footprint-build"
	Run   = "footprint-run"
)

const (
	binaryKiB    = "binary KiB"
	otherModules = "other modules"
)

// runsPerRound is large, because a run takes no time.
const runsPerRound = 4

// built is a program after its build.
type built struct {
	program
	binary string
	size   map[string]float64
	runs   []map[string]float64
}

// Measure builds all programs and runs each in rounds. The module of the benchmarks is in the folder bench.
func Measure(bench string, rounds int, log io.Writer) ([]report.Case, error) {
	dir, err := os.MkdirTemp("", "lockwire-footprint-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	size := report.Case{Group: "footprint", Name: Build, Title: "Size of a small program", When: time.Now(), Rounds: 1, Load: system.LoadAverage()}
	size.Metrics = []report.Metric{{Name: binaryKiB, Lower: true}, {Name: otherModules, Lower: true}, {Name: "of them linked", Lower: true},
		{Name: "packages", Lower: true}, {Name: "of them foreign", Lower: true}}
	var list []*built
	for i, p := range programs() {
		if p.etcd && !system.HasEtcd() {
			continue
		}
		b := &built{program: p}
		if b.binary, b.size, err = p.build(bench, filepath.Join(dir, fmt.Sprint(i))); errors.Is(err, errUnchanged) {
			continue
		}
		row := report.Row{Name: p.name, Kind: p.kind, Numbers: report.Collect([]map[string]float64{b.size})}
		if err != nil {
			row.Errors = []string{err.Error()}
			fmt.Fprintln(log, p.name+":", err)
		} else if p.command == "" {
			list = append(list, b)
		}
		size.Rows = append(size.Rows, row)
	}
	run, err := runAll(list, rounds*runsPerRound, log)
	return []report.Case{size, run}, err
}

func runAll(list []*built, rounds int, log io.Writer) (report.Case, error) {
	c := report.Case{Group: "footprint", Name: Run, Title: "Start and memory of a small program", Place: "same CPU", When: time.Now(),
		Rounds: rounds, Load: system.LoadAverage()}
	c.Metrics = []report.Metric{{Name: "first reply ms", Lower: true}, {Name: "KiB in use", Lower: true}, {Name: "KiB per idle client", Lower: true},
		{Name: "goroutines", Lower: true}, {Name: "RSS KiB", Lower: true}}
	cpus := system.CPUs()
	cpus = cpus[:min(len(cpus), 1)]
	redis, err := system.StartRedis(cpus...)
	if err != nil {
		return c, err
	}
	defer redis.Stop()
	etcd, err := system.StartEtcd(cpus...)
	if err == nil {
		defer etcd.Stop()
	}
	c.Rows = make([]report.Row, len(list))
	for range rounds {
		for _, i := range rand.Perm(len(list)) {
			addr := redis.TCP
			if list[i].etcd {
				if etcd == nil {
					continue
				}
				addr = etcd.Endpoint
			}
			numbers, err := list[i].run(addr, cpus)
			if err != nil {
				c.Rows[i].Errors = append(c.Rows[i].Errors, err.Error())
				fmt.Fprintln(log, list[i].name+":", err)
				continue
			}
			list[i].runs = append(list[i].runs, numbers)
		}
	}
	for i, b := range list {
		c.Rows[i].Name, c.Rows[i].Kind, c.Rows[i].Numbers = b.name, b.kind, report.Collect(b.runs)
	}
	return c, nil
}

// run starts the program and reads its output.
func (b *built) run(addr string, cpus []int) (map[string]float64, error) {
	cmd := exec.Command(b.binary, addr)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	begin := time.Now()
	if err := system.Start(cmd, cpus...); err != nil {
		return nil, err
	}
	stdout := bufio.NewReader(out)
	line, _ := stdout.ReadString('\n')
	took := time.Since(begin)
	var use, each, goroutines, rss float64
	_, err = fmt.Fscan(stdout, &use, &each, &goroutines, &rss)
	if wait := cmd.Wait(); wait != nil || line != "reply\n" || err != nil {
		return nil, fmt.Errorf("footprint: the program failed: %w: %s", errors.Join(wait, err), strings.TrimSpace(stderr.String()))
	}
	return map[string]float64{
		"first reply ms": took.Seconds() * 1e3, "KiB in use": use / 1024, "KiB per idle client": each / 1024,
		"goroutines": goroutines, "RSS KiB": rss,
	}, nil
}
