package lock_test

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/lock"
)

// News between the subscription and the first reading of all locks.
func TestWatchNewsBeforeTheScan(t *testing.T) {
	for _, gap := range []time.Duration{0, 20 * time.Millisecond, 50 * time.Millisecond, 90 * time.Millisecond, 99 * time.Millisecond} {
		inVirtualTime(t, func(t *testing.T, w *world) {
			w.notify("KA")
			mine, c := w.client(lock.Config{}), w.client(lock.Config{})
			first := mustLock(t, mine, "job")
			seen := watchAll(t, c, "*")
			synctest.Wait()
			time.Sleep(gap)
			mustUnlock(t, first)
			second := mustLock(t, mine, "job")
			w.sleep(2 * time.Second)
			// The reading of all locks may also have come before the release.
			told := strings.Join(seen.take(), ", ")
			if told != "held job "+second.Owner()+", watching" &&
				told != "held job "+first.Owner()+", watching, released job "+first.Owner()+", acquired job "+second.Owner() {
				t.Errorf("at the beginning %s", told)
			}
			mustUnlock(t, second)
			w.sleep(time.Second)
			seen.take()
			wantErr(t, "the end", seen.close(), context.Canceled)
		})
	}
}

// The same after an interruption.
func TestWatchNewsAfterAnInterruption(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		w.notify("KA")
		mine, c := w.client(lock.Config{}), w.client(lock.Config{})
		first := mustLock(t, mine, "job")
		seen := watchAll(t, c, "*")
		w.sleep(5 * time.Second)
		seen.want(t, "at the beginning", "held job "+first.Owner(), "watching")
		w.srv.KillConns(func(c fakeredis.Conn) bool { return c.Subscribed > 0 })
		listensAgain(w)
		mustUnlock(t, first)
		second := mustLock(t, mine, "job")
		w.sleep(5 * time.Second)
		seen.wantInAnyOrder(t, "after an interruption", "missed", "released job "+first.Owner(), "acquired job "+second.Owner(), "watching")
		mustUnlock(t, second)
		w.sleep(time.Second)
		seen.take()
		wantErr(t, "the end", seen.close(), context.Canceled)
	})
}

// The same with the news between the return of the subscription and the reading of all locks, from messages alone.
func TestWatchReleaseBeforeTheScan(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		mine, c := w.client(lock.Config{}), w.client(lock.Config{})
		first := mustLock(t, mine, "job")
		seen := watchAll(t, c, "*")
		w.sleep(5 * time.Second)
		seen.want(t, "at the beginning", "held job "+first.Owner(), "watching, not all")
		w.srv.KillConns(nil)
		listensAgain(w)
		mustUnlock(t, first)
		w.sleep(5 * time.Second)
		seen.wantInAnyOrder(t, "after an interruption", "missed", "released job "+first.Owner(), "watching, not all")
		wantErr(t, "the end", seen.close(), context.Canceled)
	})
}

// Watch ends with its client, whatever the server does.
func TestWatchEndsWithTheClient(t *testing.T) {
	for _, after := range []time.Duration{0, 5 * time.Millisecond, 110 * time.Millisecond, 3 * time.Second} {
		inVirtualTime(t, func(t *testing.T, w *world) {
			w.srv.Latency(3 * time.Millisecond)
			c := w.clientOn(conn.Config{Timeout: time.Second, DialTimeout: time.Second}, lock.Config{})
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				for range c.Watch(t.Context(), "*") {
				}
			}()
			time.Sleep(after)
			w.srv.Refuse(true)
			w.srv.KillConns(nil)
			time.Sleep(500 * time.Millisecond)
			start := time.Now()
			wantOK(t, "Close", c.Close())
			<-ended
			if took := time.Since(start); took > 1100*time.Millisecond {
				t.Errorf("the server refuses after %v: Watch ended %v after Close", after, took)
			}
			w.srv.Refuse(false)
		})
	}
}

// A lock that its Owner releases and takes again while Watch reads very many locks, long after it has read this one, is told of.
func TestWatchBesideALongScan(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		w.notify("KA")
		mine, c := w.client(lock.Config{}), w.client(lock.Config{})
		o := lock.As(mine.NewOwner())
		held := make(map[string]*lock.Lease)
		for i := range 8 { // some are read early, and some late
			held[fmt.Sprint("job", i)] = mustLock(t, mine, fmt.Sprint("job", i), o)
		}
		for i := range 20_000 {
			w.srv.Do("SET", fmt.Sprint("other", i), "1")
		}
		w.srv.Latency(20 * time.Millisecond)
		seen := watchAll(t, c, "*")
		w.sleep(time.Minute)
		seen.take()
		w.srv.KillConns(nil)
		w.sleep(8 * time.Second)
		for _, l := range held {
			mustUnlock(t, l)
		}
		w.sleep(time.Second)
		for name := range held {
			held[name] = mustLock(t, mine, name, o)
		}
		w.sleep(time.Minute)
		told := seen.take()
		for name, l := range held {
			if !slices.Contains(told, "released "+name+" "+l.Owner()) || !slices.Contains(told, "acquired "+name+" "+l.Owner()) {
				t.Errorf("of %s was told only %q", name, told)
			}
			mustUnlock(t, l)
		}
		wantErr(t, "the end", seen.close(), context.Canceled)
	})
}

