package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// atLeast is how many faults there are to be.
const atLeast = 40

// Each fault can be put into today's code.
func TestMuseumApplies(t *testing.T) {
	names, err := filepath.Glob("faults/*.txt")
	if err != nil || len(names) < atLeast {
		t.Fatalf("%d faults, %v, want %d", len(names), err, atLeast)
	}
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if test := finder.FindStringSubmatch(string(text)); test != nil && !hasTest(t, filepath.Join(root, test[1]), strings.Trim(test[2], "^$")) {
			t.Errorf("%s: %s has no %s", name, test[1], test[2])
		}
		if _, err := write(root, t.TempDir(), string(text)); err != nil {
			t.Errorf("%s: %v; write the fault anew for the code as it is, or leave it out if it cannot be any more", name, err)
		}
	}
}

// hasTest reports whether a package has a test.
func hasTest(t *testing.T, dir, test string) bool {
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), "\nfunc "+test+"(") {
			return true
		}
	}
	return false
}
