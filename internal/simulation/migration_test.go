package simulation

import (
	"strings"
	"testing"
	"time"

	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/lock"
)

// refuses has all servers refuse scripts for a while, as the nodes of a migrating slot do that have not all keys.
func (f *fleet) refuses(length time.Duration) {
	until := time.Now().Add(length)
	for _, s := range f.servers {
		s.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
			if strings.HasPrefix(cmd.Name, "EVAL") && time.Now().Before(until) {
				return fakeredis.Reply("-TRYAGAIN Multiple keys request during rehashing of slot\r\n")
			}
			return fakeredis.Run()
		})
	}
}

// A lease counts from the attempt that was granted, and not from attempts that the nodes of a migrating slot have refused before.
func TestLeaseCountsFromTheLastAttempt(t *testing.T) {
	for name, take := range map[string]func(t *testing.T, f *fleet) (*lock.Lease, error){
		"TryLock": func(t *testing.T, f *fleet) (*lock.Lease, error) {
			f.refuses(2 * time.Second)
			return f.client.Reentrant("mylock").TryLock(t.Context())
		},
		"Downgrade": func(t *testing.T, f *fleet) (*lock.Lease, error) {
			write, err := f.client.ReadWrite("mylock").Write().Lock(t.Context())
			if err != nil {
				return nil, err
			}
			f.refuses(2 * time.Second)
			return write.Downgrade(t.Context())
		},
	} {
		t.Run(name, func(t *testing.T) {
			inFleet(t, lock.Config{Lease: 6 * time.Second}, func(t *testing.T, f *fleet) {
				begin := time.Now()
				lease, err := take(t, f)
				if err != nil {
					t.Fatal(err)
				}
				if took := time.Since(begin); took < 2*time.Second {
					t.Fatalf("granted after %v, while scripts were refused", took)
				}
				if left := time.Until(lease.ValidUntil()); left < 5*time.Second {
					t.Errorf("%v are left of a lease of 6s", left)
				}
				if err := lease.Unlock(t.Context()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
