package conn

import (
	"slices"
	"strings"
	"sync"
)

// maxTitles limits the names that users of a Pool add to the name of its connections.
const maxTitles = 16

// titles are the names that users of a Pool have added to the name of its connections.
type titles struct {
	mu   sync.Mutex // guards the following
	list []*string
}

// join returns base followed by the titles, separated by commas. The receiver may be nil.
func (t *titles) join(base string) string {
	if t == nil {
		return base
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	names := []string{base}
	for _, title := range t.list {
		names = append(names, *title)
	}
	return strings.TrimPrefix(strings.Join(names, ","), ",") // without a base
}

func (t *titles) add(name string) (remove func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.list) == maxTitles {
		return func() {}
	}
	key := &name
	t.list = append(t.list, key)
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.list = slices.DeleteFunc(t.list, func(other *string) bool { return other == key })
	}
}
