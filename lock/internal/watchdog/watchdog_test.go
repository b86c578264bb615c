package watchdog

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/lock/internal/clock"
	"github.com/lockwire/lockwire/lock/internal/remote"
	"github.com/lockwire/lockwire/pubsub"
)

// fake is a lease of a test.
type fake struct {
	record   Record[*fake]
	extended []time.Duration // since the begin of the test
	denied   int
	over     bool
}

// keep returns a Watchdog of leases of 30 s renewed every 10 s. answer answers the nth renewal of a lease.
func keep(t *testing.T, answer func(n int) (outcome int64, err error)) *Watchdog[*fake] {
	life, end := context.WithCancel(t.Context())
	begin, asked := time.Now(), atomic.Int64{}
	w := New(Config[*fake]{
		Term: 30 * time.Second, Every: 10 * time.Second, Batch: 100, Life: life, Server: &remote.Server{},
		Now:   func() clock.Instant { return clock.Instant{Time: time.Now()} },
		Named: func(map[string]bool) []*fake { return nil },
		Ask: func(_ context.Context, leases []*fake, _ bool) (answers []Answer[*fake]) {
			n := int(asked.Add(1))
			for _, l := range leases {
				outcome, err := answer(n)
				answers = append(answers, Answer[*fake]{l, outcome, err})
			}
			return answers
		},
		Leases: Leases[*fake]{
			Record: func(l *fake) *Record[*fake] { return &l.record },
			Name:   func(*fake) string { return "a" },
			Warn:   func(*fake, error, string, ...any) {},
			Err: func(l *fake) error {
				if l.over {
					return errors.New("over")
				}
				return nil
			},
			ValidUntil:   func(*fake) time.Time { return begin.Add(time.Hour) },
			Due:          func(_ *fake, at time.Time) time.Time { return at },
			StopContexts: func(*fake) {},
			Begin:        func(l *fake) bool { return !l.over },
			Extend:       func(l *fake, start clock.Instant) { l.extended = append(l.extended, start.Time.Sub(begin)) },
			End:          func(*fake, error) {},
			Denied:       func(l *fake, _ bool) { l.denied, l.over = l.denied+1, true },
		},
	})
	t.Cleanup(func() { end(); w.Close() })
	return w
}

// A renewal that succeeds after a failed renewal may come from a server replaced meanwhile: it counts once confirmed.
func TestSuccessAfterAFailureIsConfirmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := keep(t, func(n int) (int64, error) {
			if n == 1 {
				return 0, errors.New("no answer")
			}
			return 1, nil
		})
		l := new(fake)
		w.Add(l, true, time.Now(), time.Now().Add(10*time.Second))
		time.Sleep(11 * time.Second)
		synctest.Wait()
		if want := 10*time.Second + retryMin; len(l.extended) != 1 || l.extended[0] != want {
			t.Errorf("renewals counted at %v, want one at %v", l.extended, want)
		}
		if n, failed := w.Renewals.Load(), w.Errors.Load(); n != 1 || failed != 1 {
			t.Errorf("%d renewals and %d failures counted, want 1 and 1", n, failed)
		}
	})
}

// A lease that the server does not have ends, and is not renewed again.
func TestDeniedLeaseIsNotRenewedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		w := keep(t, func(int) (int64, error) { asked++; return 0, nil })
		l := new(fake)
		w.Add(l, true, time.Now(), time.Now().Add(10*time.Second))
		time.Sleep(time.Minute)
		synctest.Wait()
		if l.denied != 1 || asked != 1 {
			t.Errorf("denied %d times after %d renewals, want once each", l.denied, asked)
		}
		if !w.Idle() {
			t.Error("the watchdog still has a lease")
		}
	})
}

// A removed lease is not renewed, and a lease without renewal is not asked for.
func TestOnlyRenewedLeasesAreRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := keep(t, func(int) (int64, error) { return 1, nil })
		renewed, removed, ends := new(fake), new(fake), new(fake)
		w.Add(renewed, true, time.Now(), time.Now().Add(10*time.Second))
		w.Add(removed, true, time.Now(), time.Now().Add(10*time.Second))
		w.Add(ends, false, time.Now(), time.Now().Add(10*time.Second))
		w.Remove(removed)
		time.Sleep(35 * time.Second)
		synctest.Wait()
		if len(renewed.extended) != 3 || len(removed.extended) != 0 || len(ends.extended) != 0 {
			t.Errorf("renewals: %v, removed %v, without renewal %v; want three of the first", renewed.extended, removed.extended, ends.extended)
		}
	})
}

