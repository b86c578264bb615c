package lock_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/lock"
)

// The loss of a part may leave a majority that ends sooner: contexts whose StopBefore has come thereby end at once.
func TestRedlockStopBeforeAfterALoss(t *testing.T) {
	inFleet(t, 3, func(t *testing.T, f fleet) {
		r := f.process(lock.Config{}).redlock(t, lock.RedlockConfig{Quarantine: -1}, false)
		lease := lockRed(t, r, lock.StopBefore(15*time.Second))
		synctest.Wait()
		work, cancel := lease.Context(t.Context())
		defer cancel()
		f[0].srv.Mute(true) // so that its part is not renewed like the others
		time.Sleep(21 * time.Second)
		if err := work.Err(); err != nil {
			t.Fatalf("the context has ended beside a majority that is renewed: %v", context.Cause(work))
		}
		owner := f.holders("job")[1]
		for _, part := range lease.Members() {
			if part.Owner() == owner {
				f[1].srv.Do("DEL", "job")
				if err := part.Check(t.Context()); err == nil {
					t.Fatal("Check() of a part that is gone = nil")
				}
			}
		}
		if left := time.Until(lease.ValidUntil()); left > 15*time.Second || lease.Err() != nil {
			t.Fatalf("valid for %v, Err() = %v, want a lease near its end", left, lease.Err())
		}
		lostBecause(t, context.Cause(work), lock.Ending)
		f[0].srv.Mute(false)
		mustUnlock(t, lease)
	})
}

// A waiter may have had its last answer of a process that is gone by now, and notes it at the end of the wait: the quarantine of the next process
// goes on from the first sight.
func TestRedlockAnswerOfAnEarlierProcess(t *testing.T) {
	inFleet(t, 3, func(t *testing.T, f fleet) {
		mine := f.process(lock.Config{})
		held := lockRed(t, f.process(lock.Config{}).redlock(t, lock.RedlockConfig{}, false))
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		waiting := waits(t, ctx, mine.redlock(t, lock.RedlockConfig{}, false))
		restarted := time.Now()
		f[0].srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
			if !strings.HasPrefix(strings.ToUpper(cmd.String()), "INFO") {
				return fakeredis.Run()
			}
			text := fmt.Sprintf("run_id:next\r\nuptime_in_seconds:%d", int(time.Since(restarted).Seconds())+1)
			return fakeredis.Reply(fmt.Sprintf("$%d\r\n%s\r\n", len(text), text))
		})
		other, err := lock.NewRedlock(lock.RedlockConfig{}, mine[0].Reentrant("other"), mine[1].Reentrant("other"), mine[2].Reentrant("other"))
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []int{2, 3} { // without the vote of the next process, and with it
			lease := lockRed(t, other)
			synctest.Wait()
			if n := len(lease.Members()); n != want {
				t.Errorf("%v after the restart %d servers vote, want %d", time.Since(restarted), n, want)
			}
			mustUnlock(t, lease)
			time.Sleep(35 * time.Second)
		}
		if lease := <-waiting; lease != nil {
			t.Error("the waiter has a lock that is held")
		}
		mustUnlock(t, held)
	})
}

// A part that is granted late is extended like the others.
func TestRedlockLateGrantAfterExtend(t *testing.T) {
	inFleet(t, 3, func(t *testing.T, f fleet) {
		r := f.process(lock.Config{}).redlock(t, lock.RedlockConfig{}, false)
		mustUnlock(t, lockRed(t, r))
		f.free()
		f[2].onScript("acquire", func(int) fakeredis.Action { return fakeredis.Delay(100*time.Millisecond, fakeredis.Run()) })
		lease := lockRed(t, r, lock.For(20*time.Second))
		if err := lease.Extend(t.Context(), 29*time.Second); err != nil {
			t.Fatal(err)
		}
		f[2].srv.Intercept(nil)
		if n := len(lease.Members()); n != 2 {
			t.Fatalf("%d members before the late grant", n)
		}
		time.Sleep(25 * time.Second)
		for i, part := range lease.Members() {
			if left := time.Until(part.ValidUntil()); part.Err() != nil || left < 3*time.Second {
				t.Errorf("part %d: Err() = %v, valid for %v", i, part.Err(), left)
			}
		}
		if n := f.taken("job"); n != 3 {
			t.Errorf("taken on %d servers", n)
		}
		mustUnlock(t, lease)
		f.free()
	})
}
