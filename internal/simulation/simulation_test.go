package simulation_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/lockwire/lockwire/internal/simulation"
)

var (
	seed    = flag.Uint64("seed", 0, "the one seed to run")
	seeds   = flag.Int("seeds", 16, "how many seeds to run")
	first   = flag.Uint64("first", 1, "the first of them")
	summary = flag.Bool("report", false, "print what each run has done as a line of JSON")
	history = flag.Bool("history", false, "print the history of each run")
	dump    = flag.String("dump", "", "the folder that gets the whole history of each run with a violation")
	only    = flag.String("deployment", "", "run only the seeds of this deployment")
	omit    = flag.String("omit", "", "the numbers of faults to leave out, with commas")
	brief   = flag.Bool("brief", false, "run little of each seed")
	stop    = flag.Bool("stop", false, "run one seed after the other, and no other after one that fails")
)

func TestMain(m *testing.M) {
	debug.SetGCPercent(500) // a run makes much garbage and keeps little
	debug.SetMemoryLimit(1 << 30)
	os.Exit(m.Run())
}

var failed atomic.Bool

func TestSimulation(t *testing.T) {
	from, n := *first, *seeds
	if *seed != 0 {
		from, n = *seed, 1
	}
	for seed := from; seed < from+uint64(n); seed++ {
		if *only != "" && simulation.Deployment(seed) != *only {
			continue
		}
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			switch {
			case !*stop:
				t.Parallel()
			case failed.Load():
				return
			}
			var report simulation.Report
			synctest.Test(t, func(*testing.T) {
				report = simulation.Run(simulation.Options{Seed: seed, Brief: *brief, Omit: omitted(t)})
			})
			if *history {
				fmt.Println(strings.Join(report.History(), "\n"))
			}
			if *summary {
				summarize(t, report)
			}
			if len(report.Violations) > 0 && *dump != "" {
				name := filepath.Join(*dump, fmt.Sprintf("seed-%d.txt", seed))
				if err := os.WriteFile(name, []byte(strings.Join(report.History(), "\n")), 0o600); err != nil {
					t.Error(err)
				}
			}
			for _, violation := range report.Violations {
				failed.Store(true)
				t.Errorf("seed %d: %s", seed, violation)
			}
		})
	}
}

func omitted(t *testing.T) (list []int) {
	for word := range strings.SplitSeq(*omit, ",") {
		if word == "" {
			continue
		}
		n, err := strconv.Atoi(word)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, n)
	}
	return list
}

// summarize prints a report for the program that runs many seeds.
func summarize(t *testing.T, r simulation.Report) {
	line, err := json.Marshal(map[string]any{
		"Seed": r.Seed, "Operations": r.Operations, "Holds": r.Holds, "Looks": r.Looks, "Losses": r.Losses, "Faults": r.Faults, "Excused": r.Excused, "Events": r.Events, "Happened": r.Happened,
		"Virtual": r.Virtual, "Violations": len(r.Violations),
	})
	if err != nil {
		t.Fatal(err)
	}
	fmt.Printf("REPORT %s\n", line)
}
