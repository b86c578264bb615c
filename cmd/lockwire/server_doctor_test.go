//go:build unix

package main

import (
	"strings"
	"testing"

	"github.com/lockwire/lockwire/internal/redistest"
)

func TestServerDoctor(t *testing.T) {
	s := redistest.Start(t, redistest.Options{Users: []redistest.User{
		{Name: "orders", Password: "pw", Rules: "~orders* ~{orders* ~redisson_* ~lockwire_* &redisson_* &lockwire_* +@all"},
	}})
	s.Do("HSET", "endless", "0a1b2c3d-0000-0000-0000-000000000000:1", "1")
	s.Do("SET", "{gone}:0a1b2c3d-0000-0000-0000-000000000000:1:rwlock_timeout:1", "1", "EX", "1000")
	s.Do("CONFIG", "SET", "maxmemory", "1gb")
	s.Do("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
	r := do(t, s.URL(), "doctor", "-o", "json")
	r.check(t, 0)
	levels := map[string]string{}
	for _, f := range decode(t, r.stdout) {
		levels[f["check"].(string)] = f["level"].(string)
	}
	for check, want := range map[string]string{
		"version": "ok", "eviction": "warn", "persistence": "info", "replication": "info", "clock": "ok",
		"kind fenced": "ok", "kind permit": "ok", "kind read": "ok", "leases": "warn", "remains": "info",
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
}