// A hold that passes from one lease to another while an alarm comes is asked for at once, renewed or not.
func TestAlarmMissesNoLease(t *testing.T) {
	for name, renewed := range map[string]bool{"renewed": true, "fixed": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := keep(t, func(int) (int64, error) { return 0, nil })
				first, next, later := new(fake), new(fake), new(fake)
				w.Add(first, renewed, time.Now(), time.Now().Add(10*time.Second))
				asked := time.Now()
				time.Sleep(time.Second)
				w.Remove(first)
				w.Raise()
				time.Sleep(time.Second)
				w.Add(next, renewed, asked, asked.Add(10*time.Second))
				w.Add(later, renewed, time.Now(), time.Now().Add(10*time.Second))
				synctest.Wait()
				if next.denied != 1 || later.denied != 0 {
					t.Errorf("denied %d times at once, and %d times if asked for after the alarm, want 1 and 0", next.denied, later.denied)
				}
			})
		})
	}
}

// A lock that is acquired and forced while the watchdog looks for the leases of earlier news is asked for as soon as its lease is added.
func TestNewsDuringNewsMissesNoLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := keep(t, func(int) (int64, error) { return 0, nil })
		news := make(chan pubsub.Event, 2)
		var asked time.Time
		w.cfg.Named = func(map[string]bool) []*fake {
			if asked.IsZero() {
				time.Sleep(time.Millisecond)
				asked = time.Now()
				time.Sleep(time.Millisecond)
				news <- pubsub.Event{Kind: pubsub.Message, Payload: "later"}
			}
			return nil
		}
		news <- pubsub.Event{Kind: pubsub.Message, Payload: "earlier"}
		for len(news) > 0 {
			w.takeForced(<-news, news)
		}
		l := new(fake)
		w.Add(l, true, asked, asked.Add(10*time.Second))
		synctest.Wait()
		if l.denied != 1 {
			t.Errorf("denied %d times at once, want 1", l.denied)
		}
	})
}

// News that wait together look through the leases once, however many they are and however often they name a lock.
func TestNewsTogetherLookForLeasesOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := keep(t, func(int) (int64, error) { return 1, nil })
		news := make(chan pubsub.Event, 2*mostEvents)
		looks, names := 0, 0
		w.cfg.Named = func(forced map[string]bool) []*fake {
			looks, names = looks+1, names+len(forced)
			return nil
		}
		for i := range mostEvents / 2 {
			news <- pubsub.Event{Kind: pubsub.Message, Payload: strconv.Itoa(i / 2)}
			news <- pubsub.Event{Kind: pubsub.Lagged}
		}
		news <- pubsub.Event{Kind: pubsub.Message, Payload: "later"}
		w.takeForced(<-news, news)
		if looks != 1 || names != mostEvents/4 || len(news) != 1 {
			t.Errorf("%d looks for %d locks, %d events left, want 1, %d and 1", looks, names, len(news), mostEvents/4)
		}
		if !w.alarms.raised.Load() {
			t.Error("no alarm for missed messages")
		}
		close(news)
		w.takeForced(<-news, news)
		if looks != 2 || names != mostEvents/4+1 {
			t.Errorf("%d looks for %d locks at the end, want 2 and %d", looks, names, mostEvents/4+1)
		}
	})
}

// A lease that was asked for while the loop looked at the time, before the alarm it then answers, is asked for at once.
func TestAlarmDuringAPassMissesNoLease(t *testing.T) {
	for name, renewed := range map[string]bool{"renewed": true, "fixed": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := keep(t, func(int) (int64, error) { return 0, nil })
				first, next := new(fake), new(fake)
				var asked time.Time
				now, passes := w.cfg.Now, -1 // the first time is that of the loop's start
				w.cfg.Now = func() clock.Instant {
					at := now()
					if passes++; passes == 1 {
						time.Sleep(time.Millisecond)
						asked = time.Now()
						time.Sleep(time.Millisecond)
						w.Raise()
					}
					return at
				}
				w.Add(first, false, time.Now(), time.Now().Add(10*time.Second))
				time.Sleep(time.Second)
				synctest.Wait()
				w.Add(next, renewed, asked, asked.Add(10*time.Second))
				synctest.Wait()
				if next.denied != 1 {
					t.Errorf("denied %d times at once, want 1", next.denied)
				}
			})
		})
	}
}

