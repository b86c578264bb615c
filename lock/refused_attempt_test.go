package lock_test

import (
	"strings"
	"testing"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/lock"
)

// refuseOnce makes the server refuse the next script with this word among its arguments, by a reply after which the script
// certainly has not run.
func (w *world) refuseOnce(word string) {
	refused := false
	w.srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
		if !refused && cmd.Name == "EVALSHA" && strings.Contains(strings.Join(cmd.Args, " "), word) {
			refused = true
			return fakeredis.Reply("-LOADING the dataset\r\n")
		}
		return fakeredis.Run()
	})
}

// A writer whose attempt the server refused goes on as the same owner: its word that it waits ends with its wait, and keeps no readers
// out afterwards.
func TestRefusedAttemptLeavesNoWordOfAWriter(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.clientOn(conn.Config{Retry: conn.Retry{Attempts: -1}}, preferring) // each refusal reaches the waiter
		if _, err := w.client(lock.Config{}).ReadWrite("job").Write().Lock(t.Context(), lock.For(time.Second)); err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(500*time.Millisecond, func() { w.refuseOnce(":write") })
		lease, err := c.ReadWrite("job").Write().Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if n := w.told(); n != 0 {
			t.Errorf("%d writers say that they wait, and none does", n)
		}
		mustUnlock(t, lease)
		start := time.Now()
		read := mustRead(t, c)
		if took := time.Since(start); took > 100*time.Millisecond {
			t.Errorf("a reader got the free lock after %v", took)
		}
		mustUnlock(t, read)
	})
}

// The error of a question that the first call asks the server of a cluster, before it asks about the lock, names the lock.
func TestFirstQuestionFails(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		ask := func(_ any, err error) error { return err }
		for what, call := range map[string]func(c *lock.Client) error{
			"TryLock":     func(c *lock.Client) error { return ask(c.Reentrant("job").TryLock(t.Context())) },
			"Lock":        func(c *lock.Client) error { return ask(c.Reentrant("job").Lock(t.Context())) },
			"ForceUnlock": func(c *lock.Client) error { return ask(c.Fair("job").ForceUnlock(t.Context())) },
			"AddPermits":  func(c *lock.Client) error { return c.Semaphore("job").AddPermits(t.Context(), 1) },
			"TryAcquire":  func(c *lock.Client) error { return c.Semaphore("job").TryAcquire(t.Context(), 1) },
			"Wait":        func(c *lock.Client) error { return c.CountDownLatch("job").Wait(t.Context()) },
		} {
			c := w.slottedClient()
			w.srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
				if cmd.Name == "PUBSUB" {
					return fakeredis.Close()
				}
				return fakeredis.Run()
			})
			if err := call(c); err == nil || strings.Count(err.Error(), `"job"`) != 1 {
				t.Errorf("%s: %v, want an error that names the lock once", what, err)
			}
			w.srv.Intercept(nil)
		}
	})
}
