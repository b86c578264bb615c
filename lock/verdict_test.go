package lock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/lockwire/lockwire/lock"
)

// endsAt is a context that ends when asked for the n-th time whether it has ended.
type endsAt struct {
	context.Context
	n   *int
	end func()
}

func (e endsAt) Err() error {
	if *e.n--; *e.n == 0 {
		e.end()
	}
	return e.Context.Err()
}

// Servers without an answer never cause ErrNotAcquired, whenever the context ends: between two attempts too.
func TestSilentServersAreNoRefusal(t *testing.T) {
	for kind, of := range map[string]func(t *testing.T, p process) locker{
		"Redlock": func(t *testing.T, p process) locker { return p.redlock(t, lock.RedlockConfig{}, false) },
		"Multi": func(t *testing.T, p process) locker {
			m, err := lock.NewMulti(p[0].Reentrant("a"), p[1].Reentrant("b"))
			if err != nil {
				t.Fatal(err)
			}
			return m
		},
	} {
		t.Run(kind, func(t *testing.T) {
			for n := 2; n < 20; n++ {
				inFleet(t, 3, func(t *testing.T, f fleet) {
					l := of(t, f.process(lock.Config{}))
					lease, err := l.Lock(t.Context()) // the servers are known then
					if err != nil {
						t.Fatal(err)
					}
					mustUnlock(t, lease)
					for _, w := range f[1:] {
						w.srv.Refuse(true)
						w.srv.KillConns(nil)
					}
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					asked := n
					_, err = l.Lock(endsAt{ctx, &asked, cancel})
					if err == nil || errors.Is(err, lock.ErrNotAcquired) {
						t.Errorf("the context ended when asked for the %d. time: Lock() = %v, want another error than ErrNotAcquired", n, err)
					}
					f[1].srv.Refuse(false)
					f[2].srv.Refuse(false)
					f[0].sleep(time.Minute)
				})
			}
		})
	}
}
