package sentinel_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestDial: the first dial asks the sentinels in turn until one answers. Later dials ask nobody.
func TestDial(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		delete(w.views, one)
		r := w.resolver(one, two, three)
		lands(t, r, serverA)
		lands(t, r, serverA)
		if w.asked() != 2 || !slices.Equal(w.switches, []string{">" + serverA + " 1"}) {
			t.Errorf("%d connections to sentinels, want 2; changes %q, want one", w.asked(), w.switches)
		}
	})
}

// TestKnownMasterFails: a failed dial of the known master, or Suspect, leads to new questions.
func TestKnownMasterFails(t *testing.T) {
	for _, suspect := range []bool{false, true} {
		bubble(t, func(t *testing.T, w *world) {
			r := w.resolver(one, two)
			lands(t, r, serverA)
			w.promote(2, one, two)
			if suspect {
				r.Suspect(serverA)
			}
			lands(t, r, serverB)
			want := []string{serverA, serverA, serverB}
			if suspect {
				want = []string{serverA, serverB}
			}
			if !slices.Equal(w.dials, want) {
				t.Errorf("dials of %v, want %v (Suspect: %v)", w.dials, want, suspect)
			}
		})
	}
}

// TestSwitchDuringADial: a connection to a server that is no longer the master is closed, and the dial starts again.
func TestSwitchDuringADial(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		r := w.resolver(one, two)
		lands(t, r, serverA)
		w.during = func() {
			w.promote(2, one, two)
			r.Suspect(serverA)
			lands(t, r, serverB)
		}
		lands(t, r, serverB)
		if want := []string{serverA, serverA, serverB, serverB}; !slices.Equal(w.dials, want) || w.open != 0 {
			t.Errorf("dials of %v, %d connections left, want %v and none", w.dials, w.open, want)
		}
	})
}

// TestKnownMasterRefuses: an error of the known master that any later dial would repeat, such as an expired certificate, says
// nothing about its successor.
func TestKnownMasterRefuses(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		r := w.resolver(one, two)
		lands(t, r, serverA)
		w.promote(2, two) // the first sentinel still names serverA
		w.servers[serverA] = errPassword
		lands(t, r, serverB)
	})
}

// TestKnownMasterRefusesForGood: the sentinels name no other server, and the error of the known master is the result.
func TestKnownMasterRefusesForGood(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		r := w.resolver(one, two)
		lands(t, r, serverA)
		w.servers[serverA] = errPassword
		if _, err := r.Dial(t.Context()); !errors.Is(err, errPassword) {
			t.Errorf("Dial() = %v, want %v", err, errPassword)
		}
		if want := []string{serverA, serverA}; !slices.Equal(w.dials, want) {
			t.Errorf("dials of %v, want %v", w.dials, want)
		}
	})
}

// TestAllFail: the error of the known master is the result if no sentinel answers either.
func TestAllFail(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		r := w.resolver(one, two)
		lands(t, r, serverA)
		clear(w.views)
		w.servers[serverA] = errDown
		if s, err := r.Dial(t.Context()); s != nil || !errors.Is(err, errDown) {
			t.Errorf("Dial() = %v, %v, want %v", s, err, errDown)
		}
	})
}

// TestOldAnswer: a sentinel cut off from the others names the former master, which still claims the role. Its answer is
// set aside, and used only if no other answer leads to a master.
func TestOldAnswer(t *testing.T) {
	for _, alone := range []bool{false, true} {
		bubble(t, func(t *testing.T, w *world) {
			w.views[one], w.views[two] = view{master: serverA, epoch: 7}, view{master: serverA, epoch: 7}
			r := w.resolver(one, two)
			lands(t, r, serverA)
			w.views[one] = view{master: serverA, epoch: 6}
			w.views[two] = view{master: serverB, epoch: 8}
			want := serverB
			if alone {
				delete(w.views, two)
				want = serverA
			} else {
				w.servers[serverB] = nil
			}
			r.Suspect(serverA)
			lands(t, r, want)
		})
	}
}

// TestNamedServerIsNoMaster: the server named by a sentinel denies the role, and the next sentinel knows better.
func TestNamedServerIsNoMaster(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.views[one] = view{master: serverB, epoch: 1}
		lands(t, w.resolver(one, two), serverA)
	})
}

// TestFinal: an error that all servers would give ends the search at once.
func TestFinal(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.servers[serverA] = errPassword
		w.views[two] = view{master: serverB, epoch: 1}
		_, err := w.resolver(one, two, three).Dial(t.Context())
		if !errors.Is(err, errPassword) || w.asked() != 1 {
			t.Errorf("Dial = %v after %d questions, want the wrong password after 1", err, w.asked())
		}
	})
}

