//go:build unix

package main

import (
	"strings"
	"syscall"
	"testing"

	"github.com/lockwire/lockwire/internal/redistest"
)

func TestServerShow(t *testing.T) {
	s := redistest.Start(t, redistest.Options{})
	do(t, s.URL(), "list").check(t, 0, "NAME")
	do(t, s.URL(), "status", "job").check(t, 0, "job: free\n")
	do(t, s.URL(), "status", "-o", "text", "--", "-job", "--other").check(t, 0, "-job: free\n", "--other: free\n")
	s.Do("RPUSH", "todo", "text")
	do(t, s.URL(), "status", "todo").check(t, 0, "todo: no lock: the key holds something else\n")
	do(t, s.URL(), "wait", "todo").check(t, 1, "", "!todo: no lock: the key holds something else")
	do(t, s.URL(), "status", "todo", "-o", "json").check(t, 0, `"kind":"other","held":false`)
	do(t, s.URL(), "wait", "job").check(t, 0)
	watcher := startJob(t, s.URL(), "watch", "j*", "--every", "20ms", "-o", "json")
	holder := startHeld(t, s.URL(), "run", "job", "--", "sh", "-c", "echo $LOCKWIRE_OWNER; cat")
	owner := holder.line()
	other := startHeld(t, s.URL(), "run", "other", "--kind", "permit", "--permits", "2", "--", "sh", "-c", "echo ready; cat")
	other.line()
	if line := watcher.line(); !strings.Contains(line, owner) {
		t.Errorf("watch: %s", line)
	}
	list := do(t, s.URL(), "list", "-o", "json")
	if all := decode(t, list.stdout); len(all) != 2 || all[0]["name"] != "job" || all[0]["held"] != true || all[1]["kind"] != "permits" {
		t.Errorf("list: %+v", list)
	}
	do(t, s.URL(), "list", "j*").check(t, 0, owner)
	if r := do(t, s.URL(), "list", "o*"); strings.Contains(r.stdout, owner) || !strings.Contains(r.stdout, "1 of 2 permits free") {
		t.Errorf("list: %+v", r)
	}
	status := do(t, s.URL(), "status", "job", "-o", "json")
	if all := decode(t, status.stdout); len(all) != 1 || all[0]["processes"] == nil {
		t.Errorf("status: %+v", status)
	}
	do(t, s.URL(), "status", "job", "other").check(t, 0, "job: held\n", "holder     "+owner, "process ", "other: held", "1 of 2 free")
	s.Do("SET", "redisson_unlock_latch:{job}:1", "1", "PX", "3600000")
	do(t, s.URL(), "status", "job", "--latches").check(t, 0, "latch      redisson_unlock_latch:{job}:1, for ")
	do(t, s.URL(), "status", "job", "--latches", "-o", "json").check(t, 0, `"latches":[{"key":"redisson_unlock_latch:{job}:1","remaining_ms":`)
	if r := do(t, s.URL(), "status", "job"); strings.Contains(r.stdout, "latch") {
		t.Errorf("status without --latches: %+v", r)
	}
	do(t, s.URL(), "held").check(t, 0, owner, "other")
	do(t, s.URL(), "held", owner, "-o", "json").check(t, 0, `"connected":true`)
	if r := do(t, s.URL(), "held", "no-such-process", "-o", "json"); r != (result{}) {
		t.Errorf("held: %+v", r)
	}
	do(t, s.URL(), "wait", "job", "--timeout", "50ms").check(t, 75, "", "!still held")
	do(t, s.URL(), "wait", "job", "--timeout", "0s").check(t, 75, "", "!still held")
	do(t, s.URL(), "wait", "job", "--timeout", "-1s").check(t, 64, "", "!not a duration such as 5s")

	waiter := startJob(t, s.URL(), "wait", "job")
	do(t, s.URL(), "release", "job").check(t, 64, "", "!--owner is missing")
	do(t, s.URL(), "release", "job", "--owner", owner+"0").check(t, 1, "", "!does not have the lock")
	do(t, s.URL(), "release", "job", "--owner", owner, "-o", "json").check(t, 0, `"released":true`)
	holder.end().check(t, 76, "", "!lost")
	waiter.end().check(t, 0)
	if line := watcher.line(); !strings.Contains(line, `"event":"released"`) || !strings.Contains(line, owner) {
		t.Errorf("watch: %s", line)
	}
	watcher.signal(syscall.SIGINT)
	watcher.end().check(t, 130)
	other.release()
	other.end().check(t, 0)
}

// The end of a lock is told by its reason where the server publishes events of keys.
func TestServerWatch(t *testing.T) {
	s := redistest.Start(t, redistest.Options{})
	s.Do("CONFIG", "SET", "notify-keyspace-events", "Kg$hxe")
	holder := startHeld(t, s.URL(), "run", "job", "--", "sh", "-c", "echo $LOCKWIRE_OWNER; cat")
	owner := holder.line()
	watcher := startJob(t, s.URL(), "watch", "j*", "-o", "json", "--every", "1h")
	if line := watcher.line(); !strings.Contains(line, `"event":"held"`) || !strings.Contains(line, owner) {
		t.Errorf("watch: %s", line)
	}
	do(t, s.URL(), "release", "job", "--owner", owner).check(t, 0)
	if line := watcher.line(); !strings.Contains(line, `"event":"forced"`) || !strings.Contains(line, owner) {
		t.Errorf("watch: %s", line)
	}
	holder.end().check(t, 76, "", "!lost")
	watcher.signal(syscall.SIGINT)
	watcher.end().check(t, 130)
}

// A number is a semaphore or a latch: neither held nor free, and nothing to wait for.
func TestServerStatusOfANumber(t *testing.T) {
	s := redistest.Start(t, redistest.Options{})
	s.Do("SET", "calls", "0")
	r := do(t, s.URL(), "status", "calls")
	r.check(t, 0, "calls: 0\n", "the permits left of a Semaphore, or the count of a CountDownLatch")
	if strings.Contains(r.stdout, "free") {
		t.Errorf("status says free: %s", r.stdout)
	}
	do(t, s.URL(), "wait", "calls").check(t, 1, "", "!calls: no lock: the key holds a number")
}
