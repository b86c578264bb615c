package simulation_test

import (
	"flag"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/lockwire/lockwire/internal/simulation"
)

var (
	seed  = flag.Uint64("seed", 0, "the one seed to run, whose history is printed with -v")
	seeds = flag.Int("seeds", 40, "how many seeds to run")
	first = flag.Uint64("first", 1, "the first of them")
	stop  = flag.Bool("stop", false, "run one seed after the other, and no other after one that fails")
)

func TestMain(m *testing.M) {
	debug.SetGCPercent(400) // a run makes much garbage and keeps little
	os.Exit(m.Run())
}

var failed atomic.Bool

func TestSimulation(t *testing.T) {
	from, n := *first, *seeds
	if *seed != 0 {
		from, n = *seed, 1
	}
	for seed := from; seed < from+uint64(n); seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			switch {
			case !*stop:
				t.Parallel()
			case failed.Load():
				return
			}
			var report simulation.Report
			synctest.Test(t, func(*testing.T) { report = simulation.Run(seed) })
			if n == 1 {
				t.Log("\n" + strings.Join(report.History, "\n"))
			}
			for _, violation := range report.Violations {
				failed.Store(true)
				t.Errorf("seed %d: %s", seed, violation)
			}
		})
	}
}
