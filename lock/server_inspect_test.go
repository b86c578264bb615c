package lock_test

import (
	"testing"
	"time"

	"github.com/lockwire/lockwire/internal/redistest"
	"github.com/lockwire/lockwire/lock"
)

// On a real server: a name leads to the holder and its process, and the owner alone can be forced out.
func TestServerInspect(t *testing.T) {
	redistest.RunProtocols(t, func(t *testing.T, s *redistest.Server, _ int) {
		var clients [2]*lock.Client
		for i, name := range []string{"web-7", "on-call"} {
			c, err := lock.New(redistest.Open(t, s.Config()), lock.Config{Name: name})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			clients[i] = c
		}
		mine, c := clients[0], clients[1]
		for kind, take := range leasedKinds(t, mine) {
			if kind == "fastermulti" {
				continue // Inspect does not know the kind
			}
			name := "job"
			if kind == "permits" {
				name = kind
			}
			lease, err := take(t.Context(), lock.For(time.Minute))
			if err != nil {
				t.Fatal(kind, err)
			}
			if err := lease.Extend(t.Context(), time.Hour); err != nil {
				t.Errorf("%s: Extend() = %v", kind, err)
			}
			seen, err := c.Inspect(t.Context(), name)
			if err != nil || len(seen.Info.Holders) != 1 || seen.Info.Holders[0].Owner != lease.Owner() || seen.Info.Holders[0].Remaining < 50*time.Minute {
				t.Fatalf("%s: Inspect() = %+v, %v", kind, seen, err)
			}
			if kind != "plain" && kind != "permits" && (len(seen.Clients) != 1 || seen.Clients[0].Name != "web-7" || seen.Clients[0].Addr == "") {
				t.Errorf("%s: clients %+v, %v", kind, seen.Clients, seen.ClientsErr)
			}
			if forced, err := c.ForceUnlockOwner(t.Context(), name, c.NewOwner().String()); forced || err != nil {
				t.Errorf("%s: ForceUnlockOwner() of another owner = %v, %v", kind, forced, err)
			}
			if err := lease.Check(t.Context()); err != nil {
				t.Errorf("%s: Check() = %v", kind, err)
			}
			if forced, err := c.ForceUnlockOwner(t.Context(), name, lease.Owner()); !forced || err != nil {
				t.Errorf("%s: ForceUnlockOwner() = %v, %v", kind, forced, err)
			}
			wantErr(t, kind+": Check()", lease.Check(t.Context()), lock.ErrLost)
			s.Do("DEL", "redisson_lock_token:{job}")
		}
	})
}
