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

// The turn of a caller of a Redlock may come as its context ends. The callers in front have had no answer: nobody has refused the lock.
func TestTurnAfterSilenceAtTheEndOfTheContext(t *testing.T) {
	inFleet(t, 3, func(t *testing.T, f fleet) {
		r := f.process(lock.Config{}).redlock(t, lock.RedlockConfig{}, false)
		mustUnlock(t, lockRed(t, r)) // the servers are known then
		for _, w := range f {
			w.srv.Refuse(true)
			w.srv.KillConns(nil)
		}
		var calls sync.WaitGroup
		calls.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			_, _ = r.Lock(ctx)
		})
		f[0].sleep(time.Second)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		asked := 1
		_, err := r.Lock(endsAt{ctx, &asked, cancel})
		if !errors.Is(err, context.Canceled) || errors.Is(err, lock.ErrNotAcquired) {
			t.Errorf("Lock() = %v, want Canceled without ErrNotAcquired", err)
		}
		calls.Wait()
		for _, w := range f {
			w.srv.Refuse(false)
		}
		f[0].sleep(time.Minute)
	})
}

// A process that leaves a Redlock to others for a moment has been asked for the lock: the end of the context in that moment is no failure
// of the servers.
func TestPauseForOthersIsARefusal(t *testing.T) {
	inFleet(t, 3, func(t *testing.T, f fleet) {
		mine := f.process(lock.Config{}).redlock(t, lock.RedlockConfig{}, false)
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
				lease, err := mine.Lock(ctx)
				if err == nil { // the server with the line was the last one to answer the release
					mustUnlock(t, lease)
				} else if !errors.Is(err, lock.ErrNotAcquired) || strings.Contains(err.Error(), "could not be asked") {
					t.Errorf("Lock() = %v, want ErrNotAcquired", err)
				}
			})
		}
		calls.Wait()
		mustUnlock(t, <-others)
		f[0].sleep(time.Minute)
	})
}

// A caller in line behind a holder of its process has been refused, also if the servers stop answering before its context ends: an answer
// during the wait is an answer.
func TestRefusedInLineBeforeTheServersFellSilent(t *testing.T) {
	inFleet(t, 3, func(t *testing.T, f fleet) {
		r := f.process(lock.Config{}).redlock(t, lock.RedlockConfig{}, false)
		lease := lockRed(t, r)
		var calls sync.WaitGroup
		for _, lasts := range []time.Duration{20 * time.Second, 19 * time.Second} { // the first comes to the front, the second stays behind
			calls.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), lasts)
				defer cancel()
				_, err := r.Lock(ctx)
				refusal, ok := errors.AsType[*lock.NotAcquiredError](err)
				if !errors.Is(err, lock.ErrNotAcquired) || !ok || refusal.Waited < lasts-time.Second {
					t.Errorf("Lock() for %v = %v, want ErrNotAcquired after so long", lasts, err)
				}
			})
			f[0].sleep(time.Millisecond)
		}
		f[0].sleep(9 * time.Second)
		for _, w := range f[1:] {
			w.srv.Refuse(true)
			w.srv.KillConns(nil)
		}
		_ = lease.Unlock(t.Context())
		calls.Wait()
		for _, w := range f[1:] {
			w.srv.Refuse(false)
		}
		f[0].sleep(time.Minute)
	})
}

// TryLock beside a caller of its process whose ballots have no answer has not been refused by anybody.
func TestTryLockBesideACallerWithoutAnAnswer(t *testing.T) {
	inFleet(t, 3, func(t *testing.T, f fleet) {
		r := f.process(lock.Config{}).redlock(t, lock.RedlockConfig{}, false)
		mustUnlock(t, lockRed(t, r))
		for _, w := range f {
			w.srv.Refuse(true)
			w.srv.KillConns(nil)
		}
		_, err := r.TryLock(t.Context())
		wantErr(t, "TryLock() alone", err, lock.ErrNoQuorum)
		var calls sync.WaitGroup
		calls.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			_, _ = r.Lock(ctx)
		})
		f[0].sleep(5 * time.Second)
		if _, err := r.TryLock(t.Context()); errors.Is(err, lock.ErrNotAcquired) {
			t.Errorf("TryLock() = %v, want another error than ErrNotAcquired", err)
		}
		calls.Wait()
		for _, w := range f {
			w.srv.Refuse(false)
		}
		f[0].sleep(time.Minute)
	})
}
