package sentinel_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// replica returns a sentinel's description of a replica.
func replica(fields ...string) string { return replicaAt("10.0.0.7:6379", fields...) }

// well and otherWell are healthy replicas.
var (
	well      = replica("flags", "slave", "last-ok-ping-reply", "900", "slave-repl-offset", "14", "runid", "7")
	otherWell = replicaAt("10.0.0.8:6379", "flags", "slave", "last-ok-ping-reply", "900", "slave-repl-offset", "14", "runid", "8")
)

func replicaAt(addr string, fields ...string) string {
	list := address(addr)
	for _, f := range fields {
		list = append(list, bulk(f))
	}
	return array(list...)
}

// TestSuccession: answers count from a sentinel with a majority that reaches the known master. The last answer is kept.
func TestSuccession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		r := w.resolver(one, two, three)
		lands(t, r, serverA)
		mute := replicaAt("10.0.0.8:6379", "flags", "slave", "last-ok-ping-reply", "5001", "slave-repl-offset", "14")
		w.views[one] = view{master: serverA, epoch: 1, replicas: []string{well}, flags: "master,s_down"}
		w.views[two] = view{master: serverA, epoch: 1, replicas: []string{well}, quorum: "-NOQUORUM x\r\n"}
		w.views[three] = view{master: serverA, epoch: 1, replicas: []string{well, mute}}
		s, err := r.Succession(t.Context(), time.Time{}, false)
		if err != nil || s.Addr != serverA || s.Replicas != 1 || s.Away != 1 || s.AwayAddrs[0] != "10.0.0.8:6379" || s.Bare {
			t.Errorf("Succession() = %+v, %v, want the view of the third sentinel", s, err)
		}
		asked := w.asked()
		if _, err := r.Succession(t.Context(), s.Asked, false); err != nil || w.asked() != asked {
			t.Errorf("Succession() = %v after %d questions, want the last answer", err, w.asked()-asked)
		}
		time.Sleep(time.Second)
		if _, err := r.Succession(t.Context(), time.Now(), false); err != nil || w.asked() == asked {
			t.Errorf("Succession() = %v after no question, want a fresh answer", err)
		}
	})
}

// TestSuccessionOfEverySentinel: one sentinel may not have heard of a replica yet that another one promotes.
func TestSuccessionOfEverySentinel(t *testing.T) {
	few, many := view{master: serverA, epoch: 1, replicas: []string{well}}, view{master: serverA, epoch: 1, replicas: []string{well, otherWell}}
	other := view{master: serverA, epoch: 1, replicas: []string{otherWell}}
	down := func(v view) view { v.flags = "master,s_down"; return v }
	for name, x := range map[string]struct {
		second, third view
		hung          string
		replicas      int // 0: an error
	}{
		"the second has heard":       {second: many, third: few, replicas: 2},
		"each has heard of another":  {second: other, third: few, replicas: 2},
		"the third has heard":        {second: few, third: many, replicas: 2},
		"the second has promoted":    {second: view{master: serverB, epoch: 2}, third: few},
		"the second was left behind": {second: view{master: serverB, epoch: 0}, third: many, replicas: 2},
		"the third has promoted":     {second: few, third: view{master: serverB, epoch: 2}, hung: two},
		"the second promotes":        {second: down(many), third: down(many), replicas: 2},
		"the second has promoted just now, and says so of a server that is down": {second: down(view{master: serverB, epoch: 2}), third: few},
		"the second names the next master in the same epoch":                     {second: view{master: serverB, epoch: 1}, third: few},
		"the second has other names": {second: view{master: "a.example:6379", id: "id of " + serverA, epoch: 1, replicas: []string{
			replicaAt("seven.example:6379", "flags", "slave", "last-ok-ping-reply", "900", "slave-repl-offset", "14", "runid", "7")}}, third: few, replicas: 1},
		"the second does not answer":            {second: many, third: few, hung: two, replicas: 1},
		"the third answers, but not the second": {second: few, third: many, hung: two, replicas: 2},
		"the first does not answer":             {second: few, third: many, hung: one, replicas: 2},
		"the second is without the other":       {second: view{master: serverA, epoch: 1, quorum: "-NOQUORUM x\r\n"}, third: many, replicas: 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				r := w.resolver(one, two, three)
				lands(t, r, serverA)
				w.views[one], w.views[two], w.views[three], w.hung = few, x.second, x.third, x.hung
				begin := time.Now()
				s, err := r.Succession(t.Context(), begin, true)
				if (err != nil) != (x.replicas == 0) || s.Replicas != x.replicas {
					t.Errorf("Succession() = %+v, %v, want %d replicas", s, err, x.replicas)
				}
				if took := time.Since(begin); took > 250*time.Millisecond {
					t.Errorf("Succession() took %v", took)
				}
				asked := w.asked()
				if _, err := r.Succession(t.Context(), s.Asked, true); err == nil && w.asked() != asked {
					t.Errorf("Succession() = %v after %d questions, want the last answer", err, w.asked()-asked)
				}
				time.Sleep(time.Second)
				before := time.Now()
				if _, err := r.Succession(t.Context(), before, false); err == nil {
					asked = w.asked()
					if _, err := r.Succession(t.Context(), before, true); err == nil && w.asked() == asked {
						t.Error("the answer of one sentinel is taken for the answer of all")
					}
				}
			})
		})
	}
}

