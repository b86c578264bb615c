package lock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/lockwire/lockwire/lock"
)

// A lock that AtLeast keeps taken is released by its owner, once, and what comes after it is no event.
func TestWatchOfAtLeast(t *testing.T) {
	for _, letters := range []string{"KA", ""} {
		inVirtualTime(t, func(t *testing.T, w *world) {
			w.notify(letters)
			mine, c := w.client(lock.Config{}), w.client(lock.Config{})
			kept := keptKinds(mine)
			delete(kept, "spin") // sends no messages
			if letters == "" {
				delete(kept, "plain") // nor does it
			}
			seen := watchAll(t, c, "*")
			w.sleep(time.Second)
			seen.take()
			for kind, job := range kept {
				for name, held := range map[string]time.Duration{"held for a second": time.Second, "held for an instant": 0} {
					lease, err := job.Lock(t.Context(), lock.AtLeast(5*time.Second))
					if err != nil {
						t.Fatal(err)
					}
					owner := lease.Owner()
					w.sleep(held)
					mustUnlock(t, lease)
					w.sleep(time.Second)
					if letters == "" {
						seen.want(t, kind+" "+name+" without events of keys", "released job "+owner)
					} else {
						seen.want(t, kind+" "+name, "acquired job "+owner, "released job "+owner)
					}
					in, err := c.Inspect(t.Context(), "job")
					if err != nil || len(in.Info.Holders) != 1 || len(in.Clients) != 0 {
						t.Errorf("Inspect() = %+v, %v, want a holder without a process", in, err)
					}
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					_, err = keptKinds(c)[kind].Lock(ctx)
					cancel()
					if refused, _ := errors.AsType[*lock.NotAcquiredError](err); refused == nil || refused.Holder == "" || refused.Process != "" {
						t.Errorf("Lock() in the rest = %+v, want a holder without a process", err)
					}
					w.sleep(10 * time.Second)
					seen.want(t, kind+" "+name+", at the end of the rest")
				}
				w.srv.Do("DEL", "redisson_lock_token:{job}")
			}
			_ = seen.close()
		})
	}
}

// A Watch that begins in the rest, or reads all locks in it, finds no owner.
func TestWatchBeginsInTheRest(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		w.notify("KA")
		mine, c := w.client(lock.Config{}), w.client(lock.Config{})
		mustUnlock(t, mustLock(t, mine, "job", lock.AtLeast(20*time.Second)))
		seen := watchAll(t, c, "*")
		w.sleep(time.Second)
		w.cutWatchers()
		w.sleep(8 * time.Second)
		seen.want(t, "in the rest", "watching", "missed", "watching")
		if ok, err := c.Reentrant("job").ForceUnlock(t.Context()); err != nil || !ok {
			t.Errorf("ForceUnlock() = %v, %v", ok, err)
		}
		next := mustLock(t, mine, "job")
		w.sleep(time.Second)
		seen.want(t, "after the rest", "acquired job "+next.Owner())
		mustUnlock(t, next)
		_ = seen.close()
	})
}

// Names that look like parts of other names are told as they are.
func TestWatchOfOddNames(t *testing.T) {
	for _, name := range []string{
		"lockwire_nightly", "redisson_job", "{job}", "{job}x", "{job}:550e8400-e29b-41d4-a716-446655440000", "job:550e8400-e29b-41d4-a716-446655440000",
		"job:", "a[b]*",
	} {
		inVirtualTime(t, func(t *testing.T, w *world) {
			w.notify("KA")
			mine, c := w.client(lock.Config{}), w.client(lock.Config{})
			seen := watchAll(t, c, "")
			w.sleep(time.Second)
			seen.want(t, "at the beginning", "watching")
			lease := mustLock(t, mine, name)
			w.sleep(time.Second)
			mustUnlock(t, lease)
			w.sleep(time.Second)
			seen.want(t, "a hold", "acquired "+name+" "+lease.Owner(), "released "+name+" "+lease.Owner())
			lease = mustLock(t, mine, name)
			w.sleep(time.Second)
			if _, err := c.Reentrant(name).ForceUnlock(t.Context()); err != nil {
				t.Error(err)
			}
			w.sleep(time.Second)
			seen.want(t, "force", "acquired "+name+" "+lease.Owner(), "forced "+name+" "+lease.Owner())
			_ = lease.Unlock(t.Context())
			_ = seen.close()
		})
	}
}
