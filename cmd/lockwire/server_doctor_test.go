//go:build unix

package main

import (
	"slices"
	"strings"
	"testing"

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
