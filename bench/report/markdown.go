package report

import (
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// The files in the folder of results.
const (
	File     = "results.json"
	document = "RESULTS.md"
	tables   = "TABLES.md"
	charts   = "charts"
)

const madeBy = "Made by `make bench`; do not edit. "

// Write makes RESULTS.md, TABLES.md and the charts in dir.
func (r *Results) Write(dir string) error {
	files, titles, err := r.Charts(filepath.Join(dir, charts))
	if err != nil {
		return err
	}
	var b strings.Builder
	fmt.Fprint(&b, "# lockwire beside its peers\n\n", madeBy, "[README.md](README.md) has the main cases, [TABLES.md](TABLES.md) each case\n",
		"with all contenders, [BEHIND.md](BEHIND.md) the reasons of the losses, results.json all numbers.\n\n")
	r.Goals(&b)
	r.conditions(&b)
	fmt.Fprint(&b, "## Charts\n\n", images(charts, files, titles))
	if err := os.WriteFile(filepath.Join(dir, document), []byte(strings.TrimRight(b.String(), "\n")+"\n"), 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, tables), []byte(r.tables()), 0o644)
}

// tables is TABLES.md.
func (r *Results) tables() string {
	var b strings.Builder
	fmt.Fprint(&b, "# Each case with all contenders\n\n", madeBy, "[RESULTS.md](RESULTS.md) has the goals and the conditions. A lead tells how many times\n",
		"better lockwire is by the first column. Columns with the same number for all are left out; results.json has them.\n\n")
	group := ""
	for i := range r.Cases {
		c := &r.Cases[i]
		if c.Group != group {
			group = c.Group
			fmt.Fprintf(&b, "## %s\n\n", strings.ToUpper(group[:1])+group[1:])
		}
		c.Table(&b)
	}
	return strings.TrimRight(b.String(), "\n") + "\n"
}

func (r *Results) conditions(w io.Writer) {
	fmt.Fprintf(w, "## Conditions\n\n- %s\n", r.Machine)
	for _, name := range slices.Sorted(maps.Keys(r.Versions)) {
		fmt.Fprintf(w, "- %s %s\n", name, r.Versions[name])
	}
	worst, sum := 0.0, 0.0
	for _, c := range r.Cases {
		worst = max(worst, c.Foreign)
		sum += c.Foreign
	}
	fmt.Fprintf(w, `- Other processes of this machine kept %.2f CPUs busy on average while measuring, %.2f in the worst case; each table
  says how many it was there. Where that is not near 0, times and rates are those of a machine that had other things to do:
  compare them within a table only, and CPU and allocations rather than rates.
- Each measurement is a process of its own. Each round runs every contender once, in an order drawn by lot. Numbers are the
  median of the rounds; the first column also has the least and the most.
- "same CPU": server and client are pinned to one CPU, as a wake-up across CPUs costs more than a round trip. "split": the
  server has a CPU and all clients have another, so GOMAXPROCS is 1. "clients on both CPUs" and "not pinned": GOMAXPROCS is 2.
- Calls are made under a context that can end, and the object of a lock is made for each call, where a library has one. A
  command of redigo waits for its connection only under its context: to end the command too it would start a goroutine.
- A round trip of 1 ms is made by a proxy on this machine, half of it in each direction.
- Libraries are used with their defaults unless their name says otherwise, with these exceptions: redigo has a pool of 20
  connections, as go-redis has here; locks have a lease of 30 s; redsync may try without end, and
  an attempt of rueidislock may take 15 s instead of 20 ms.
- Peers are compared, floors are bounds: written for the purpose, with requests encoded beforehand, without error handling.
  "raw" has a connection for each caller; "mux" is one connection whose callers combine their writes.
- Hand-overs are acquisitions by another caller than the one who had the lock before; their time runs from the call of unlock to
  the return of lock. BLPOP is not a lock, as nothing gives back what a dead holder had.

`, sum/max(float64(len(r.Cases)), 1), worst)
}
