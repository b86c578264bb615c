package lock_test

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/lock"
	"github.com/lockwire/lockwire/lock/internal/kinds"
)

// logLine is a line about a lock.
type logLine struct {
	at         time.Time
	text, lock string
	attributes []string // names
}

// logBook is a slog.Handler that keeps the lines.
type logBook struct {
	slog.Handler
	mu    sync.Mutex
	lines []logLine
}

func (h *logBook) Enabled(context.Context, slog.Level) bool { return true }

func (h *logBook) Handle(_ context.Context, r slog.Record) error {
	line := logLine{at: r.Time, text: r.Message}
	r.Attrs(func(a slog.Attr) bool {
		line.attributes = append(line.attributes, a.Key)
		if a.Key == "lock" {
			line.lock = a.Value.String()
		}
		return true
	})
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lines = append(h.lines, line)
	return nil
}

// logged returns the lines of a text so far.
func (h *logBook) logged(text string) (lines []logLine) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, line := range h.lines {
		if line.text == text {
			lines = append(lines, line)
		}
	}
	return lines
}

// lineCase is an event that a client reports. do makes it happen again and again for three minutes.
type lineCase struct {
	text  string
	cfg   lock.Config
	knows []string // attributes beside lock and kind
	do    func(t *testing.T, w *world, c *lock.Client)
}

// again calls fn every five seconds for three minutes.
func (w *world) again(fn func()) {
	for end := time.Now().Add(3 * time.Minute); time.Now().Before(end); w.sleep(5 * time.Second) {
		fn()
	}
}

// denied calls fn while the user has no right to the commands.
func (w *world) denied(fn func(), commands ...string) {
	w.srv.Deny(commands...)
	fn()
	synctest.Wait()
	w.srv.Deny()
}

