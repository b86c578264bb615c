package policy

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// top is the directory of the repository.
const top = "../.."

// The tables are decisions, not descriptions: what is not in them fails. What makes a change necessary belongs into the
// change's message.

// mayImport says which packages of this module the files of each package may import. A test may also import its own
// package and internal/...; examples, and those of the root, may import all.
var mayImport = map[string][]string{
	"":                        {"conn", "cluster", "lock"},
	"cmd/lockwire":            {"", "resp", "conn", "cluster", "lock", "lock/leader", "internal/netfail"},
	"resp":                    {},
	"conn":                    {"resp", "internal/callback", "internal/netfail", "conn/internal/pipeline", "conn/internal/sentinel"},
	"script":                  {"resp", "conn"},
	"pubsub":                  {"resp", "conn", "internal/netfail"},
	"cluster":                 {"resp", "conn", "script", "pubsub", "internal/callback", "internal/netfail"},
	"lock":                    {"resp", "conn", "script", "pubsub", "internal/callback", "internal/netfail", "lock/internal/bounds", "lock/internal/claim", "lock/internal/cleanup", "lock/internal/clock", "lock/internal/course", "lock/internal/gates", "lock/internal/kinds", "lock/internal/logs", "lock/internal/looks", "lock/internal/machine", "lock/internal/places", "lock/internal/processes", "lock/internal/remote", "lock/internal/watchdog"},
	"lock/internal/bounds":    {"conn", "lock/internal/remote"},
	"lock/internal/claim":     {},
	"lock/internal/cleanup":   {"resp", "conn", "script", "internal/netfail", "lock/internal/clock", "lock/internal/remote"},
	"lock/internal/clock":     {},
	"lock/internal/course":    {"resp", "conn", "internal/netfail", "lock/internal/clock", "lock/internal/remote"}, // resp, conn: its tests only
	"lock/internal/gates":     {},
	"lock/internal/highway":   {},
	"lock/internal/kinds":     {"resp", "conn", "script", "pubsub", "lock/internal/highway"}, // but for script, its tests only
	"lock/internal/logs":      {"conn"},
	"lock/internal/looks":     {"lock/internal/clock"},
	"lock/internal/machine":   {},
	"lock/internal/places":    {},
	"lock/internal/processes": {"resp", "conn", "lock/internal/remote"},
	"lock/internal/remote":    {"resp", "conn", "script", "internal/netfail", "lock/internal/clock", "lock/internal/kinds", "lock/internal/logs"},
	"lock/internal/watchdog":  {"resp", "conn", "pubsub", "internal/netfail", "lock/internal/clock", "lock/internal/logs", "lock/internal/remote"}, // resp, conn: its tests only
	"lock/locktest":           {"conn", "lock", "lock/internal/machine", "internal/fakeredis", "internal/lockscripts"},
	"lock/leader":             {"resp", "conn", "script", "lock", "internal/netfail"},
	"lock/fence":              {},
	"internal/policy":         {},
	"internal/callback":       {},
	"internal/fakeredis":      {"resp", "conn"},
	"internal/lockscripts":    {"internal/fakeredis", "script"},
	"internal/faultproxy":     {"resp", "conn"},
	"internal/redistest":      {"resp", "conn"},
	"internal/conformance":    {"resp", "conn", "pubsub", "cluster", "lock", "lock/leader"},
	"internal/locktorture":    {"conn", "lock", "internal/faultproxy", "internal/redistest"}, // lock and conn: its tests only
	"internal/notls":          {"conn"},
	"internal/pictures":       {},
	"internal/netfail":        {"resp"},

	"conn/internal/pipeline": {"resp", "internal/netfail"},
	"conn/internal/sentinel": {"resp", "internal/netfail", "conn/internal/pipeline"},
}

// tooHeavy are packages of the standard library that a program is not to get for using this one: each brings much with it that
// then is linked into every program, or runs whenever one starts. The packages in light, and what they depend on, are allowed: log/slog
// for Lease.LogValue, of which the linker leaves 36 KiB in a program that does not log by it.
var (
	tooHeavy = []string{
		"encoding/gob", "encoding/json", "encoding/xml", "expvar", "flag", "html/template", "log", "net/http", "os/exec",
		"regexp", "runtime/pprof", "testing", "text/template",
	}
	light = []string{"log/slog"}
)

// mayBeUnsafe names the files that import unsafe, and what for.
var mayBeUnsafe = map[string]string{
	"cmd/lockwire/terminal_unix.go":              "ioctl: the foreground of the terminal goes to the program",
	"cmd/lockwire/server_terminal_linux_test.go": "ioctl: a pseudo-terminal",
	"internal/locktorture/system_linux.go":       "clock_gettime: one clock for all processes of the machine",
	"conn/unsafe.go":                             "a large string is written from its own memory",
	"resp/unsafe.go":                             "a long text is read into the memory of its string",
	"lock/internal/clock/clock_linux.go":         "clock_gettime: the standard library has no CLOCK_BOOTTIME",
}

