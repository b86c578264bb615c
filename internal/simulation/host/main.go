// Host runs the simulation so that a seed fixes everything: the tests of package simulation as a program for WebAssembly, with
// a single thread, and with the seed's source of chance for every choice of the Go runtime.
//
//	go run ./internal/simulation/host -seeds 1000    # a table at the end
//	go run ./internal/simulation/host -seed 17       # the whole history
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
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	context.AfterFunc(ctx, stop) // a second interrupt ends the runs that are under way
	failed, err := work(ctx, *root, *brief, *seed, *first, *seeds)
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
	all := runAll(ctx, m, os.Stdout, first, seeds)
	if all.bad > 0 {
		_, report, err := m.run(ctx, all.worst, false)
		if err == nil {
			explain(ctx, os.Stdout, m, all.worst, report)
		}
	}
	all.print(os.Stdout, time.Since(began))
	return all.bad > 0, ctx.Err()
}

// runAll runs many seeds on all cores, and writes the output of each seed with a violation to w at its end.
func runAll(ctx context.Context, m *machine, w io.Writer, first uint64, seeds int) *table {
	all := newTable()
	next := make(chan uint64)
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for seed := range next {
				out, report, err := m.run(ctx, seed, false)
				all.add(w, seed, out, report, err)
			}
		})
	}
	for seed := first; seed < first+uint64(seeds) && ctx.Err() == nil; seed++ {
		next <- seed
	}
	close(next)
	wg.Wait()
	return all
}