var lineCases = []lineCase{
	{text: "lock: lease lost", knows: []string{"owner", "age", "reason"}, do: func(t *testing.T, w *world, c *lock.Client) {
		w.again(func() {
			lease := mustLock(t, c, "job")
			if _, err := c.Reentrant("job").ForceUnlock(t.Context()); err != nil {
				t.Fatal(err)
			}
			lostBecause(t, lease.Err(), lock.Forced)
		})
	}},
	{text: "lock: renewals run late", cfg: lock.Config{RenewEvery: 2 * time.Second}, knows: []string{"owner", "age", "leases", "by"},
		do: func(t *testing.T, w *world, c *lock.Client) {
			lease := mustLock(t, c, "job")
			w.srv.Latency(2 * time.Second)
			w.sleep(3 * time.Minute)
			w.srv.Latency(0)
			w.sleep(10 * time.Second)
			mustUnlock(t, lease)
		}},
	{text: "lock: renewals fail, and are tried again", cfg: lock.Config{Lease: 10 * time.Minute, RenewEvery: 10 * time.Second},
		knows: []string{"owner", "age", "leases", "error"}, do: func(t *testing.T, w *world, c *lock.Client) {
			lease := mustLock(t, c, "job")
			w.srv.Refuse(true)
			w.srv.KillConns(nil)
			w.sleep(3 * time.Minute)
			w.srv.Refuse(false)
			w.sleep(10 * time.Second)
			mustUnlock(t, lease)
		}},
	{text: "lock: renewals fail, and are tried again", cfg: lock.Config{Lease: 10 * time.Minute, RenewEvery: 10 * time.Second},
		knows: []string{"owner", "age", "leases", "error"}, do: func(t *testing.T, w *world, c *lock.Client) {
			lease := mustLock(t, c, "job")
			w.srv.Deny("evalsha", "eval")
			w.sleep(3 * time.Minute)
			w.srv.Deny()
			w.sleep(10 * time.Second)
			mustUnlock(t, lease)
		}},
	{text: "lock: waiting for long", cfg: lock.Config{WarnAfter: time.Second}, knows: []string{"owner", "waited", "error"},
		do: func(t *testing.T, w *world, c *lock.Client) {
			lease := mustLock(t, w.client(lock.Config{}), "job", lock.For(time.Hour))
			w.again(func() {
				time.AfterFunc(900*time.Millisecond, func() { w.srv.Stall(true) })
				failed := tryFor(t, c.Reentrant("job").Lock, 3*time.Second)
				w.srv.Stall(false)
				if failed.Holder != "" || failed.HolderErr == nil || !strings.HasSuffix(failed.Error(), "; its holder is unknown: "+failed.HolderErr.Error()) {
					t.Errorf("Lock() = %v, holder %q, %v", failed, failed.Holder, failed.HolderErr)
				}
			})
			mustUnlock(t, lease)
		}},
	{text: "lock: waiting for long", cfg: lock.Config{WarnAfter: time.Second}, knows: []string{"owner", "waited", "holder", "process"},
		do: func(t *testing.T, w *world, c *lock.Client) {
			lease := mustLock(t, w.client(lock.Config{}), "job")
			w.again(func() { tryFor(t, c.Reentrant("job").Lock, 3*time.Second) })
			mustUnlock(t, lease)
		}},
	{text: "lock: acquired after a long wait", cfg: lock.Config{WarnAfter: time.Second}, knows: []string{"owner", "age", "waited"},
		do: func(t *testing.T, w *world, c *lock.Client) {
			other := w.client(lock.Config{})
			w.again(func() {
				held := mustLock(t, other, "job")
				time.AfterFunc(2*time.Second, func() { mustUnlock(t, held) })
				mustUnlock(t, mustLock(t, c, "job"))
			})
		}},
	{text: "lock: held for long", cfg: lock.Config{WarnAfter: time.Second}, knows: []string{"owner", "age"},
		do: func(t *testing.T, w *world, c *lock.Client) {
			w.again(func() {
				lease := mustLock(t, c, "job")
				w.sleep(2 * time.Second)
				mustUnlock(t, lease)
			})
		}},
	{text: "lock: release not confirmed, and repeated in the background", knows: []string{"owner", "age", "error"},
		do: func(t *testing.T, w *world, c *lock.Client) {
			w.again(func() {
				lease := mustLock(t, c, "job", lock.For(3*time.Second))
				w.onScript("release", func(int) fakeredis.Action { return fakeredis.Close() })
				wantErr(t, "Unlock", lease.Unlock(t.Context()), lock.ErrUncertain)
				w.srv.Intercept(nil)
			})
			w.sleep(latchLife)
		}},
	{text: "lock: waiters do not know that a lease became shorter", knows: []string{"error"}, do: func(t *testing.T, w *world, c *lock.Client) {
		owner := c.NewOwner()
		outer := mustLock(t, c, "job", lock.As(owner), lock.For(10*time.Minute))
		w.again(func() {
			inner := mustLock(t, c, "job", lock.As(owner), lock.For(time.Hour))
			w.denied(func() { mustUnlock(t, inner) }, "publish")
		})
		mustUnlock(t, outer)
	}},
	{text: "lock: a holder is not told at once that its lock was freed by force", knows: []string{"error"}, do: func(t *testing.T, w *world, c *lock.Client) {
		other := w.client(lock.Config{})
		w.again(func() {
			lease := mustLock(t, other, "job", lock.For(time.Second))
			w.denied(func() {
				if _, err := c.Reentrant("job").ForceUnlock(t.Context()); err != nil {
					t.Error(err)
				}
			}, "publish")
			_ = lease.Unlock(t.Context())
		})
	}},
	{text: "lock: the user may not subscribe to the channels of locks: waiters are not woken, and look now and then",
		knows: []string{"missing", "error"}, do: func(t *testing.T, w *world, c *lock.Client) {
			lease := mustLock(t, w.client(lock.Config{}), "job")
			w.srv.Deny("subscribe")
			w.again(func() { tryFor(t, c.Reentrant("job").Lock, time.Second) })
			w.srv.Deny()
			mustUnlock(t, lease)
		}},
	{text: "lock: the user may not publish on the channels of locks: waiters are not woken by releases, and look now and then",
		knows: []string{"missing"}, do: func(t *testing.T, w *world, c *lock.Client) {
			w.srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
				if slices.Contains(cmd.Args, kinds.Publish.Get().Digest()) {
					return fakeredis.Reply(":0\r\n")
				}
				return fakeredis.Run()
			})
			w.again(func() { mustUnlock(t, mustLock(t, c, "job")) })
			w.srv.Intercept(nil)
		}},
}