// TestSuccessionBesideALeader: the sentinel that leads a failover describes the former master to its end, with the epoch of the next one. It neither
// vouches for the former master nor disputes the next one.
func TestSuccessionBesideALeader(t *testing.T) {
	for name, x := range map[string]struct {
		known, others string
		epoch         int // of the others
		replicas      int // 0: an error
	}{
		"the client has followed":     {serverB, serverB, 2, 1},
		"the client has not followed": {serverA, serverB, 2, 0},
		"no replica is promoted yet":  {serverA, serverA, 1, 2},
	} {
		for _, every := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", every ", every), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld()
					r := w.resolver(one, two, three)
					if x.known == serverB {
						w.promote(2, one, two, three)
					}
					lands(t, r, x.known)
					w.views[one] = view{master: serverA, epoch: 2, flags: "master,failover_in_progress,force_failover", replicas: []string{well, otherWell}}
					w.views[two] = view{master: x.others, epoch: x.epoch, replicas: []string{well}}
					w.views[three] = w.views[two]
					s, err := r.Succession(t.Context(), time.Now(), every)
					if (err != nil) != (x.replicas == 0) || s.Replicas != x.replicas {
						t.Errorf("Succession() = %+v, %v, want %d replicas", s, err, x.replicas)
					}
				})
			})
		}
	}
}

// TestSuccessionOfACallerThatLeaves: the inquiry goes on for the others, and for the next call. A sentinel that hangs would else keep callers of
// little patience from any answer.
func TestSuccessionOfACallerThatLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		r := w.resolver(one, two)
		lands(t, r, serverA)
		w.views[one] = view{master: serverA, epoch: 1, replicas: []string{replica("flags", "slave", "slave-repl-offset", "14")}}
		w.hung = two
		begin := time.Now()
		var patient sync.WaitGroup
		patient.Go(func() {
			time.Sleep(10 * time.Millisecond)
			if s, err := r.Succession(t.Context(), begin, true); err != nil || s.Replicas != 1 || time.Since(begin) > 250*time.Millisecond {
				t.Errorf("Succession() = %+v, %v after %v, want 1 replica within 250ms", s, err, time.Since(begin))
			}
		})
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if s, err := r.Succession(ctx, begin, true); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Succession() = %+v, %v, want DeadlineExceeded", s, err)
		}
		patient.Wait()
		asked := w.asked()
		if s, err := r.Succession(t.Context(), begin, true); err != nil || s.Replicas != 1 || w.asked() != asked {
			t.Errorf("Succession() = %+v, %v after %d questions, want the last answer", s, err, w.asked()-asked)
		}
	})
}

// TestSuccessionAskedByMany: callers wait for the same inquiry, and inquiries without success become rare.
func TestSuccessionAskedByMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		r := w.resolver(one, two, three)
		lands(t, r, serverA)
		w.views[two] = view{master: serverB, epoch: 1}
		before := w.asked()
		end := time.Now().Add(10 * time.Second)
		var callers sync.WaitGroup
		for range 20 {
			callers.Go(func() {
				for time.Now().Before(end) {
					if s, err := r.Succession(t.Context(), time.Now(), true); err == nil {
						t.Errorf("Succession() = %+v, want an error", s)
					}
					time.Sleep(5 * time.Millisecond)
				}
			})
		}
		callers.Wait()
		if n := w.asked() - before; n > 3*40 {
			t.Errorf("%d questions in 10 s", n)
		}
		w.views[two] = w.views[one]
		begin := time.Now()
		if _, err := r.Succession(t.Context(), begin, true); err != nil || time.Since(begin) > 750*time.Millisecond {
			t.Errorf("Succession() = %v after %v", err, time.Since(begin))
		}
	})
}

// TestSuccessionOfAHungSentinel: a caller whose patience a hung sentinel has used up does not ask the same one next time.
func TestSuccessionOfAHungSentinel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		r := w.resolver(one, two)
		lands(t, r, serverA)
		w.hung = one
		ask := func() error {
			ctx, cancel := context.WithTimeout(t.Context(), 900*time.Millisecond)
			defer cancel()
			_, err := r.Succession(ctx, time.Now(), false)
			return err
		}
		if err := ask(); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Succession() = %v, want DeadlineExceeded", err)
		}
		if err := ask(); err != nil {
			t.Errorf("the second Succession() = %v", err)
		}
	})
}

// TestSuccessionRefused: the error has the reason, a lack of a majority in words.
func TestSuccessionRefused(t *testing.T) {
	for reply, want := range map[string]string{"-NOQUORUM x\r\n": "majority", "-NOPERM x\r\n": "NOPERM x"} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld()
			r := w.resolver(one)
			lands(t, r, serverA)
			w.views[one] = view{master: serverA, epoch: 1, quorum: reply}
			if s, err := r.Succession(t.Context(), time.Time{}, false); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("Succession() = %+v, %v, want an error with %q", s, err, want)
			}
		})
	}
}

// TestSuccessionDisputed: the newest answer names another master, so an older view does not count.
func TestSuccessionDisputed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		r := w.resolver(one, two)
		lands(t, r, serverA)
		w.views[one] = view{master: serverB, epoch: 2}
		s, err := r.Succession(t.Context(), time.Time{}, false)
		if err == nil || !strings.Contains(err.Error(), "another master") {
			t.Errorf("Succession() = %+v, %v, want an error", s, err)
		}
	})
}

// TestSuccessionBare: Bare is true until an answer reports a replica, or another master.
func TestSuccessionBare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		r := w.resolver(one)
		lands(t, r, serverA)
		for _, test := range []struct {
			replicas []string
			bare     bool
		}{{nil, true}, {nil, true}, {[]string{replica("flags", "slave")}, false}, {nil, false}} {
			w.views[one] = view{master: serverA, epoch: 1, replicas: test.replicas}
			if s, err := r.Succession(t.Context(), time.Now(), false); err != nil || s.Bare != test.bare {
				t.Errorf("Succession() = %+v, %v, want Bare to be %v", s, err, test.bare)
			}
			time.Sleep(time.Second)
		}
	})
}
