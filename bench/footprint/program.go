package footprint

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// program is a small program in the folder programs.
type program struct {
	name, kind, dir, tags string
	modules               []string // required modules
	etcd                  bool     // uses an etcd server
	command               string   // the package of a command to build in place of the program, which is not run
}

const (
	lockwireModule = "github.com/lockwire/lockwire"
	commandPackage = lockwireModule + "/cmd/lockwire"
	goredisModule  = "github.com/redis/go-redis/v9"
	rueidisModule  = "github.com/redis/rueidis"
	redigoModule   = "github.com/gomodule/redigo"
	radixModule    = "github.com/mediocregopher/radix/v4"
	redsyncModule  = "github.com/go-redsync/redsync/v4"
	etcdModule     = "go.etcd.io/etcd/client/v3"
)

// withoutTLS is the build tag for lockwire without TLS.
const withoutTLS = "lockwire_notls"

func programs() []program {
	return []program{
		{name: "lockwire", kind: "ours", dir: "lockwire", modules: []string{lockwireModule}},
		{name: "lockwire without TLS", kind: "variant", dir: "lockwire", tags: withoutTLS, modules: []string{lockwireModule}},
		{name: "the command lockwire", kind: "variant", dir: "lockwire", modules: []string{lockwireModule}, command: commandPackage},
		{name: "the command lockwire without TLS", kind: "variant", dir: "lockwire", tags: withoutTLS, modules: []string{lockwireModule}, command: commandPackage},
		{name: "radix", kind: "peer", dir: "radix", modules: []string{radixModule}},
		{name: "redigo", kind: "peer", dir: "redigo", modules: []string{redigoModule}},
		{name: "redsync on redigo", kind: "peer", dir: "redsync-redigo", modules: []string{redsyncModule, redigoModule}},
		{name: "rueidis", kind: "peer", dir: "rueidis", modules: []string{rueidisModule}},
		{name: "rueidislock", kind: "peer", dir: "rueidislock", modules: []string{rueidisModule}},
		{name: "go-redis", kind: "peer", dir: "goredis", modules: []string{goredisModule}},
		{name: "redislock", kind: "peer", dir: "redislock", modules: []string{"github.com/bsm/redislock", goredisModule}},
		{name: "redsync on go-redis", kind: "peer", dir: "redsync-goredis", modules: []string{redsyncModule, goredisModule}},
		{name: "etcd", kind: "peer", dir: "etcd", tags: "etcd", modules: []string{etcdModule}, etcd: true},
		{name: "net and crypto/tls alone", kind: "floor", dir: "bare"},
	}
}

// errUnchanged: the program's tags make no difference.
var errUnchanged = errors.New("footprint: the build tag changes nothing")

// build builds a program in a new module below dir, and returns its path and the facts known without a run. The module of the
// benchmarks is in bench.
func (p program) build(bench, dir string) (binary string, numbers map[string]float64, err error) {
	if err := p.layOut(bench, dir); err != nil {
		return "", nil, err
	}
	binary = filepath.Join(dir, "program")
	what := cmp.Or(p.command, ".")
	if _, err := p.goTool(dir, "build", "-mod=mod", "-trimpath", "-ldflags=-s -w", "-o", binary, what); err != nil {
		return "", nil, err
	}
	packages, err := p.goTool(dir, "list", "-mod=mod", "-deps", "-f", "{{.Standard}} {{.ImportPath}} {{with .Module}}{{.Path}}{{end}}", what)
	if err != nil {
		return "", nil, err
	}
	if p.tags == withoutTLS && slices.Contains(packages, "true crypto/tls ") {
		return "", nil, errUnchanged
	}
	all, err := p.goTool(dir, "list", "-mod=mod", "-m", "all")
	if err != nil {
		return "", nil, err
	}
	size, err := os.Stat(binary)
	if err != nil {
		return "", nil, err
	}
	foreign, linked := 0, map[string]bool{}
	for _, line := range packages {
		words := strings.Fields(line)
		if len(words) == 3 && words[0] == "false" && words[2] != consumer {
			foreign++
			linked[words[2]] = true
		}
	}
	return binary, map[string]float64{
		binaryKiB: float64(size.Size()) / 1024, otherModules: float64(len(all) - 1), "of them linked": float64(len(linked)),
		"packages": float64(len(packages)), "of them foreign": float64(foreign),
	}, nil
}

// consumer is the name of the program's module.
const consumer = "consumer"

// layOut writes the module: the program, the package shared by all programs, and go.mod.
func (p program) layOut(bench, dir string) error {
	if err := os.MkdirAll(filepath.Join(dir, "probe"), 0o755); err != nil {
		return err
	}
	for from, to := range map[string]string{
		filepath.Join("footprint", "programs", p.dir, "main.go"): "main.go",
		filepath.Join("footprint", "probe", "probe.go"):          filepath.Join("probe", "probe.go"),
	} {
		text, err := os.ReadFile(filepath.Join(bench, from))
		if err != nil {
			return err
		}
		text = bytes.ReplaceAll(text, []byte("github.com/lockwire/lockwire/bench/footprint/probe"), []byte(consumer+"/probe"))
		if err := os.WriteFile(filepath.Join(dir, to), text, 0o644); err != nil {
			return err
		}
	}
	sums, err := os.ReadFile(filepath.Join(bench, "go.sum"))
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "go.sum"), sums, 0o644); err != nil {
		return err
	}
	text, err := p.goMod(bench)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "go.mod"), text, 0o644)
}

// goMod requires the versions used by the benchmarks.
func (p program) goMod(bench string) ([]byte, error) {
	var b bytes.Buffer
	fmt.Fprintf(&b, "module %s\n\ngo 1.26.0\n\n", consumer)
	for _, m := range p.modules {
		if m == lockwireModule {
			root, err := filepath.Abs(filepath.Join(bench, ".."))
			if err != nil {
				return nil, err
			}
			fmt.Fprintf(&b, "require %s v0.0.0\n\nreplace %s => %q\n", m, m, root)
			continue
		}
		version, err := p.goTool(bench, "list", "-m", "-f", "{{.Version}}", m)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&b, "require %s %s\n", m, version[0])
	}
	return b.Bytes(), nil
}

// goTool runs the go command and returns the lines of its output, with single spaces.
func (p program) goTool(dir string, args ...string) ([]string, error) {
	if p.tags != "" && (args[0] == "build" || slices.Contains(args, "-deps")) {
		args = slices.Insert(args, 1, "-tags="+p.tags)
	}
	cmd := exec.Command("go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("footprint: go %s: %w: %s", args[0], err, strings.TrimSpace(stderr.String()))
	}
	return strings.Split(strings.TrimRight(string(out), "\n"), "\n"), nil
}
