package watchdog

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/lock/internal/remote"
	"github.com/lockwire/lockwire/pubsub"
)

// sides are two servers: a lock whose name begins with "stuck" is on the one that hangs.
type sides struct{ remote.Spread }

func (sides) Route(name string) string { return name[:len("stuck")] }

// keeper is a Watchdog of two servers, of which one hangs, with news by the names of locks.
type keeper struct {
	*Watchdog[*fake]
	news  *fakeredis.Server
	begin time.Time

	mu     sync.Mutex // guards the following
	leases map[string]*fake
	gone   bool            // the server that answers has no lock any more
	asked  []time.Duration // when it was asked, since the begin
	slow   time.Duration   // its answers tell what was so long ago
}

// withAndWithoutRenewal runs fn beside a server that hangs, for leases with and without renewal.
func withAndWithoutRenewal(t *testing.T, fn func(t *testing.T, k *keeper, renewed bool)) {
	for name, renewed := range map[string]bool{"renewed": true, "fixed": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { fn(t, keepBesideOneThatHangs(t), renewed) })
		})
	}
}

func keepBesideOneThatHangs(t *testing.T) *keeper {
	k := &keeper{Watchdog: keep(t, nil), news: fakeredis.New(), begin: time.Now(), leases: make(map[string]*fake)}
	t.Cleanup(k.news.Close)
	events := pubsub.New(dialer{k.news}, pubsub.Config{})
	t.Cleanup(func() { _ = events.Close() })
	k.cfg.Server = &remote.Server{Spread: sides{}}
	k.cfg.Listen = func() (*pubsub.Subscription, error) { return events.Listen("forced") }
	k.cfg.Leases.Name = k.nameOf
	k.cfg.Named = func(names map[string]bool) (leases []*fake) {
		k.mu.Lock()
		defer k.mu.Unlock()
		for name := range names {
			leases = append(leases, k.leases[name])
		}
		return leases
	}
	k.cfg.Ask = k.ask
	return k
}

func (k *keeper) nameOf(l *fake) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	for name, other := range k.leases {
		if other == l {
			return name
		}
	}
	return ""
}

func (k *keeper) ask(ctx context.Context, leases []*fake, _ bool) (answers []Answer[*fake]) {
	var outcome int64
	var err error
	if k.nameOf(leases[0])[:len("stuck")] == "stuck" {
		<-ctx.Done()
		err = ctx.Err()
	} else {
		k.mu.Lock()
		if !k.gone {
			outcome = 1
		}
		k.asked = append(k.asked, time.Since(k.begin))
		slow := k.slow
		k.mu.Unlock()
		time.Sleep(slow)
	}
	for _, l := range leases {
		answers = append(answers, Answer[*fake]{l, outcome, err})
	}
	return answers
}

func (k *keeper) add(name string, renewed bool) *fake {
	l, due := new(fake), time.Hour
	if renewed {
		due = k.cfg.Every
	}
	k.mu.Lock()
	k.leases[name] = l
	k.mu.Unlock()
	k.Add(l, renewed, time.Now(), time.Now().Add(due))
	return l
}

func (k *keeper) tell(name string) { k.news.Do("PUBLISH", "forced", name) }

func (k *keeper) lose() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.gone = true
}

// deniedWithin fails the test unless l is denied within d.
func deniedWithin(t *testing.T, l *fake, d time.Duration) {
	t.Helper()
	time.Sleep(d)
	synctest.Wait()
	if l.denied != 1 {
		t.Errorf("denied %d times, want 1", l.denied)
	}
}

// A server that hangs does not hold up the renewals on another, however many news are about its locks.
func TestNewsOfAServerThatHangsDelayNoRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := keepBesideOneThatHangs(t)
		k.add("stuck", false)
		l := k.add("other", true)
		for dice := rand.New(rand.NewPCG(1, 2)); time.Since(k.begin) < 50*time.Minute; {
			time.Sleep(4*time.Second + time.Duration(dice.IntN(1500))*time.Millisecond)
			k.tell("stuck")
		}
		synctest.Wait()
		last := time.Duration(0)
		for _, at := range append(l.extended, time.Since(k.begin)) {
			if at-last > k.cfg.Every+Limit(k.cfg.Term) {
				t.Errorf("a renewal at %v, and the next at %v", last, at)
			}
			last = at
		}
	})
}

