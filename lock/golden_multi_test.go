package lock_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockwire/lockwire/lock"
)

// goldenMulti is a lock of the names that a file has with commas between.
type goldenMulti struct{ *lock.Multi }

func openMulti(c *lock.Client, list string) goldenLock {
	m, err := lock.NewMulti(reentrants(c, strings.Split(list, ",")...)...)
	if err != nil {
		panic(err)
	}
	return goldenMulti{m}
}

func (m goldenMulti) Info(ctx context.Context) (lock.Info, error) {
	infos, err := m.Multi.Info(ctx)
	return infos[0], err
}

// TestGoldenRedlock replays red.txt with each of its locks on a server of its own, since a Redlock on one server is refused.
// Redisson's waits for the second lock while it could have the others, and gives the first a lease that nobody asked for;
// ours has its majority at once. What follows from that differs until call 5. (§13: the locks are asked one after another,
// each for a part of the wait.)
func TestGoldenRedlock(t *testing.T) {
	_, _, steps := readGolden(t, "red.txt")
	ours := map[string]goldenStep{
		"2": {results: map[string]string{"2": "locked"}, keys: []string{"hash r:1 30000 A=1", "hash r:2 30000 A=1", "hash r:3 30000 A=1"}},
		"3": {results: map[string]string{"3": "false"}, keys: []string{"hash r:1 30000 A=1", "hash r:2 30000 A=1", "hash r:3 30000 A=1"}},
		"4": {results: map[string]string{"4": "unlocked"}, keys: []string{"hash r:2 30000 A=1"}},
		"5": {results: map[string]string{"5": "unlocked"}},
	}
	inFleet(t, 3, func(t *testing.T, f fleet) {
		callers := map[string]process{"A": f.process(lock.Config{}), "B": f.process(lock.Config{})}
		leases := map[string]*lock.Lease{}
		for _, step := range steps {
			if differs, ok := ours[step.number]; ok {
				step.results, step.keys = differs.results, differs.keys
			}
			got := redCall(t, callers[step.call[0][:1]], leases, step.call)
			if want := step.results[step.number]; got != want {
				t.Errorf("line %d, %v: returned %q, want %q", step.line, step.call, got, want)
			}
			time.Sleep(250 * time.Millisecond)
			synctest.Wait()
			var want []string
			for _, line := range step.keys {
				want = append(want, strings.NewReplacer("A1=", "A=", "A2=", "A=", "B1=", "B=").Replace(line))
			}
			if keys := f.redKeys(callers); !matches(keys, want) {
				t.Errorf("line %d, %v: the servers have\n\t%q\nwant\n\t%q", step.line, step.call, keys, want)
			}
		}
		f.free()
	})
}

// redCall does what a line of the file says.
func redCall(t *testing.T, p process, leases map[string]*lock.Lease, call []string) string {
	var nodes []lock.Member
	for i, name := range []string{"r:1", "r:2", "r:3"} {
		nodes = append(nodes, p[i].Reentrant(name))
	}
	r, err := lock.NewRedlock(lock.RedlockConfig{}, nodes...)
	if err != nil {
		t.Fatal(err)
	}
	c := goldenCall{method: call[1], caller: call[0], name: call[2], args: call[3:]}
	var lease *lock.Lease
	result := "locked"
	switch c.method {
	case "lock":
		lease, err = p[1].Reentrant(c.name).Lock(t.Context(), lock.For(c.ms(0)))
	case "redlock":
		lease, err = r.Lock(t.Context(), lock.For(c.ms(0)))
	case "tryredlock":
		ctx, cancel := context.WithTimeout(t.Context(), c.ms(0))
		defer cancel()
		lease, err = r.Lock(ctx, lock.For(c.ms(1)))
		result = fmt.Sprint(err == nil)
		err = nil
	case "unlock", "unredlock":
		result, err = "unlocked", leases[c.caller].Unlock(t.Context())
	}
	if err != nil {
		return "error " + err.Error()
	}
	leases[c.caller] = lease
	return result
}

// redKeys are the locks on the servers, whose holders are named for the process that they are of.
func (f fleet) redKeys(callers map[string]process) (lines []string) {
	for i, w := range f {
		keys, _ := w.srv.Do("KEYS", "*").([]any)
		for _, k := range keys {
			name := k.(string)
			hash, _ := w.srv.Do("HGETALL", name).([]any)
			line := fmt.Sprintf("hash %s %v", name, w.srv.Do("PTTL", name))
			for j := 0; j+1 < len(hash); j += 2 {
				for caller, p := range callers {
					if strings.HasPrefix(hash[j].(string), p[i].ID()+":") {
						line += fmt.Sprintf(" %s=%v", caller, hash[j+1])
					}
				}
			}
			lines = append(lines, line)
		}
	}
	slices.Sort(lines)
	return lines
}