// However often an event repeats, its line about a lock appears once a minute, with the lock's name and kind and all that is known.
func TestLinesAreNotRepeated(t *testing.T) {
	for _, tt := range lineCases {
		t.Run(tt.text, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, w *world) {
				var book logBook
				tt.cfg.Logger = slog.New(&book)
				tt.do(t, w, w.client(tt.cfg))
				book.wantRarely(t, tt.text, tt.knows)
			})
		})
	}
}

// With ShowName no line has the name of the lock, in whatever attribute.
func TestLinesHideTheName(t *testing.T) {
	for _, tt := range lineCases {
		t.Run(tt.text, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, w *world) {
				var lines bytes.Buffer
				tt.cfg.Logger = slog.New(slog.NewTextHandler(&lines, nil))
				tt.cfg.ShowName = func(string) string { return "(hidden)" }
				c := w.client(tt.cfg)
				tt.do(t, w, c)
				_ = c.Close()
				if text := lines.String(); !strings.Contains(text, "(hidden)") || strings.Contains(text, "job") {
					t.Errorf("logged:\n%s", text)
				}
			})
		})
	}
}

// The same of grants by a server that has no replica.
func TestBareGrantsAreReported(t *testing.T) {
	var book logBook
	inShard(t, lock.Config{Logger: slog.New(&book)}, func(t *testing.T, w *world, r *replicated, c *lock.Client) {
		r.tell(func(r *replicated) { r.heirs.Bare = true })
		w.attached()
		w.again(func() { mustUnlock(t, mustLock(t, c, "job")) })
		book.wantRarely(t, "lock: locks are granted without acknowledgement: the server has no replica", []string{"owner", "server"})
	})
}

// wantRarely fails the test unless lines of the text are there, about the lock job, a minute apart, and with the attributes.
func (h *logBook) wantRarely(t *testing.T, text string, attributes []string) {
	t.Helper()
	lines := h.logged(text)
	if len(lines) == 0 {
		t.Fatalf("no line; the others: %v", h.lines)
	}
	for i, line := range lines {
		if i > 0 && line.at.Sub(lines[i-1].at) < time.Minute {
			t.Errorf("two lines within %v", line.at.Sub(lines[i-1].at))
		}
		if want := append([]string{"lock", "kind"}, attributes...); !slices.Equal(line.attributes, want) {
			t.Errorf("a line with %q, want %q", line.attributes, want)
		}
		if line.lock != "job" {
			t.Errorf("a line about the lock %q", line.lock)
		}
	}
}

// ShowName may ask about the lease that is being lost.
func TestShowNameAsksAboutTheLease(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		var leases []*lock.Lease
		c := w.client(lock.Config{ShowName: func(name string) string {
			for _, l := range leases {
				_, _ = l.ValidUntil(), l.Err()
			}
			return strings.ToUpper(name)
		}})
		stops, fixed := mustLock(t, c, "stops", lock.StopBefore(15*time.Second)), mustLock(t, c, "fixed", lock.For(time.Second))
		whole := lockMulti(t, newMulti(t, c.Reentrant("a"), c.Reentrant("b")))
		leases = []*lock.Lease{stops, fixed, whole, whole.Members()[0], whole.Members()[1]}
		work, cancel := stops.Context(t.Context())
		defer cancel()
		lost := whole.Lost()
		w.srv.Mute(true)
		<-lost
		<-work.Done()
		for _, err := range []error{context.Cause(work), whole.Err(), fixed.Err()} {
			if err == nil || !strings.Contains(err.Error(), "lock STOPS") && !strings.Contains(err.Error(), "lock FIXED") && !strings.Contains(err.Error(), "lock A") && !strings.Contains(err.Error(), "lock B") {
				t.Errorf("%v, want an error that shows the name", err)
			}
		}
		w.srv.Mute(false)
	})
}
