package simulation

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The documentation still speaks of each exclusion.
func TestExclusionsAreDocumented(t *testing.T) {
	for _, e := range exclusions {
		text, err := os.ReadFile(filepath.Join("../..", e.file))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), e.mark) {
			t.Errorf("%s: %s does not mention %q any more; it said: %s", e.name, e.file, e.mark, e.sentence)
		}
	}
}