// A lease without renewal is asked for once, however many messages are about it before the server answers.
func TestLeaseIsCheckedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := keep(t, func(int) (int64, error) { return 0, errors.New("no answer") })
		l := new(fake)
		most, ask := 0, w.cfg.Ask
		w.cfg.Ask = func(ctx context.Context, leases []*fake, fixed bool) []Answer[*fake] {
			most = max(most, len(leases))
			return ask(ctx, leases, fixed)
		}
		w.Add(l, false, time.Now(), time.Now().Add(time.Hour))
		for range 10 {
			time.Sleep(time.Second - time.Millisecond) // not when the loop asks
			w.renewFirst([]*fake{l})
		}
		synctest.Wait()
		if most != 1 {
			t.Errorf("asked for %d leases at a time, want 1", most)
		}
	})
}

// spread is several servers: that of a lock has its name.
type spread struct{ remote.Spread }

func (spread) Route(name string) string { return name }

// dialer connects to the server of the news.
type dialer struct{ srv *fakeredis.Server }

func (d dialer) Stream(ctx context.Context) (*conn.Stream, error) {
	return conn.DialStream(ctx, conn.Config{Dial: d.srv.Dial})
}

// keepOnSeveral is keep with several servers, and with news on a channel. The news are about the lease forced.
func keepOnSeveral(t *testing.T, forced *fake) (w *Watchdog[*fake], tell func()) {
	srv := fakeredis.New()
	t.Cleanup(srv.Close)
	events := pubsub.New(dialer{srv}, pubsub.Config{})
	t.Cleanup(func() { _ = events.Close() })
	w = keep(t, nil)
	w.cfg.Server = &remote.Server{Spread: spread{}}
	w.cfg.Named = func(map[string]bool) []*fake { return []*fake{forced} }
	w.cfg.Listen = func() (*pubsub.Subscription, error) { return events.Listen("forced") }
	return w, func() { srv.Do("PUBLISH", "forced", "a lock") }
}

// While a server hangs, news of a forced lock on another are answered at once.
func TestNewsBesideAServerThatHangs(t *testing.T) {
	for name, renewed := range map[string]bool{"renewed": true, "fixed": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				stuck, forced := new(fake), new(fake)
				w, tell := keepOnSeveral(t, forced)
				var late atomic.Bool // one server hangs, and another does not have the lock any more
				w.cfg.Leases.Name = func(l *fake) string { return map[*fake]string{stuck: "stuck", forced: "forced"}[l] }
				w.cfg.Ask = func(ctx context.Context, leases []*fake, _ bool) []Answer[*fake] {
					switch {
					case !late.Load():
						return []Answer[*fake]{{leases[0], 1, nil}}
					case leases[0] == stuck:
						<-ctx.Done()
						return []Answer[*fake]{{stuck, 0, ctx.Err()}}
					}
					return []Answer[*fake]{{forced, 0, nil}}
				}
				w.Add(stuck, true, time.Now(), time.Now().Add(10*time.Second))
				w.Add(forced, renewed, time.Now(), time.Now().Add(time.Hour))
				time.Sleep(8 * time.Second)
				late.Store(true)
				time.Sleep(4 * time.Second)
				tell()
				time.Sleep(time.Second)
				synctest.Wait()
				if forced.denied != 1 {
					t.Errorf("denied %d times, want 1", forced.denied)
				}
			})
		})
	}
}

// A lock is forced after the server has renewed the lease, and before its answer comes.
func TestNewsBeforeTheAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := new(fake)
		w, tell := keepOnSeveral(t, l)
		var forced atomic.Bool
		w.cfg.Ask = func(_ context.Context, leases []*fake, _ bool) []Answer[*fake] {
			if forced.Load() {
				return []Answer[*fake]{{l, 0, nil}}
			}
			time.Sleep(100 * time.Millisecond)
			return []Answer[*fake]{{l, 1, nil}}
		}
		w.Add(l, true, time.Now(), time.Now().Add(time.Hour))
		time.Sleep(5 * time.Second)
		w.Raise()
		time.Sleep(50 * time.Millisecond)
		forced.Store(true)
		tell()
		time.Sleep(time.Second)
		synctest.Wait()
		if l.denied != 1 {
			t.Errorf("denied %d times, want 1", l.denied)
		}
	})
}

