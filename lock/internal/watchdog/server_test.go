package watchdog

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// many adds leases of 30 s on the server that hangs and on the one that answers, and returns those on the latter.
func (k *keeper) many(stuck, answering int) (others []*fake) {
	names := make(map[*fake]string)
	k.cfg.Leases.Name = func(l *fake) string { return names[l] }
	var all []*fake
	for i := range max(stuck, answering) {
		for side, n := range map[string]int{"stuck": stuck, "other": answering} {
			if i < n {
				l := new(fake)
				names[l] = fmt.Sprint(side, i)
				if all = append(all, l); side == "other" {
					others = append(others, l)
				}
			}
		}
	}
	k.cfg.Ask = func(ctx context.Context, leases []*fake, _ bool) (answers []Answer[*fake]) {
		outcome, err := int64(1), error(nil)
		if names[leases[0]][:len("stuck")] == "stuck" {
			<-ctx.Done()
			outcome, err = 0, ctx.Err()
		}
		for _, l := range leases {
			answers = append(answers, Answer[*fake]{l, outcome, err})
		}
		return answers
	}
	for _, l := range all {
		k.Add(l, true, time.Now(), time.Now().Add(k.cfg.Every))
	}
	return others
}

// A server that hangs does not delay a renewal on another, however many leases the client has on each.
func TestManyLeasesBesideAServerThatHangs(t *testing.T) {
	for _, n := range [][2]int{{1, 1}, {1, 400}, {70, 70}, {200, 200}} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := keepBesideOneThatHangs(t)
				k.cfg.Batch = 10
				others := k.many(n[0], n[1])
				time.Sleep(time.Minute)
				synctest.Wait()
				for _, l := range others {
					last := time.Duration(0)
					for _, at := range append(l.extended, time.Minute) {
						if at-last > k.cfg.Every {
							t.Fatalf("renewals at %v, want one in each %v", l.extended, k.cfg.Every)
						}
						last = at
					}
				}
			})
		})
	}
}

// News of a lock are not held up by news of many others on a server that hangs.
func TestNewsOfManyLocksOfAServerThatHangs(t *testing.T) {
	withAndWithoutRenewal(t, func(t *testing.T, k *keeper, renewed bool) {
		l := k.add("other", renewed)
		stuck := func(i int) string { return fmt.Sprint("stuck ", i) }
		for i := range 100 {
			k.add(stuck(i), i%2 == 0)
		}
		time.Sleep(3 * time.Second)
		for i := range 100 {
			k.tell(stuck(i))
			time.Sleep(time.Millisecond)
		}
		k.lose()
		k.tell("other")
		deniedWithin(t, l, time.Millisecond)
	})
}

// An alarm is answered by a server while another one hangs.
func TestAlarmBesideAServerThatHangs(t *testing.T) {
	withAndWithoutRenewal(t, func(t *testing.T, k *keeper, renewed bool) {
		k.add("stuck", true)
		k.add("stuck too", false)
		l := k.add("other", renewed)
		time.Sleep(k.cfg.Every + time.Second) // the server that hangs is being asked
		k.lose()
		k.Raise()
		deniedWithin(t, l, time.Millisecond)
	})
}

// A lock whose slot moves from a server that hangs is asked for on its new server, after the round under way at the latest.
func TestLeaseFollowsItsSlot(t *testing.T) {
	withAndWithoutRenewal(t, func(t *testing.T, k *keeper, renewed bool) {
		var moved atomic.Bool
		moves := func(l *fake) bool { return moved.Load() && k.nameOf(l) == "moves" }
		k.cfg.Leases.Name = func(l *fake) string {
			if moves(l) {
				return "other"
			}
			return "stuck"
		}
		k.cfg.Ask = func(ctx context.Context, leases []*fake, _ bool) []Answer[*fake] {
			if slices.ContainsFunc(leases, moves) {
				if len(leases) > 1 {
					t.Error("asked for together with a lease on the server that hangs")
				}
				return []Answer[*fake]{{leases[0], 0, nil}}
			}
			<-ctx.Done()
			var answers []Answer[*fake]
			for _, l := range leases {
				answers = append(answers, Answer[*fake]{l, 0, ctx.Err()})
			}
			return answers
		}
		k.cfg.Batch = 1
		for i := range 100 { // more than the server is asked for at a time
			k.add(fmt.Sprint("stuck ", i), true)
		}
		l := k.add("moves", renewed)
		time.Sleep(time.Minute)
		moved.Store(true)
		k.Raise()
		deniedWithin(t, l, Limit(k.cfg.Term)+retryMax)
	})
}

// A question about a lease without renewal has no part in the report of a round of renewals, and neither has another server.
func TestReportIsOfARound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := keepBesideOneThatHangs(t)
		rounds := make(map[Round]int)
		k.cfg.Round = func(r Round) {
			k.mu.Lock()
			defer k.mu.Unlock()
			rounds[r]++
		}
		k.add("stuck", true)
		k.add("fixed", false)
		k.add("other", true)
		time.Sleep(3 * time.Second)
		synctest.Wait()
		k.mu.Lock()
		clear(rounds)
		k.mu.Unlock()
		k.tell("fixed")
		k.tell("stuck")
		time.Sleep(time.Second)
		k.tell("other")
		time.Sleep(Limit(k.cfg.Term))
		synctest.Wait()
		k.mu.Lock()
		defer k.mu.Unlock()
		if answered, failed := (Round{Renewed: 1}), (Round{Failed: 1, Elapsed: Limit(k.cfg.Term)}); rounds[answered] != 1 || rounds[failed] != 1 || len(rounds) != 2 {
			t.Errorf("rounds %+v, want %+v and %+v", rounds, answered, failed)
		}
	})
}

// Rounds under way end with the client.
func TestCloseEndsRoundsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := keepBesideOneThatHangs(t)
		life, end := context.WithCancel(t.Context())
		k.cfg.Life = life
		under, ask := atomic.Int64{}, k.cfg.Ask
		k.cfg.Ask = func(ctx context.Context, leases []*fake, check bool) []Answer[*fake] {
			under.Add(1)
			defer under.Add(-1)
			return ask(ctx, leases, check)
		}
		k.add("stuck", true)
		k.add("stuck too", false)
		time.Sleep(3 * time.Second)
		k.tell("stuck")
		k.tell("stuck too")
		time.Sleep(time.Second)
		before, begin := under.Load(), time.Now()
		end()
		k.Close()
		if took, after := time.Since(begin), under.Load(); before != 2 || after != 0 || took > 0 {
			t.Errorf("%d requests under way before Close, %d after; Close took %v; want 2, 0 and 0s", before, after, took)
		}
	})
}
