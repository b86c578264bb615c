package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/lockwire/lockwire"
	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/lock"
)

func doctorCommand() *command {
	return &command{
		name:  "doctor",
		args:  "[flags]",
		short: "examine a server and the user's permissions",
		long: `
Examines the server, in a cluster each master: the time of a round trip, the version, eviction, persistence, replicas and
their acknowledgement, the clock. Then it takes and releases a lock of each kind, which shows missing permissions, and
looks for locks without a lease and for the remains of read-write and Fair locks. The names of the locks it takes begin
with --prefix: choose one that the user may use, and by --kinds the kinds. A line is ok, info, warn or fail; the exit code is
1 after a fail, and 77 if a permission for a lock is missing. What only the examination has no permission for is an info.`,
		examples: []example{
			{"with locks named orders:...", `lockwire doctor --prefix orders:`, 0},
			{"of a user with the rights for two kinds", `lockwire doctor --prefix orders: --kinds fenced,fair`, 0},
			{"as lines of JSON, without a scan of all keys", `lockwire doctor --scan=false -o json`, 0},
		},
		define: func(flags *flag.FlagSet) action {
			prefix := flags.String("prefix", "lockwire:doctor:", "`PREFIX` of the names of locks that are taken")
			scan := flags.Bool("scan", true, "scan all keys; --scan=false does not")
			wanted := slices.Concat(kinds, otherKinds)
			flags.Func("kinds", "`KINDS` of locks that are taken, with commas between them; default: all",
				func(text string) error {
					wanted = strings.Split(text, ",")
					return checkKinds(wanted)
				})
			return func(ctx context.Context, in *invocation) error { return doctor(ctx, in, *prefix, wanted, *scan) }
		},
	}
}

// finding is a line of the examination.
type finding struct {
	Level  string `json:"level"` // ok, info, warn or fail
	Check  string `json:"check"`
	Server string `json:"server,omitempty"`
	Text   string `json:"text"`
}

// examination collects findings.
type examination struct {
	ctx      context.Context
	in       *invocation
	client   *lockwire.Client
	server   string // whose findings follow; "" for the whole
	findings []finding
	replica  bool // the server takes no locks
	code     int  // the exit code
	warnings *warnings
}

func (e *examination) add(level, check, format string, args ...any) {
	f := finding{level, check, e.server, fmt.Sprintf(format, args...)}
	e.findings = append(e.findings, f)
	if e.in.json() {
		printJSON(e.in.out, f)
	}
}

// unexamined adds the failure of a check that locks do without. A missing permission for it does no harm.
func (e *examination) unexamined(check string, err error) {
	if codeOf(err) == codeNotPermitted {
		e.add("info", check, "not examined: %v", err)
		return
	}
	e.fail(check, err)
}

// fail adds the failure of a check.
func (e *examination) fail(check string, err error) {
	e.add("fail", check, "%v", err)
	e.code = max(e.code, codeFailed)
	if codeOf(err) == codeNotPermitted {
		e.code = codeNotPermitted
	}
}

func doctor(ctx context.Context, in *invocation, prefix string, kinds []string, scan bool) error {
	e := &examination{ctx: ctx, in: in, warnings: &warnings{}}
	var err error
	if e.client, err = in.open(ctx, lock.Config{Logger: e.warnings}); err != nil {
		return err
	}
	defer e.client.Close()
	e.eachServer((*examination).examineServer)
	e.server = ""
	if !e.replica {
		e.tryKinds(prefix, kinds)
	}
	if scan {
		e.lookForEndless()
		e.eachServer((*examination).lookForRemains)
	}
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	if !in.json() {
		var rows [][]string
		for _, f := range e.findings {
			rows = append(rows, []string{f.Level, f.Check, orDash(f.Server), f.Text})
		}
		printTable(in.out, "LEVEL CHECK SERVER FINDING", rows)
	}
	return endedWith(e.code)
}

// eachServer calls fn for the server, or for each master of a cluster, with e.server set.
func (e *examination) eachServer(fn func(*examination, conn.Doer)) {
	spread, ok := e.client.Server().(lock.Spread)
	if !ok {
		fn(e, e.client.Server())
		return
	}
	n := 0
	for server, err := range spread.Doers(e.ctx) {
		n++
		e.server = fmt.Sprint("master ", n)
		if err != nil {
			e.fail("reachable", err)
			continue
		}
		fn(e, server)
	}
}

// lookForEndless looks for locks without a lease, freed by a release only.
func (e *examination) lookForEndless() {
	states, err := listed(e.ctx, e.client, "*")
	if err != nil {
		e.unexamined("leases", err)
		return
	}
	some := false
	for _, s := range states {
		if s.Held && s.Remaining < 0 && s.Permits == nil {
			some = true
			e.add("warn", "leases", "the lock %s has no lease: it stays taken after the death of its holder", s.Name)
		}
	}
	if !some {
		e.add("ok", "leases", "%d locks are held, each with a lease", len(states))
	}
}

// warnings is a Logger. It keeps each text once.
type warnings struct {
	mu    sync.Mutex
	texts []string
}

func (w *warnings) Warn(msg string, args ...any) {
	for i := 0; i+1 < len(args); i += 2 {
		if err, ok := args[i+1].(error); ok && err != nil && !errors.Is(err, context.Canceled) {
			msg += ": " + err.Error()
		} else if args[i] == "missing" {
			msg += fmt.Sprint(": missing ", args[i+1])
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !slices.Contains(w.texts, msg) {
		w.texts = append(w.texts, msg)
	}
}

func (w *warnings) take() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	texts := w.texts
	w.texts = nil
	return texts
}
