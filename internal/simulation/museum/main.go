// Museum runs the simulation against code with a known fault, for each fault in turn, and prints the number of seeds until the
// discovery. A fault is a file: a line that describes the fault; for a fault hidden from the simulation, a line with the
// package and the test that find the fault; then for each place the file of the code, the present text, which must be unique
// there, and the replacement.
//
//	# description of the fault
//	@ ./lock ^TestThatFindsIt$
//	=== lock/lease.go
//	the present text
//	--- becomes
//	the faulty text
//	===
//
// A further place begins with === and its file again.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

func main() {
	seeds := flag.Int("seeds", 150, "how many seeds a fault may take to be found")
	root := flag.String("root", ".", "the root of the repository")
	only := flag.String("only", "", "only faults whose names match this pattern of filepath.Match")
	flag.Parse()
	missed, err := visit(*root, *only, *seeds)
	if err != nil {
		fmt.Fprintln(os.Stderr, "museum:", err)
		os.Exit(1)
	}
	if missed > 0 {
		fmt.Fprintf(os.Stderr, "museum: %d faults were not found\n", missed)
		os.Exit(1)
	}
}

// visit runs all faults, and returns how many were not found.
func visit(root, only string, seeds int) (missed int, err error) {
	if root, err = filepath.Abs(root); err != nil {
		return 0, err
	}
	names, err := filepath.Glob(filepath.Join(root, "internal/simulation/museum/faults/*.txt"))
	if err != nil {
		return 0, err
	}
	fmt.Printf("%-28s %-32s %-6s %s\n", "fault", "found by", "seeds", "as")
	for _, name := range names {
		title := strings.TrimSuffix(filepath.Base(name), ".txt")
		if match, err := filepath.Match(only, title); only != "" && (err != nil || !match) {
			continue
		}
		found, err := try(root, name, seeds)
		switch {
		case err != nil:
			return missed, fmt.Errorf("%s: %w", title, err)
		case found.as == "":
			missed++
			fmt.Printf("%-28s %-32s %-6s %s\n", title, "NOT FOUND", "", "")
		default:
			fmt.Printf("%-28s %-32s %-6s %s\n", title, found.by, found.seeds, found.as)
		}
	}
	return missed, nil
}

// verdict is the finder of a fault; as is "" for an undiscovered fault.
type verdict struct{ by, seeds, as string }

// violation is the test's output about the first violation; earlier seeds have found nothing.
var violation = regexp.MustCompile(`(?m)^ +\S+: seed (\d+): (.*)$`)

// try runs a fault.
func try(root, name string, seeds int) (found verdict, err error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return found, err
	}
	dir, err := os.MkdirTemp("", "museum")
	if err != nil {
		return found, err
	}
	defer os.RemoveAll(dir)
	overlay, err := write(root, dir, string(text))
	if err != nil {
		return found, err
	}
	pkg, args := "./internal/simulation", []string{fmt.Sprint("-seeds=", seeds), "-stop", "-test.run=^TestSimulation$"}
	test := finder.FindStringSubmatch(string(text))
	if test != nil {
		pkg, args = test[1], []string{"-test.run=" + test[2]}
	}
	binary := filepath.Join(dir, "museum.test")
	build := exec.Command("go", "test", "-overlay", overlay, "-c", "-o", binary, pkg)
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		return found, fmt.Errorf("%w: %s", err, out)
	}
	run := exec.Command(binary, args...)
	run.Dir = filepath.Join(root, pkg)
	out, err := run.CombinedOutput()
	switch {
	case strings.Contains(string(out), "no tests to run"):
		return found, fmt.Errorf("%s has no %s", pkg, args[0])
	case err == nil:
		return found, nil
	}
	first := shorten(strings.SplitN(string(out), "\n", 2)[0])
	if test != nil {
		return verdict{strings.Trim(test[2], "^$"), "", first}, nil
	}
	if lines := violation.FindSubmatch(out); lines != nil {
		return verdict{"simulation", string(lines[1]), shorten(string(lines[2]))}, nil
	}
	return verdict{"simulation", "", "the end of the program: " + first}, nil
}

// finder is the line with the package and the test that find a fault.
var finder = regexp.MustCompile(`(?m)^@ (\S+) (\S+)$`)

// shorten leaves out the parts that differ from run to run.
func shorten(text string) string {
	const enough = 100
	if len(text) > enough {
		return text[:enough] + "..."
	}
	return text
}

// write writes the faulty files to dir, and the map of files for -overlay.
func write(root, dir, text string) (overlay string, err error) {
	replaced := map[string]string{}
	for _, part := range strings.Split(text, "\n=== ")[1:] {
		name, rest, _ := strings.Cut(part, "\n")
		there, faulty, ok := strings.Cut(strings.TrimSuffix(strings.TrimSuffix(rest, "\n"), "\n===")+"\n", "--- becomes\n")
		if !ok {
			return "", fmt.Errorf("%s: nothing takes the place of the text", name)
		}
		original := filepath.Join(root, name)
		from := original
		if replaced[original] != "" {
			from = replaced[original]
		}
		source, err := os.ReadFile(from)
		if err != nil {
			return "", err
		}
		if n := strings.Count(string(source), there); n != 1 {
			return "", fmt.Errorf("%s: the text that is to be replaced is there %d times, want once", name, n)
		}
		copied := filepath.Join(dir, strings.ReplaceAll(name, "/", "_"))
		if err := os.WriteFile(copied, []byte(strings.Replace(string(source), there, faulty, 1)), 0o600); err != nil {
			return "", err
		}
		replaced[original] = copied
	}
	list, err := json.Marshal(map[string]any{"Replace": replaced})
	if err != nil {
		return "", err
	}
	overlay = filepath.Join(dir, "overlay.json")
	return overlay, os.WriteFile(overlay, list, 0o600)
}