// After an alarm all leases are asked for at once, also those that are due later, and a second alarm is answered a second after the first.
func TestAlarmAsksForAllLeasesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := keep(t, func(int) (int64, error) { return 1, nil })
		var checked []time.Duration
		begin, ask := time.Now(), w.cfg.Ask
		w.cfg.Ask = func(ctx context.Context, leases []*fake, check bool) []Answer[*fake] {
			if check {
				checked = append(checked, time.Since(begin))
			}
			return ask(ctx, leases, check)
		}
		soon, late, fixed := new(fake), new(fake), new(fake)
		w.Add(late, true, begin, begin.Add(20*time.Second))
		w.Add(soon, true, begin, begin.Add(10*time.Second))
		w.Add(fixed, false, begin, begin.Add(time.Hour))
		first := 2300 * time.Millisecond // between two ticks of the loop
		time.Sleep(first)
		w.Raise()
		time.Sleep(alarmPause / 4)
		w.Raise()
		time.Sleep(2 * time.Second)
		synctest.Wait()
		want := []time.Duration{first, first + alarmPause}
		for name, got := range map[string][]time.Duration{"due soon": soon.extended, "due late": late.extended, "without renewal": checked} {
			if !slices.Equal(got, want) {
				t.Errorf("a lease %s was asked for at %v, want %v", name, got, want)
			}
		}
	})
}

// An ended lease is not asked for, even if the last question had no answer.
func TestRemovedLeaseIsNotChecked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		w := keep(t, func(int) (int64, error) { asked++; return 0, errors.New("no answer") })
		l := new(fake)
		w.Add(l, false, time.Now(), time.Now().Add(time.Hour))
		w.WatchClock(l)
		time.Sleep(time.Millisecond)
		w.renewFirst([]*fake{l})
		time.Sleep(retryMax / 2)
		synctest.Wait()
		w.Remove(l)
		time.Sleep(10 * retryMax)
		synctest.Wait()
		if asked != 1 || !w.Idle() {
			t.Errorf("asked %d times, want once; idle: %v", asked, w.Idle())
		}
	})
}

// A late answer is confirmed by a second renewal, unless replicas have acknowledged it.
func TestLateAnswerIsConfirmed(t *testing.T) {
	for acked, want := range map[bool][]time.Duration{true: {10 * time.Second}, false: {10*time.Second + 2*AnsweredLate}} {
		synctest.Test(t, func(t *testing.T) {
			w := keep(t, func(n int) (int64, error) {
				if n == 1 {
					time.Sleep(2 * AnsweredLate)
				}
				return 1, nil
			})
			w.cfg.Acked = acked
			l := new(fake)
			w.Add(l, true, time.Now(), time.Now().Add(10*time.Second))
			time.Sleep(15 * time.Second)
			synctest.Wait()
			if !slices.Equal(l.extended, want) {
				t.Errorf("acknowledged: %v: renewals counted at %v, want %v", acked, l.extended, want)
			}
		})
	}
}

// A round of renewals is reported with the numbers of its leases.
func TestRoundIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := keep(t, nil)
		var rounds []Round
		w.cfg.Round = func(r Round) { rounds = append(rounds, r) }
		asked := 0
		w.cfg.Ask = func(_ context.Context, leases []*fake, _ bool) (answers []Answer[*fake]) {
			for _, l := range leases { // renewed, gone, failed
				asked++
				a := Answer[*fake]{Lease: l, Outcome: int64(asked % 2)}
				if asked == 3 {
					a.Err = errors.New("no answer")
				}
				answers = append(answers, a)
			}
			return answers
		}
		for range 3 {
			w.Add(new(fake), true, time.Now(), time.Now().Add(10*time.Second))
		}
		time.Sleep(10*time.Second + retryMin/2)
		synctest.Wait()
		if want := (Round{Renewed: 1, Failed: 1, Gone: 1}); len(rounds) != 1 || rounds[0] != want {
			t.Errorf("rounds %+v, want %+v", rounds, want)
		}
	})
}

