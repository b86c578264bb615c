//go:build unix

package main

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockwire/lockwire/internal/redistest"
	"github.com/lockwire/lockwire/resp"
)

func TestServerDoctor(t *testing.T) {
	s := redistest.Start(t, redistest.Options{Users: []redistest.User{
		{Name: "orders", Password: "pw", Rules: "~orders* ~{orders* ~redisson_* ~lockwire_* &redisson_* &lockwire_* +@all"},
	}})
	s.Do("HSET", "endless", "0a1b2c3d-0000-0000-0000-000000000000:1", "1")
	s.Do("SET", "{gone}:0a1b2c3d-0000-0000-0000-000000000000:1:rwlock_timeout:1", "1", "EX", "1000")
	s.Do("RPUSH", "redisson_lock_queue:{queue}", "0a1b2c3d-0000-0000-0000-000000000000:2")
	s.Do("ZADD", "redisson_lock_timeout:{queue}", "1000", "0a1b2c3d-0000-0000-0000-000000000000:2")
	s.Do("CONFIG", "SET", "maxmemory", "1gb")
	s.Do("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
	r := do(t, s.URL(), "doctor", "-o", "json")
	r.check(t, 0, "1 leases of readers", "1 queues of free Fair locks")
	levels := map[string]string{}
	for _, f := range decode(t, r.stdout) {
		levels[f["check"].(string)] = f["level"].(string)
	}
	for check, want := range map[string]string{
		"version": "ok", "eviction": "warn", "persistence": "info", "replication": "info", "clock": "ok",
		"kind fenced": "ok", "kind permit": "ok", "kind read": "ok", "leases": "warn", "remains": "info",
		"kind nonreentrantfair": "ok", "kind fastermulti": "ok", "kind semaphore": "ok", "kind latch": "ok",
	} {
		if levels[check] != want {
			t.Errorf("%s: %q, want %q; %s", check, levels[check], want, r.stdout)
		}
	}
	s.Do("CONFIG", "SET", "maxmemory-policy", "noeviction")
	do(t, s.URL(), "doctor").check(t, 0, "LEVEL", "the lock endless has no lease")
	user := strings.Replace(s.URL(), "redis://", "redis://orders:pw@", 1)
	do(t, user, "doctor", "--prefix", "other:", "--scan=false").check(t, 77, "kind fenced")
	do(t, user, "doctor", "--prefix", "orders:", "--scan=false").check(t, 0, "kind fenced")
	do(t, s.URL(), "doctor", "--prefix", "{orders}:", "--scan=false").check(t, 0, "not tried")
	s.Do("SET", "orders:semaphore", "7")
	s.Do("SET", "orders:latch", "7")
	do(t, s.URL(), "doctor", "--prefix", "orders:", "--scan=false").check(t, 0, "the name is in use")
	keys, err := resp.As[[]string](s.Do("KEYS", "*orders*"), nil)
	keys = slices.DeleteFunc(keys, func(key string) bool { return strings.HasPrefix(key, "redisson_lock_token:") })
	if slices.Sort(keys); err != nil || !slices.Equal(keys, []string{"orders:latch", "orders:semaphore"}) {
		t.Errorf("doctor leaves %q behind: %v", keys, err)
	}
}

// A user with the rights for one kind passes the examination of that kind, whatever else the examination would like to read.
func TestServerDoctorOfOneKind(t *testing.T) {
	common, row := rulesOf(t, "`Reentrant`, `NonReentrant`, `Spin`")
	s := redistest.Start(t, redistest.Options{Users: []redistest.User{{Name: "orders", Password: "pw", Rules: common + " " + row}}})
	user := strings.Replace(s.URL(), "redis://", "redis://orders:pw@", 1)
	r := do(t, user, "doctor", "--prefix", "orders:", "--kinds", "reentrant,nonreentrant,spin", "-o", "json")
	r.check(t, 0)
	for _, f := range decode(t, r.stdout) {
		check, level, want := f["check"].(string), f["level"].(string), "ok"
		if check == "info" || check == "leases" || check == "remains" {
			want = "info"
		}
		if level != want {
			t.Errorf("%s: %s, want %s: %s", check, level, want, f["text"])
		}
	}
	do(t, user, "doctor", "--prefix", "orders:", "--kinds", "reentrant,fair").check(t, 77, "kind fair", "not examined: ")
	do(t, user, "doctor", "--prefix", "orders:").check(t, 77)
	do(t, user, "status", "other").check(t, 77, "", `!lockwire status: lock "other": NOPERM `, "!lockwire status: OPERATIONS.md has the rules for users; ")
	do(t, s.URL(), "doctor", "--kinds", "reentrant,lease").check(t, 64, `!"lease" is none of fenced, `)
}

// A missing right to a command inside a script is a missing right, whatever the server says.
func TestServerNotPermittedInAScript(t *testing.T) {
	redistest.Run(t, func(t *testing.T, srv *redistest.Server) {
		s := redistest.Start(t, redistest.Options{
			Binary: srv.Binary(), Users: []redistest.User{{Name: "orders", Password: "pw", Rules: "~* +@all -hset -hincrby -type"}},
		})
		user := strings.Replace(s.URL(), "redis://", "redis://orders:pw@", 1)
		const advice = "OPERATIONS.md has the rules for users; "
		do(t, user, "status", "job").check(t, 77, "", "!"+advice)
		do(t, user, "run", "job", "-n", "--", "true").check(t, 77, "", "!"+advice)
		do(t, user, "doctor", "--kinds", "reentrant", "--scan=false").check(t, 77, "kind reentrant")
	})
}

// A user without channels is told which rule is missing.
func TestServerDoctorChannels(t *testing.T) {
	s := redistest.Start(t, redistest.Options{Users: []redistest.User{{Name: "orders", Password: "pw", Rules: "~* resetchannels +@all"}}})
	if !s.AtLeast(7, 0) {
		return // a user has all channels by default, and scripts cannot ask for rights
	}
	user := strings.Replace(s.URL(), "redis://", "redis://orders:pw@", 1)
	do(t, user, "doctor", "--kinds", "reentrant", "--scan=false").check(t, 0, "waiters are not woken by releases", "missing ACL rule &redisson_lock__channel:*")
}

// rulesOf returns the rules for all users and those of a row of OPERATIONS.md.
func rulesOf(t *testing.T, kinds string) (common, row string) {
	t.Helper()
	text, err := os.ReadFile("../../OPERATIONS.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(text), "```acl\n")
	common, rest, end := strings.Cut(rest, "```")
	_, rest, found := strings.Cut(rest, "\n| "+kinds+" |")
	row, _, _ = strings.Cut(rest, "\n")
	if !ok || !end || !found {
		t.Fatal("OPERATIONS.md has no such rules")
	}
	return strings.Join(strings.Fields(common), " "), strings.Join(strings.Fields(strings.NewReplacer("|", " ", "`", " ").Replace(row)), " ")
}

func TestDifference(t *testing.T) {
	for _, tt := range []struct {
		ahead       time.Duration
		level, text string
	}{
		{time.Millisecond, "ok", "agree"},
		{-time.Millisecond, "ok", "agree"},
		{300 * time.Millisecond, "ok", "the server's is ahead of this machine's by 300ms"},
		{-300 * time.Millisecond, "ok", "this machine's is ahead of the server's by 300ms"},
		{3 * time.Second, "warn", "the server's is ahead of this machine's by 3s"},
		{-3 * time.Second, "warn", "this machine's is ahead of the server's by 3s: "},
	} {
		if level, text := difference(tt.ahead, 2*time.Millisecond); level != tt.level || !strings.Contains(text, tt.text) {
			t.Errorf("%v: %s, %s, want %s, %s", tt.ahead, level, text, tt.level, tt.text)
		}
	}
}

// A node of a cluster is no single server.
func TestServerDoctorOfANode(t *testing.T) {
	c := redistest.StartCluster(t, redistest.Options{})
	url := "redis://" + c.Addrs()[0]
	do(t, url, "doctor", "--scan=false", "--kinds", "plain").check(t, 1, "write redis-cluster:// in place of redis://")
	do(t, "redis-cluster://"+c.Addrs()[0], "doctor", "--scan=false").check(t, 0, "kind fenced")
}

// A replica that does not answer is found by WAIT.
func TestServerDoctorReplica(t *testing.T) {
	s := redistest.Start(t, redistest.Options{})
	s.Do("CONFIG", "SET", "repl-diskless-sync-delay", "0")
	replica := redistest.Start(t, redistest.Options{})
	host, port, _ := strings.Cut(strings.TrimPrefix(s.URL(), "redis://"), ":")
	replica.Do("REPLICAOF", host, strings.TrimSuffix(port, "/"))
	await(t, "the replica is online", func() bool {
		info, _ := s.Do("INFO", "replication").Text()
		return strings.Contains(info, "state=online")
	})
	do(t, s.URL(), "doctor", "--scan=false").check(t, 0, "all 1 replicas acknowledge")
	replica.Pause()
	s.Do("SET", "unacknowledged", "1")
	do(t, s.URL(), "doctor", "--scan=false").check(t, 0, "0 of 1 replicas acknowledge within 1s")
}