// goroutines names every place in the library that starts one, as file:function, and who joins it. The second start in
// a function has "#2" behind it. A timer's function counts: it runs in a goroutine too.
var goroutines = map[string]string{
	"cmd/lockwire/signals.go:catchSignals":                   "signals.stop",
	"cmd/lockwire/supervise.go:supervisor.run":               "supervisor.run itself, before it returns",
	"cmd/lockwire/terminal_unix.go:terminal.passStops":       "terminal.close",
	"cluster/batch.go:batch.send":                            "batch.send itself, before it returns: one for each node but the first",
	"cluster/cluster.go:Open":                                "Cluster.Close: refreshLoop",
	"cluster/cluster.go:Cluster.retireLocked":                "Cluster.Close: the end of a retired node",
	"conn/pool.go:Pool.goWhileOpen":                          "Pool.Close",
	"conn/exclusive.go:Pool.dialMoreLocked":                  "Pool.Close",
	"conn/trace.go:report":                                   "Pool.Close, Conn.Close",
	"conn/push.go:newPushes":                                 "Pool.Close, Conn.Close",
	"conn/shared.go:sharedConn.dialLocked":                   "Pool.Close",
	"conn/dial.go:meanwhile":                                 "dial, before it returns",
	"conn/switch.go:Pool.switched":                           "Pool.Close: follow",
	"conn/switch.go:Pool.switched#2":                         "Pool.Close: watch",
	"lock/internal/bounds/bounds.go:life.untilMax":           "nobody needs to: it does no more than cancel a context",
	"lock/internal/bounds/bounds.go:until":                   "nobody needs to: it is stopped, or does no more than cancel a context",
	"lock/internal/bounds/bounds.go:Bounds.HurryTasks":       "nobody needs to: it is stopped, or does no more than cancel a context",
	"lock/internal/cleanup/cleanup.go:Cleanup.Close":         "nobody needs to: it is stopped, or does no more than cancel a context",
	"lock/internal/cleanup/cleanup.go:Cleanup.startLocked":   "Client.Close: cleanup",
	"lock/internal/cleanup/loop.go:Cleanup.loop":             "Cleanup.loop itself, before it returns: the making of jobs for kept work",
	"lock/internal/cleanup/loop.go:Cleanup.loop#2":           "Cleanup.loop itself, before it returns: a batch",
	"lock/internal/cleanup/loop.go:Cleanup.loop#3":           "Cleanup.loop itself, before it returns: the deletion of latches",
	"lock/lease.go:Lease.armLocked":                          "Client.Close: the timer of a lease",
	"lock/redlock_line.go:anchorWait.waitInLine":             "anchorWait.waitInLine itself, before it returns",
	"lock/client.go:Client.untilClose":                       "nobody needs to: it is stopped before the wait returns, or does no more than cancel a context",
	"lock/internal/watchdog/loop.go:Watchdog.begin":          "Client.Close: watchdog",
	"lock/internal/watchdog/round.go:Watchdog.run":           "Watchdog.run itself, before it returns",
	"lock/internal/watchdog/watchdog.go:Watchdog.wakeLocked": "Client.Close: watchdog",
	"pubsub/keeper.go:part.serve":                            "keeper: the reader of a connection",
	"pubsub/queue.go:queue.add":                              "Subscriber.Close: the feeder of a consumer that is behind; Subscription.Close ends it",
	"pubsub/subscriber.go:part.startLocked":                  "Subscriber.Close: keeper",
	"lock/client.go:Client.background":                       "Client.Close: a part of a lease that is taken or given back, a source of a Watch",
	"lock/leader/leader.go:election.lead":                    "election.lead itself, before it returns: the end of the lease",
	"lock/group.go:atOnce":                                   "atOnce itself, before it returns",

	"conn/internal/pipeline/link.go:New":                  "Pool.Close, Conn.Close: readLoop",
	"conn/internal/pipeline/deadlines.go:Link.armLocked":  "Pool.Close, Conn.Close: the timer of a connection",
	"conn/internal/pipeline/write.go:Link.handOverLocked": "Pool.Close, Conn.Close: writeLoop",
	"conn/internal/sentinel/follow.go:Resolver.listen":    "Resolver.listen itself, before it returns: the reader of a subscription",

	"conn/internal/sentinel/inquiry.go:Resolver.inquiry":           "Pool.Close: an inquiry about the replicas, with Pool.goWhileOpen",
	"conn/internal/sentinel/inquiry.go:Resolver.replicasFromAll":   "Resolver.replicasFromAll itself, before it returns: a question to each sentinel",
	"conn/internal/sentinel/inquiry.go:Resolver.replicasFromAll#2": "Resolver.replicasFromAll itself, before it returns: the end of the questions",
}

func TestImports(t *testing.T) {
	report(t, checkImports(root(t), mayImport))
}