// TestNobodyKnows: no sentinel names a master. The error is one of Failure, with the reason. Rounds of questions wait for
// each other, and so do the questions of a round: 20 in any second.
func TestNobodyKnows(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		addrs := []string{one, two}
		for i := range 38 {
			addrs = append(addrs, fmt.Sprintf("10.0.2.%d:26379", i))
		}
		w.views = map[string]view{two: {}}
		r := w.resolver(addrs...)
		begin := time.Now()
		for range 4 {
			_, err := r.Dial(t.Context())
			if err == nil || !strings.HasPrefix(err.Error(), "dial mymaster: asking the sentinels: ") {
				t.Fatalf("Dial = %v, want an error of Failure with the reason", err)
			}
		}
		if d := time.Since(begin); d < 8*time.Second {
			t.Errorf("4 rounds of 40 sentinels took %v, want pauses", d)
		}
		for i := range w.asks {
			if i >= 20 && w.asks[i].Sub(w.asks[i-20]) < time.Second {
				t.Errorf("more than 20 connections to sentinels within %v", w.asks[i].Sub(w.asks[i-20]))
			}
		}
	})
}

// TestLearnedSentinels: a Resolver asks the sentinels named in an answer, and forgets the ones no longer named.
func TestLearnedSentinels(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.views[one] = view{master: serverA, epoch: 1, others: []string{two}}
		r := w.resolver(one)
		lands(t, r, serverA)
		w.promote(2, two)
		delete(w.views, one)
		lands(t, r, serverB)
		delete(w.views, two)
		r.Suspect(serverB)
		w.views[one] = view{master: serverB, epoch: 2}
		lands(t, r, serverB)
	})
}

// TestFollow: an announced master is known at once, without a question to a sentinel.
func TestFollow(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		r := w.resolver(one, two, three)
		lands(t, r, serverA)
		defer follow(r)()
		time.Sleep(time.Second)
		w.promote(2)
		asked := w.asked()
		w.announce(serverA, serverB)
		synctest.Wait()
		if r.Known() != serverB || w.asked() != asked {
			t.Errorf("the known master is %s after %d questions, want %s after none", r.Known(), w.asked()-asked, serverB)
		}
		if want := serverA + ">" + serverB + " 2"; w.lastSwitch() != want {
			t.Errorf("the last change is %q, want %q", w.lastSwitch(), want)
		}
	})
}

// TestOldAnnouncement: an announcement that does not lead away from the known master changes nothing by itself.
func TestOldAnnouncement(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		r := w.resolver(one)
		lands(t, r, serverA)
		defer follow(r)()
		time.Sleep(time.Second)
		w.announce(serverB, "10.0.0.9:6379")
		time.Sleep(time.Second)
		if r.Known() != serverA || slices.Contains(w.dialled(), "10.0.0.9:6379") {
			t.Errorf("the known master is %s, and dials led to %v", r.Known(), w.dialled())
		}
	})
}

// TestWatch: a change that nobody announces is known after PollInterval.
func TestWatch(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		r := w.resolver(one, two, three)
		lands(t, r, serverA)
		defer follow(r)()
		time.Sleep(time.Second)
		w.promote(2, one, two, three)
		begin := time.Now()
		for r.Known() == serverA && time.Since(begin) < time.Minute {
			time.Sleep(100 * time.Millisecond)
		}
		if d := time.Since(begin); d > 11*time.Second {
			t.Errorf("the new master was known after %v, want PollInterval at most", d)
		}
	})
}

func TestDialAfterTheEnd(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := w.resolver(one).Dial(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("Dial = %v after the end of ctx, want Canceled", err)
		}
	})
}

// A master that serves is not left for a former one, named by a sentinel that knows nothing of the last failover, while the other
// sentinels do not answer. If all answer so, they have begun anew, and are believed.
func TestOldAnswerWhileTheMasterServes(t *testing.T) {
	for _, all := range []bool{false, true} {
		bubble(t, func(t *testing.T, w *world) {
			r := w.resolver(one, two, three)
			lands(t, r, serverA)
			defer follow(r)()
			time.Sleep(time.Second)
			w.promote(2, two, three)
			w.announce(serverA, serverB)
			time.Sleep(time.Second)
			w.mu.Lock()
			w.servers[serverA] = nil // cut off with the first sentinel
			delete(w.views, two)
			delete(w.views, three)
			want := serverB
			if all {
				w.views[two], w.views[three] = view{master: serverA}, view{master: serverA}
				want = serverA
			}
			w.mu.Unlock()
			time.Sleep(30 * time.Second)
			if r.Known() != want {
				t.Errorf("the known master is %s, want %s (all answer: %v); changes %q", r.Known(), want, all, w.switches)
			}
		})
	}
}