// Nor does it hold up an alarm about all servers.
func TestNewsOfAServerThatHangsDelayNoAlarm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := keepBesideOneThatHangs(t)
		k.add("stuck", true)
		k.add("stuck too", false)
		l := k.add("other", false)
		hear := func(d time.Duration) {
			for begin := time.Now(); time.Since(begin) < d; time.Sleep(397 * time.Millisecond) {
				k.tell("stuck too")
			}
		}
		hear(time.Minute)
		k.lose()
		k.Raise()
		hear(alarmPause + Limit(k.cfg.Term))
		deniedWithin(t, l, 0)
	})
}

// Nor does it hold up news of other locks.
func TestNewsOfAServerThatHangsDelayNoOthers(t *testing.T) {
	withAndWithoutRenewal(t, func(t *testing.T, k *keeper, renewed bool) {
		k.add("stuck", true)
		k.add("stuck too", false)
		l := k.add("other", renewed)
		time.Sleep(8 * time.Second)
		for range 3 {
			k.tell("stuck")
			k.tell("stuck too")
			time.Sleep(time.Second)
		}
		k.lose()
		k.tell("other")
		deniedWithin(t, l, time.Millisecond)
	})
}

// An alarm comes after the server has answered a question, and before the answer is there.
func TestAlarmDuringAQuestion(t *testing.T) {
	withAndWithoutRenewal(t, func(t *testing.T, k *keeper, renewed bool) {
		k.Watchdog.cfg.Acked = true // a late answer counts
		l := k.add("other", renewed)
		time.Sleep(3 * time.Second)
		k.mu.Lock()
		k.slow = 3 * time.Second
		k.mu.Unlock()
		k.tell("other")
		time.Sleep(time.Second)
		k.lose()
		k.Raise()
		deniedWithin(t, l, 6*time.Second)
	})
}

// However many news are about a lock of a server that hangs, one question is under way at a time, and it ends with the client.
func TestManyNewsOfAServerThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := keepBesideOneThatHangs(t)
		var mu sync.Mutex
		under, most, ask := 0, 0, k.cfg.Ask
		k.cfg.Ask = func(ctx context.Context, leases []*fake, check bool) []Answer[*fake] {
			mu.Lock()
			under++
			most = max(most, under)
			mu.Unlock()
			defer func() {
				mu.Lock()
				under--
				mu.Unlock()
			}()
			return ask(ctx, leases, check)
		}
		l := k.add("stuck", false)
		time.Sleep(2 * time.Second)
		for range 1000 {
			k.tell("stuck")
			time.Sleep(time.Millisecond)
		}
		mu.Lock()
		defer mu.Unlock()
		if most != 1 || l.denied > 0 {
			t.Errorf("%d questions at a time, denied %d times; want 1 and 0", most, l.denied)
		}
	})
}

// Questions about news are reported, too, with their renewals and the time that they took.
func TestRoundOfNewsIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := keepBesideOneThatHangs(t)
		var rounds []Round
		k.cfg.Round = func(r Round) {
			k.mu.Lock()
			defer k.mu.Unlock()
			rounds = append(rounds, r)
		}
		k.add("other", true)
		time.Sleep(4 * time.Second)
		k.mu.Lock()
		k.slow, rounds = 10*time.Millisecond, nil
		k.mu.Unlock()
		k.tell("other")
		time.Sleep(time.Second)
		k.mu.Lock()
		defer k.mu.Unlock()
		if want := (Round{Renewed: 1, Elapsed: 10 * time.Millisecond}); len(rounds) != 1 || rounds[0] != want {
			t.Errorf("rounds %+v, want %+v", rounds, want)
		}
	})
}