// News that arrive while Watch reads all locks, before and behind its reading of the lock, are told once, and as what they are.
func TestWatchNewsDuringTheScan(t *testing.T) {
	ends := map[string]func(t *testing.T, w *world, l *lock.Lease){
		"released": func(t *testing.T, _ *world, l *lock.Lease) { mustUnlock(t, l) },
		"forced": func(t *testing.T, w *world, l *lock.Lease) {
			_, err := w.clients[0].Reentrant(l.Name()).ForceUnlock(t.Context())
			wantOK(t, "ForceUnlock", err)
		},
		"expired": func(_ *testing.T, w *world, l *lock.Lease) { w.srv.Do("PEXPIRE", l.Name(), "1") },
	}
	for end, take := range ends {
		for _, letters := range []string{"KA", ""} {
			if letters == "" && end == "expired" {
				continue // is not told
			}
			t.Run(end+" "+letters, func(t *testing.T) {
				inVirtualTime(t, func(t *testing.T, w *world) {
					w.notify(letters)
					mine, c := w.client(lock.Config{}), w.client(lock.Config{})
					for i := range 3000 {
						w.srv.Do("SET", fmt.Sprint("other", i), "1")
					}
					var held []*lock.Lease
					want := []string{"missed", "watching"}
					if letters == "" {
						want[1] += ", not all"
					}
					for i := range 8 { // some are read before the news, and some behind
						l := mustLock(t, mine, fmt.Sprint("job", i))
						held, want = append(held, l), append(want, end+" "+l.Name()+" "+l.Owner())
					}
					w.srv.Latency(20 * time.Millisecond)
					seen := watchAll(t, c, "*")
					w.sleep(time.Minute)
					seen.take()
					w.srv.KillConns(func(c fakeredis.Conn) bool { return c.Subscribed > 0 })
					w.sleep(200 * time.Millisecond)
					for _, l := range held {
						take(t, w, l)
					}
					w.sleep(time.Minute)
					seen.wantInAnyOrder(t, "after an interruption", want...)
					wantErr(t, "the end", seen.close(), context.Canceled)
					for _, l := range held {
						_ = l.Unlock(t.Context())
					}
				})
			})
		}
	}
}

// The end of a hold that comes while Watch asks for the owners because of the Owner's further hold is told once.
func TestWatchNewsDuringALook(t *testing.T) {
	for gap := 80 * time.Millisecond; gap <= 200*time.Millisecond; gap += 10 * time.Millisecond {
		inVirtualTime(t, func(t *testing.T, w *world) {
			w.notify("KA")
			mine, c := w.client(lock.Config{}), w.client(lock.Config{})
			o := lock.As(mine.NewOwner())
			outer := mustLock(t, mine, "job", o)
			seen := watchAll(t, c, "*")
			w.sleep(5 * time.Second)
			seen.take()
			w.srv.Latency(20 * time.Millisecond)
			inner := mustLock(t, mine, "job", o)
			mustUnlock(t, inner)
			w.sleep(gap)
			mustUnlock(t, outer)
			w.sleep(5 * time.Second)
			seen.want(t, fmt.Sprint("released after ", gap), "released job "+outer.Owner())
			wantErr(t, "the end", seen.close(), context.Canceled)
		})
	}
}

// growing is a cluster whose locks are all on its first server.
type growing struct {
	slotted
	nodes func() []grown
}

type grown struct {
	*conn.Pool
	addr string
}

func (n grown) Addr() string { return n.addr }

func (g growing) Doers(context.Context) iter.Seq2[conn.Doer, error] {
	return func(yield func(conn.Doer, error) bool) {
		for _, n := range g.nodes() {
			if !yield(n, nil) {
				return
			}
		}
	}
}

func (g growing) StreamTo(ctx context.Context, addr string) (*conn.Stream, error) {
	nodes := g.nodes()
	return nodes[slices.IndexFunc(nodes, func(n grown) bool { return n.addr == addr })].Stream(ctx)
}

// A second new master, found when Watch is about to read all locks because of the first, costs no news.
func TestWatchOfAGrowingCluster(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		w.notify("KA")
		nodes := []grown{{w.pool(conn.Config{}), "1"}, {w.pool(conn.Config{}), "2"}, {w.pool(conn.Config{}), "3"}}
		w.pools = append(w.pools, nodes[0].Pool, nodes[1].Pool, nodes[2].Pool)
		start := time.Now()
		c, err := lock.New(growing{slotted{nodes[0].Pool}, func() []grown {
			switch since := time.Since(start); {
			case since < 5*time.Second: // Watch looks each 2 s
				return nodes[:1]
			case since < 6050*time.Millisecond:
				return nodes[:2]
			}
			return nodes
		}}, lock.Config{Acks: lock.AcksOff})
		if err != nil {
			t.Fatal(err)
		}
		w.clients = append(w.clients, c)
		mine := w.client(lock.Config{})
		l := mustLock(t, mine, "job", lock.For(6060*time.Millisecond))
		seen := watchAll(t, c, "*")
		w.sleep(6020 * time.Millisecond)
		seen.take()
		mustUnlock(t, mustLock(t, mine, "short"))
		w.sleep(10 * time.Second)
		seen.wantInAnyOrder(t, "of a growing cluster", "acquired short", "released short", "expired job "+l.Owner(), "watching")
		wantErr(t, "the end", seen.close(), context.Canceled)
	})
}

// listensAgain waits until a Watch listens again after its connections were killed, and has not read all locks yet.
func listensAgain(w *world) {
	for range 100 {
		time.Sleep(10 * time.Millisecond)
		if w.srv.Do("PUBSUB", "NUMPAT") != int64(0) {
			break
		}
	}
	time.Sleep(20 * time.Millisecond)
}

// wantInAnyOrder is want for events in any order.
func (w *watched) wantInAnyOrder(t *testing.T, when string, want ...string) {
	t.Helper()
	got := w.take()
	slices.Sort(got)
	if slices.Sort(want); !slices.Equal(got, want) {
		t.Errorf("%s:\n got  %q\n want %q", when, got, want)
	}
}