func TestRequiresNothing(t *testing.T) {
	report(t, checkStandardOnly(root(t)))
	text, err := os.ReadFile(filepath.Join(top, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	report(t, checkGoMod(string(text)))
}

func TestLight(t *testing.T) {
	var library []string
	for dir := range mayImport {
		if !strings.HasPrefix(dir, "internal/") && !strings.HasPrefix(dir, "cmd/") {
			library = append(library, "./"+dir)
		}
	}
	deps := strings.Fields(string(run(t, append([]string{"list", "-deps"}, library...)...)))
	allowed := strings.Fields(string(run(t, append([]string{"list", "-deps"}, light...)...)))
	direct := map[string]bool{}
	for _, s := range root(t) {
		if !s.test() && slices.Contains(library, "./"+s.dir) {
			for _, name := range s.imports() {
				direct[name] = true
			}
		}
	}
	report(t, checkLight(slices.DeleteFunc(deps, func(name string) bool { return slices.Contains(allowed, name) && !direct[name] }), tooHeavy))
}

// A program has the scripts of the kinds of locks that it uses, and no others. Without lockwire.Open it has no cluster.
func TestUnusedKindsAreNotLinked(t *testing.T) {
	small, opened := build(t, "./testdata/onekind"), build(t, "./testdata/opened")
	report(t, checkLinked(os.DirFS(filepath.Join(top, "lock/internal/kinds/lua")), small, "reentrant_"))
	report(t, checkLinked(os.DirFS(filepath.Join(top, "lock/internal/kinds/lua")), opened, "reentrant_"))
	for _, name := range []string{module + ".Open", module + "/cluster.Open"} {
		if bytes.Contains(small, []byte(name)) {
			t.Errorf("a program that uses only conn and lock has %s", name)
		}
		if !bytes.Contains(opened, []byte(name)) {
			t.Errorf("a program that uses lockwire.Open does not have %s", name)
		}
	}
}

// A program that uses no conversions, batches and iterators does not have them.
func TestUnusedConversionsAreNotLinked(t *testing.T) {
	without, with := build(t, "./testdata/onekind"), build(t, "./testdata/values")
	for _, name := range []string{"/cluster.(*Cluster).MGet", "/cluster.Replicas", "/conn.(*Queue).Run", "/resp.(*decoder).decode"} {
		if bytes.Contains(build(t, "./testdata/opened"), []byte(module+name)) {
			t.Errorf("a program that uses locks in clusters has %s", name)
		}
	}
	for _, name := range []string{
		"/resp.(*decoder).decode", "/resp.fieldsOf", "/resp.Fields", "/conn.(*Queue).Run", "/conn.withCursor", "/conn.(*Pool).Block",
	} {
		if bytes.Contains(without, []byte(module+name)) {
			t.Errorf("a program that uses only locks has %s", name)
		}
		if !bytes.Contains(with, []byte(module+name)) {
			t.Errorf("a program that uses %s does not have it", name)
		}
	}
}

// A program with one kind of lock has nothing of several locks as one, of the questions about locks, or of leaders.
func TestUnusedFeaturesAreNotLinked(t *testing.T) {
	without, with := build(t, "./testdata/onekind"), build(t, "./testdata/many")
	for _, name := range []string{
		"/lock.(*Multi)", "/lock.(*Redlock)", "/lock.(*anchorWait)", "/lock.(*ballot)", "/lock.(*watcher)", "/lock.(*Client).Inspect", "/lock.(*Client).listOn",
		"/lock/internal/highway.", "/lock/leader.",
	} {
		if bytes.Contains(without, []byte(module+name)) {
			t.Errorf("a program that uses only one kind of lock has %s", name)
		}
		if !bytes.Contains(with, []byte(module+name)) {
			t.Errorf("a program that uses %s does not have it", name)
		}
	}
}

// build returns the binary of a program.
func build(t *testing.T, program string) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "program")
	run(t, "build", "-o", path, program)
	binary, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return binary
}

// run runs the go command and returns what it prints.
func run(t *testing.T, args ...string) []byte {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = top
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=", "CGO_ENABLED=0")
	out, err := cmd.Output()
	if err != nil {
		var said []byte
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			said = exit.Stderr
		}
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, said)
	}
	return out
}

func TestUnsafe(t *testing.T) {
	report(t, checkUnsafe(root(t), mayBeUnsafe))
}

func TestGoroutines(t *testing.T) {
	report(t, checkGoroutines(root(t), goroutines))
}

func TestSizes(t *testing.T) {
	report(t, checkSizes(all(t)))
}

func TestTestsDoNotSleepOrSkip(t *testing.T) {
	report(t, checkWaiting(all(t)))
}

func TestNothingLeftToDo(t *testing.T) {
	report(t, checkMarkers(os.DirFS(top)))
}

func TestScriptsAreEmbedded(t *testing.T) {
	report(t, checkEmbedded(os.DirFS(top), all(t)))
}

// all returns the Go files of all modules.
func all(t *testing.T) []source {
	t.Helper()
	sources, err := parse(os.DirFS(top))
	if err != nil {
		t.Fatal(err)
	}
	return sources
}

// root returns the Go files of the root module.
func root(t *testing.T) []source {
	t.Helper()
	return inRoot(all(t))
}

func report(t *testing.T, problems []string) {
	t.Helper()
	for _, p := range problems {
		t.Error(p)
	}
}
