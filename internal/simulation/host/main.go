// Host runs the simulation so that a seed fixes everything: the tests of package simulation as a program for WebAssembly, with
// a single thread, and with the seed's source of chance for every choice of the Go runtime. With -native the tests are a program for
// this machine: ten times as fast, and each run of a seed has another schedule.
//
//	go run ./internal/simulation/host -seeds 1000            # a table at the end
//	go run ./internal/simulation/host -seed 17               # the whole history
//	go run ./internal/simulation/host -native -seeds 1000    # a table at the end
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"sync"
	"time"
)

func main() {
	seed := flag.Uint64("seed", 0, "the one seed to run, whose history is printed")
	seeds := flag.Int("seeds", 100, "how many seeds to run")
	first := flag.Uint64("first", 1, "the first of them")
	root := flag.String("root", ".", "the root of the repository")
	brief := flag.Bool("brief", false, "run little of each seed, as make test does")
	native := flag.Bool("native", false, "run the tests as a program for this machine")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	context.AfterFunc(ctx, stop) // a second interrupt ends the runs that are under way
	run := work
	if *native {
		run = explore
	}
	failed, err := run(ctx, *root, *brief, *seed, *first, *seeds)
	if err != nil {
		fmt.Fprintln(os.Stderr, "simulation:", err)
	}
	if err != nil || failed {
		os.Exit(1)
	}
}

// work runs a seed or many, and reports whether a violation was found.
func work(ctx context.Context, root string, brief bool, seed, first uint64, seeds int) (failed bool, err error) {
	began := time.Now()
	m, err := newMachine(ctx, root)
	if err != nil {
		return false, err
	}
	defer m.close(ctx)
	m.brief = brief
	if seed != 0 {
		out, report, err := m.run(ctx, seed, true)
		os.Stdout.Write(out)
		if report.failed() && err == nil {
			explain(ctx, os.Stdout, m, seed, report)
		}
		return report.failed(), err
	}
	all := runAll(ctx, os.Stdout, first, seeds, 1, m.runSome)
	if all.bad > 0 {
		_, report, err := m.run(ctx, all.worst, false)
		if err == nil {
			explain(ctx, os.Stdout, m, all.worst, report)
		}
	}
	all.print(os.Stdout, time.Since(began))
	return all.bad > 0, ctx.Err()
}

// explore is work with a program for this machine.
func explore(ctx context.Context, root string, brief bool, seed, first uint64, seeds int) (failed bool, err error) {
	began := time.Now()
	p, err := newProgram(ctx, root)
	if err != nil {
		return false, err
	}
	defer p.remove()
	p.brief = brief
	if seed != 0 {
		first, seeds = seed, 1
	}
	all := runAll(ctx, os.Stdout, first, seeds, batchSize, p.run)
	all.print(os.Stdout, time.Since(began))
	return all.bad > 0, ctx.Err()
}

// runAll runs many seeds on all cores, size seeds at once with a call of run, and writes the output of runs with a violation to w.
func runAll(ctx context.Context, w io.Writer, first uint64, seeds, size int, run func(ctx context.Context, first uint64, n int) ([]byte, []*report, error)) *table {
	all := newTable()
	next := make(chan uint64)
	end := first + uint64(seeds)
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for seed := range next {
				n := min(size, int(end-seed))
				out, reports, err := run(ctx, seed, n)
				if ctx.Err() != nil {
					n = len(reports) // the others have been interrupted
				}
				all.add(w, seed, n, out, reports, err)
			}
		})
	}
	for seed := first; seed < end && ctx.Err() == nil; seed += uint64(size) {
		next <- seed
	}
	close(next)
	wg.Wait()
	return all
}
