// Sizing measures the cost of a process, a lock, a lease and a waiter for a server and a client, and prints the table of
// OPERATIONS.md. It starts its own server.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"time"

	"github.com/lockwire/lockwire/bench/system"
)

func main() {
	scale := flag.Float64("scale", 1, "`factor` for the numbers of processes, locks and waiters")
	flag.Parse()
	redis, err := system.StartRedis()
	if err == nil {
		err = print(os.Stdout, redis, sizes(*scale))
		redis.Stop()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "sizing:", err)
		os.Exit(1)
	}
}

// size says how much is measured.
type size struct {
	processes, locks, waiters int
	contenders                []int
	lease, settle, length     time.Duration
}

func sizes(scale float64) size {
	n := func(n float64) int { return max(1, int(n*scale)) }
	return size{
		processes: n(1000), locks: n(100_000), waiters: n(10_000), contenders: []int{n(10), n(100), n(1000)},
		lease: 6 * time.Second, settle: 5 * time.Second, length: 6 * time.Second,
	}
}

// cost is a line of the table.
type cost struct {
	what, server, client string
}

// print measures everything and prints the table.
func print(w io.Writer, redis *system.Redis, s size) error {
	fmt.Fprintf(w, "%s, %s, %s/%s, %d CPUs for server and clients.\n\n| | server | client |\n|---|---:|---:|\n",
		redis.Version, runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU())
	for _, measure := range []func(*bench, size) ([]cost, error){processes, locks, waiters, pairs, contention} {
		b := &bench{redis: redis, settle: s.settle}
		costs, err := measure(b, s)
		b.close()
		if err == nil {
			err = redis.Empty()
		}
		if err != nil {
			return err
		}
		for _, c := range costs {
			fmt.Fprintf(w, "| %s | %s | %s |\n", c.what, c.server, c.client)
		}
	}
	return nil
}
