package redistest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
)

// Binary is a server program.
type Binary struct {
	Path    string
	Product string // "redis" or "valkey"
	Version string // "7.0.15"
}

// String is the product and version: redis-7.0.15.
func (b Binary) String() string { return b.Product + "-" + b.Version }

// AtLeast reports whether the version is major.minor or newer. Valkey goes on from Redis 7.2, so the same numbers serve for
// features of both.
func (b Binary) AtLeast(major, minor int) bool {
	have := strings.SplitN(b.Version, ".", 3)
	first, _ := strconv.Atoi(have[0])
	second, _ := strconv.Atoi(have[1])
	return first > major || first == major && second >= minor
}

// findBinaries looks once for each process. An empty result is no error; a program that was named and cannot be run is.
var findBinaries = sync.OnceValues(func() ([]Binary, error) {
	return lookBinaries(os.Getenv("LOCKWIRE_REDIS_SERVER"))
})

// lookBinaries asks each program of a list for its version; without a list, the programs with the usual names in PATH.
func lookBinaries(list string) ([]Binary, error) {
	var found []Binary
	for path := range strings.SplitSeq(list, ",") {
		if path = strings.TrimSpace(path); path == "" {
			continue
		}
		bin, err := askVersion(path)
		if err != nil {
			return nil, err
		}
		found = append(found, bin)
	}
	if len(found) > 0 {
		return found, nil
	}
	for _, name := range []string{"redis-server", "valkey-server"} {
		if path, err := exec.LookPath(name); err == nil {
			bin, err := askVersion(path)
			return []Binary{bin}, err
		}
	}
	return nil, nil
}

var versionLine = regexp.MustCompile(`(?i)(redis|valkey) server v=(\d+\.\d+\S*)`)

func askVersion(path string) (Binary, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return Binary{}, err
	}
	if !strings.ContainsRune(path, filepath.Separator) {
		if abs, err = exec.LookPath(path); err != nil {
			return Binary{}, fmt.Errorf("redistest: %w", err)
		}
	}
	out, err := exec.Command(abs, "--version").CombinedOutput()
	if err != nil {
		return Binary{}, fmt.Errorf("redistest: %s --version: %w: %s", abs, err, out)
	}
	m := versionLine.FindStringSubmatch(string(out))
	if m == nil {
		return Binary{}, fmt.Errorf("redistest: %s --version: %q is not what a Redis or Valkey server says", abs, out)
	}
	return Binary{Path: abs, Product: strings.ToLower(m[1]), Version: m[2]}, nil
}
