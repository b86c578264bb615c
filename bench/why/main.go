// Why shows an operator's search for the reason of a waiting job: three processes want the same lock, on a real server, with
// the spans and metrics for a collector. It prints what the server says of the lock while two of them wait, their logs, a trace and the
// metrics of all three.
//
// Why starts a redis-server, or uses the server of -redis.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/lockwire/lockwire"
	"github.com/lockwire/lockwire/bench/system"
	"github.com/lockwire/lockwire/lock"
)

// workerVariable has the role of a process started by this program, urlVariable its server and traceVariable its trace.
const (
	workerVariable = "LOCKWIRE_WHY_ROLE"
	urlVariable    = "LOCKWIRE_WHY_URL"
	traceVariable  = "LOCKWIRE_WHY_TRACEPARENT"
)

func main() {
	var err error
	if role := os.Getenv(workerVariable); role != "" {
		err = work(context.Background(), role, os.Stdout)
	} else {
		url := flag.String("redis", "", "`URL` of a server; without it, a redis-server is started")
		flag.Parse()
		err = why(*url, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "why:", err)
		os.Exit(1)
	}
}

// why runs the processes and prints their reports.
func why(url string, out io.Writer) error {
	if url == "" {
		server, err := system.StartRedis()
		if errors.Is(err, system.ErrNoRedis) {
			return fmt.Errorf("%w: name a server with -redis", err)
		}
		if err != nil {
			return err
		}
		defer server.Stop()
		url = "redis://" + server.TCP
	}
	parent := newTraceParent()
	reports := make([]report, len(roles))
	errs := make([]error, len(roles))
	var processes sync.WaitGroup
	for i, r := range roles {
		processes.Go(func() { reports[i], errs[i] = start(r.name, url, parent) })
	}
	seen, err := inspect(context.Background(), url)
	processes.Wait()
	if err := errors.Join(append(errs, err)...); err != nil {
		return err
	}
	show(out, seen, reports)
	return nil
}

// inspect asks for the lock as soon as a process waits for it.
func inspect(ctx context.Context, url string) (seen lock.Inspection, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	c, err := lockwire.Open(ctx, url, lockwire.Config{Lock: lock.Config{Name: "operator"}})
	if err != nil {
		return seen, err
	}
	defer c.Close()
	for !seen.Info.Locked || seen.Listening == 0 {
		if seen, err = c.Inspect(ctx, lockName); err != nil {
			return seen, err
		}
		time.Sleep(10 * time.Millisecond)
	}
	return seen, nil
}

// lockName is the lock that all want.
const lockName = "invoices"

// role is the task of a process.
type role struct {
	name     string
	after    time.Duration // before the request for the lock
	patience time.Duration // limit of the wait
	holds    time.Duration // length of the work
	scrape   time.Duration // after the request, while all three want the lock
}

var roles = []role{
	{"nightly-1", 0, 10 * time.Second, 2500 * time.Millisecond, 1100 * time.Millisecond},
	{"web-2", 500 * time.Millisecond, time.Second, 0, 600 * time.Millisecond},
	{"web-3", 700 * time.Millisecond, 10 * time.Second, 100 * time.Millisecond, 400 * time.Millisecond},
}
