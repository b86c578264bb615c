package lock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockwire/lockwire/internal/fakeredis"
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

// A caller of a Redlock in line behind another of its process learns nothing from servers that do not answer, and asks them itself later
// without an answer: neither is a refusal.
func TestSilentServersAreNoRefusalInLine(t *testing.T) {
	for what, silence := range map[string]func(srv *fakeredis.Server, on bool){"refused": (*fakeredis.Server).Refuse, "silent": (*fakeredis.Server).Stall} {
		for _, inLine := range []time.Duration{10 * time.Millisecond, time.Second, 10 * time.Second} {
			t.Run(fmt.Sprint(what, " ", inLine), func(t *testing.T) {
				inFleet(t, 3, func(t *testing.T, f fleet) {
					r := f.process(lock.Config{}).redlock(t, lock.RedlockConfig{}, false)
					mustUnlock(t, lockRed(t, r)) // the servers are known then
					for _, w := range f[1:] {
						silence(w.srv, true)
						w.srv.KillConns(nil)
					}
					var calls sync.WaitGroup
					for _, lasts := range []time.Duration{5 * time.Second, inLine, 20 * time.Second} {
						calls.Go(func() {
							ctx, cancel := context.WithTimeout(t.Context(), lasts)
							defer cancel()
							_, err := r.Lock(ctx)
							if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, lock.ErrNotAcquired) {
								t.Errorf("Lock() for %v = %v, want DeadlineExceeded without ErrNotAcquired", lasts, err)
							}
						})
						f[0].sleep(time.Millisecond)
					}
					calls.Wait()
					silence(f[1].srv, false)
					silence(f[2].srv, false)
					f[0].sleep(time.Minute)
				})
			})
		}
	}
}

// A process that leaves a Redlock to others for a moment has been asked for the lock: the end of the context in that moment is no failure
// of the servers.
func TestPauseForOthersIsARefusal(t *testing.T) {
	inFleet(t, 3, func(t *testing.T, f fleet) {
		mine := f.process(lock.Config{HandOvers: 1}).redlock(t, lock.RedlockConfig{}, false)
		lease := lockRed(t, mine)
		other := f.process(lock.Config{}).redlock(t, lock.RedlockConfig{}, false)
		others := make(chan *lock.Lease, 1)
		go func() { others <- lockRed(t, other) }()
		f[0].sleep(time.Second)
		mustUnlock(t, lease)
		var calls sync.WaitGroup
		for range 2 {
			calls.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
				defer cancel()
				_, err := mine.Lock(ctx)
				if !errors.Is(err, lock.ErrNotAcquired) || strings.Contains(err.Error(), "could not be asked") {
					t.Errorf("Lock() = %v, want ErrNotAcquired", err)
				}
			})
		}
		calls.Wait()
		mustUnlock(t, <-others)
		f[0].sleep(time.Minute)
	})
}
