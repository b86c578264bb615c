package watchdog

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/lock/internal/remote"
	"github.com/lockwire/lockwire/resp"
)

// oneServer is the server of all slots, as far as the client knows. Slots have the lengths of the names of their locks.
type oneServer struct{ remote.Spread }

func (oneServer) Route(string) string  { return "a server" }
func (oneServer) Slot(name string) int { return len(name) }

// redirecting is a Watchdog of a server that answers some locks with a redirection.
type redirecting struct {
	*Watchdog[*fake]
	begin time.Time
	names map[*fake]string // constant once the lease is added

	mu    sync.Mutex // guards the following
	reply resp.Error // the server's answer to locks whose names begin with "led"
	left  int        // so many more times
	hangs bool       // the server that they lead to
	asked []time.Duration
}

func redirect(t *testing.T, reply resp.Error, times int) *redirecting {
	k := &redirecting{Watchdog: keep(t, nil), begin: time.Now(), names: make(map[*fake]string), reply: reply, left: times}
	k.cfg.Server = &remote.Server{Spread: oneServer{}}
	k.cfg.Leases.Name = func(l *fake) string { return k.names[l] }
	k.cfg.Ask = k.ask
	return k
}

func (k *redirecting) ask(ctx context.Context, leases []*fake, _ bool) (answers []Answer[*fake]) {
	var wait bool
	for _, l := range leases {
		a := Answer[*fake]{Lease: l, Outcome: 1}
		if k.names[l][:3] == "led" {
			k.mu.Lock()
			k.asked = append(k.asked, time.Since(k.begin))
			switch {
			case ctx.Value(conn.NoRepeat) != true && k.hangs:
				a.Outcome, a.Err, wait = 0, context.DeadlineExceeded, true
			case ctx.Value(conn.NoRepeat) == true && k.left > 0:
				a.Outcome, a.Err = 0, k.reply
				k.left--
			}
			k.mu.Unlock()
		}
		answers = append(answers, a)
	}
	if wait {
		<-ctx.Done()
	}
	return answers
}

func (k *redirecting) add(name string, renewed bool) *fake {
	l := new(fake)
	k.names[l] = name
	k.Add(l, renewed, time.Now(), time.Now().Add(k.cfg.Every))
	return l
}

// wantEvery fails the test unless l has been renewed once in each period.
func (k *redirecting) wantEvery(t *testing.T, l *fake) {
	t.Helper()
	var want []time.Duration
	for at := k.cfg.Every; at <= time.Since(k.begin); at += k.cfg.Every {
		want = append(want, at)
	}
	if !slices.Equal(l.extended, want) {
		t.Errorf("renewals at %v, want %v", l.extended, want)
	}
}

const (
	ask  = resp.ErrAsk + " 3 10.0.0.2:6379"
	move = resp.ErrMoved + " 3 10.0.0.2:6379"
)

// A lease whose server leads to another one is renewed there at once. That is no failure, and needs no second answer.
func TestRedirectionIsFollowed(t *testing.T) {
	for _, reply := range []resp.Error{ask, move} {
		synctest.Test(t, func(t *testing.T) {
			k := redirect(t, reply, 1)
			led, other := k.add("led", true), k.add("other", true)
			time.Sleep(25 * time.Second)
			k.mu.Lock()
			k.left = 1
			k.mu.Unlock()
			time.Sleep(30 * time.Second)
			synctest.Wait()
			k.wantEvery(t, led)
			k.wantEvery(t, other)
			if failed := k.Errors.Load(); failed > 0 || k.left > 0 {
				t.Errorf("%s: %d renewals have failed, %d redirections are left; want none", reply, failed, k.left)
			}
			k.Watchdog.mu.Lock()
			defer k.Watchdog.mu.Unlock()
			if len(k.servers) != 1 {
				t.Errorf("%d servers are kept, want 1", len(k.servers))
			}
		})
	}
}

// Servers that send a lease to and fro are asked again after pauses.
func TestMovedToAndFro(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := redirect(t, move, 1000)
		k.add("led", true)
		time.Sleep(k.cfg.Every + 5*time.Second)
		synctest.Wait()
		first := k.cfg.Every
		want := []time.Duration{first, first, first + retryMin, first + 3*retryMin, first + 7*retryMin}
		if len(k.asked) > 20 || len(k.asked) < 5 || !slices.Equal(k.asked[:5], want) {
			t.Errorf("asked at %v, want %v and not often afterwards", k.asked, want)
		}
	})
}

// The server that leases are led to hangs. It holds up no other lease, and no lease of another slot, however many there are.
func TestLedToAServerThatHangs(t *testing.T) {
	for name, renewed := range map[string]bool{"renewed": true, "fixed": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := redirect(t, ask, 100)
				k.cfg.Batch = 1
				k.hangs = true
				var others []*fake
				for i := range 100 {
					k.add(fmt.Sprint("led", i%10), renewed)
					others = append(others, k.add(fmt.Sprint("other", i), true))
				}
				if !renewed {
					k.cfg.Leases.ValidUntil = func(*fake) time.Time { return k.begin.Add(time.Hour) }
					time.Sleep(time.Second)
					k.Raise()
				}
				time.Sleep(4*time.Minute + time.Second)
				synctest.Wait()
				for _, l := range others {
					last := time.Duration(0)
					for _, at := range append(l.extended, time.Since(k.begin)) {
						if at-last > k.cfg.Every {
							t.Fatalf("renewals at %v, want one in each %v", l.extended, k.cfg.Every)
						}
						last = at
					}
				}
				k.mu.Lock()
				defer k.mu.Unlock()
				if k.left > 0 {
					t.Errorf("%d leases have not been asked for", k.left)
				}
			})
		})
	}
}