// A server that answers too late for a round gets smaller rounds, which grow again.
func TestRoundsFitTheServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var slow atomic.Bool
		slow.Store(true)
		w := keep(t, func(int) (int64, error) { return 1, nil })
		ask := w.cfg.Ask
		w.cfg.Ask = func(ctx context.Context, leases []*fake, check bool) []Answer[*fake] {
			if slow.Load() {
				<-ctx.Done()
				return []Answer[*fake]{{leases[0], 0, ctx.Err()}}
			}
			return ask(ctx, leases, check)
		}
		l := new(fake)
		w.Add(l, true, time.Now(), time.Now().Add(10*time.Second))
		size := func(after time.Duration) int {
			time.Sleep(after)
			synctest.Wait()
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.serverLocked(&l.record).batches
		}
		if got := size(10*time.Second + Limit(w.cfg.Term)); got != batchesAtOnce/2 {
			t.Errorf("after a late round %d batches at once, want %d", got, batchesAtOnce/2)
		}
		slow.Store(false)
		if got := size(retryMin); got != batchesAtOnce/2+2 { // a renewal, and its confirmation
			t.Errorf("after two good rounds %d batches at once, want %d", got, batchesAtOnce/2+2)
		}
	})
}

// A watched lease looks at the clocks after a sleep of the machine, and after a clock that includes sleep was set back.
func TestClocksApartAreSeen(t *testing.T) {
	for _, gap := range []time.Duration{2 * clockGap, -2 * clockGap, clockGap / 2} {
		synctest.Test(t, func(t *testing.T) {
			w := keep(t, func(int) (int64, error) { return 1, nil })
			begin, apart := time.Now(), atomic.Int64{}
			w.cfg.Now = func() clock.Instant {
				now := time.Now()
				return clock.Instant{Time: now, Boot: time.Hour + now.Sub(begin) + time.Duration(apart.Load())}
			}
			looks := 0
			w.cfg.Leases.StopContexts = func(*fake) { looks++ }
			l := new(fake)
			w.Add(l, false, begin, begin.Add(time.Hour))
			w.WatchClock(l)
			time.Sleep(2500 * time.Millisecond)
			apart.Store(int64(gap))
			time.Sleep(2 * clockTick)
			synctest.Wait()
			want := 1
			if gap.Abs() <= clockGap {
				want = 0
			}
			if looks != want {
				t.Errorf("%v apart: %d looks, want %d", gap, looks, want)
			}
		})
	}
}

// After a sleep of the machine a lease is renewed at once, also if it was being asked for, renewed or not, when the machine fell asleep.
func TestSleepDuringARequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := keep(t, nil)
		begin, asleep := time.Now(), atomic.Int64{}
		w.cfg.Now = func() clock.Instant {
			now := time.Now()
			return clock.Instant{Time: now, Boot: time.Hour + now.Sub(begin) + time.Duration(asleep.Load())}
		}
		w.cfg.Acked = true // a late answer counts
		w.cfg.Ask = func(_ context.Context, leases []*fake, _ bool) (answers []Answer[*fake]) {
			if time.Since(begin) == 10*time.Second {
				time.Sleep(2 * time.Second)
			}
			for _, l := range leases {
				answers = append(answers, Answer[*fake]{l, 1, nil})
			}
			return answers
		}
		renewing, watched, granted := new(fake), new(fake), new(fake)
		w.Add(renewing, true, begin, begin.Add(10*time.Second))
		w.Add(watched, false, begin, begin.Add(time.Hour))
		w.WatchClock(watched)
		time.Sleep(10*time.Second + clockTick/2)
		asleep.Store(int64(20 * time.Second))
		time.Sleep(2 * clockTick)
		w.Add(granted, true, begin.Add(10*time.Second), begin.Add(20*time.Second))
		time.Sleep(clockTick / 4)
		synctest.Wait()
		for name, got := range map[string][]time.Duration{"being renewed": renewing.extended, "being granted": granted.extended} {
			if len(got) == 0 || got[len(got)-1] < 12*time.Second {
				t.Errorf("a lease %s when the machine fell asleep is renewed at %v", name, got)
			}
		}
	})
}
