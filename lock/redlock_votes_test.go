package lock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/lock"
)

// INFO goes ahead of a vote also where a server has forgotten the script, more than once: an earlier INFO may be that of another process.
func TestRedlockVoteWithoutTheScript(t *testing.T) {
	inFleet(t, 3, func(t *testing.T, f fleet) {
		r := f.process(lock.Config{}).redlock(t, lock.RedlockConfig{}, false)
		mustUnlock(t, lockRed(t, r))
		loaded := false
		for range 2 { // the source goes by EVAL the first time
			synctest.Wait()
			f[0].srv.Do("SCRIPT", "FLUSH")
			f[0].srv.ClearLog()
			lease := lockRed(t, r)
			synctest.Wait()
			var sent []string
			for _, cmd := range f[0].srv.Log() {
				sent = append(sent, cmd.Name)
			}
			all := strings.Join(sent, " ")
			if ahead := strings.ReplaceAll(all, "INFO SCRIPT EVALSHA", "INFO EVALSHA"); strings.Count(ahead, "INFO EVAL") != strings.Count(ahead, "EVAL") {
				t.Errorf("server 0 got %s, want INFO ahead of each vote", all)
			}
			loaded = loaded || strings.Contains(all, "SCRIPT")
			mustUnlock(t, lease)
		}
		if !loaded {
			t.Error("no SCRIPT LOAD was needed")
		}
	})
}

// A TryLock without a majority says whose fault that is: ErrNotAcquired only if the lock is somebody else's on so many servers
// that all the others would be too few. Else the error names the servers that could not be asked.
func TestRedlockVerdicts(t *testing.T) {
	for _, test := range []struct {
		down, taken int // of five servers, the first ones and those behind them
		want        error
	}{
		{0, 3, lock.ErrNotAcquired}, {0, 5, lock.ErrNotAcquired}, {1, 3, lock.ErrNotAcquired}, {2, 3, lock.ErrNotAcquired},
		{1, 2, lock.ErrNoQuorum}, {2, 1, lock.ErrNoQuorum}, {2, 2, lock.ErrNoQuorum}, {3, 0, lock.ErrNoQuorum},
		{3, 2, lock.ErrNoQuorum}, {4, 1, lock.ErrNoQuorum}, {5, 0, lock.ErrNoQuorum}, {2, 0, nil}, {0, 2, nil}, {1, 1, nil},
	} {
		for _, mute := range []bool{false, true} {
			t.Run(fmt.Sprint(test.down, " down, ", test.taken, " taken, mute ", mute), func(t *testing.T) {
				inFleet(t, 5, func(t *testing.T, f fleet) {
					mine, other := f.process(lock.Config{}), f.process(lock.Config{})
					for _, c := range other[test.down : test.down+test.taken] {
						mustLock(t, c, "job")
					}
					for _, w := range f[:test.down] {
						if mute {
							w.srv.Mute(true)
						} else {
							w.srv.Refuse(true)
							w.srv.KillConns(nil)
						}
					}
					r := mine.redlock(t, lock.RedlockConfig{}, false)
					lease, err := r.TryLock(t.Context())
					switch {
					case test.want == nil:
						if err != nil {
							t.Fatalf("TryLock() = %v", err)
						}
						mustUnlock(t, lease)
					case !errors.Is(err, test.want) || errors.Is(err, lock.ErrNotAcquired) != (test.want == lock.ErrNotAcquired):
						t.Errorf("TryLock() = %v, want %v", err, test.want)
					case test.want == lock.ErrNoQuorum:
						for i := range 5 {
							if named := strings.Contains(err.Error(), fmt.Sprintf("node %d", i+1)); named && i >= test.down {
								t.Errorf("TryLock() = %v, which blames node %d", err, i+1)
							}
						}
						if !strings.Contains(err.Error(), "node ") {
							t.Errorf("TryLock() = %v, want the servers' names in it", err)
						}
					}
					f.recover()
				})
			})
		}
	}
}

// The context of a TryLock may end before the servers answer: that is no refusal either.
func TestRedlockVerdictOfAnEarlyEnd(t *testing.T) {
	inFleet(t, 5, func(t *testing.T, f fleet) {
		mine, other := f.process(lock.Config{}), f.process(lock.Config{})
		mustLock(t, other[0], "job")
		for _, w := range f[1:] {
			w.srv.Mute(true)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		_, err := mine.redlock(t, lock.RedlockConfig{NodeTimeout: time.Second}, false).TryLock(ctx)
		if !errors.Is(err, lock.ErrNoQuorum) || !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, lock.ErrNotAcquired) {
			t.Errorf("TryLock() = %v", err)
		}
		f.recover()
	})
}

// recover has all servers answer again, and waits for what is taken back.
func (f fleet) recover() {
	for _, w := range f {
		w.srv.Mute(false)
		w.srv.Refuse(false)
	}
	f[0].sleep(10 * time.Second)
}

// What is left of a Redlock when a server has lost its part lasts until the first of a bare majority ends, and no longer: the
// part that is gone does not count, though it would have ended later.
func TestRedlockValidWithoutALostPart(t *testing.T) {
	inFleet(t, 3, func(t *testing.T, f fleet) {
		r := f.process(lock.Config{}).redlock(t, lock.RedlockConfig{Quarantine: -1}, false)
		lease := lockRed(t, r)
		synctest.Wait()
		time.Sleep(9 * time.Second)
		f[0].srv.Mute(true) // so that its part is not renewed like the others
		time.Sleep(2 * time.Second)
		parts := slices.Clone(lease.Members())
		slices.SortFunc(parts, func(a, b *lock.Lease) int { return a.ValidUntil().Compare(b.ValidUntil()) })
		if !parts[0].ValidUntil().Before(parts[1].ValidUntil()) {
			t.Fatal("all parts have been renewed")
		}
		f.loses(parts[1].Owner())
		if err := parts[1].Check(t.Context()); err == nil {
			t.Fatal("Check() of a part that is gone = nil")
		}
		if got, want := lease.ValidUntil(), parts[0].ValidUntil(); !got.Equal(want) || lease.Err() != nil {
			t.Errorf("ValidUntil() = %v, want %v, the earlier end of the two parts that are left", got, want)
		}
		f[0].srv.Mute(false)
		mustUnlock(t, lease)
	})
}

// loses frees the lock on the server where an owner has it.
func (f fleet) loses(owner string) {
	for i, holder := range f.holders("job") {
		if holder == owner {
			f[i].srv.Do("DEL", "job")
		}
	}
}

// Servers that were restarted have forgotten what they granted. If they vote, two have the lock, each time; that shows what
// the quarantine is for, and that overlaps finds in the storm what there is to find.
func TestRedlockRestartInsideTheLease(t *testing.T) {
	for name, cfg := range map[string]lock.RedlockConfig{"quarantine": {}, "off": {Quarantine: -1}} {
		for _, plain := range []bool{false, true} {
			for _, n := range []int{3, 5} {
				t.Run(fmt.Sprintf("%s, plain %v, %d servers", name, plain, n), func(t *testing.T) {
					inFleet(t, n, func(t *testing.T, f fleet) { restartInsideTheLease(t, f, cfg, plain) })
				})
			}
		}
	}
}

// restartInsideTheLease has one process take the lock on a bare majority of the servers, of which all but one forget it
// then, and another one try.
func restartInsideTheLease(t *testing.T, f fleet, cfg lock.RedlockConfig, plain bool) {
	first := f.process(lock.Config{}).redlock(t, cfg, plain)
	second := f.process(lock.Config{}).redlock(t, cfg, plain)
	mustUnlock(t, lockRed(t, second))
	f.free()
	quorum := len(f)/2 + 1
	for _, w := range f[quorum:] {
		w.srv.Refuse(true)
		w.srv.KillConns(nil)
	}
	var all []relied
	lease := lockRed(t, first)
	from := time.Now()
	f[0].sleep(time.Second) // in which the others might still grant it
	for _, w := range f[1:quorum] {
		w.srv.Restart()
	}
	for _, w := range f[quorum:] {
		w.srv.Refuse(false)
	}
	f[0].sleep(3 * time.Second)
	other, err := second.TryLock(t.Context())
	if err == nil {
		all = append(all, relied{time.Now(), time.Now().Add(time.Second)})
		f[0].sleep(time.Second)
		mustUnlock(t, other)
	}
	if err := lease.Err(); err != nil {
		t.Fatalf("Err() before the first renewal = %v", err)
	}
	all = append(all, relied{from, time.Now()})
	if n := overlaps(all); cfg.Quarantine < 0 && n != 1 {
		t.Errorf("without quarantine TryLock() = %v, %d overlap, want both to have it", err, n)
	} else if cfg.Quarantine >= 0 {
		wantErr(t, "TryLock() while a majority has not forgotten, or has no vote", err, lock.ErrNoQuorum)
	}
	f[0].sleep(8 * time.Second)
	lostBecause(t, lease.Err(), lock.Forced)
	if err := lease.Unlock(t.Context()); err == nil {
		t.Error("Unlock() of what servers forgot succeeded")
	}
	f[0].sleep(30 * time.Second)
	mustUnlock(t, lockRed(t, second))
	f.free()
}

// answers has the server of w answer commands with texts, by the beginning of the command.
func (w *world) answers(texts map[string]string) {
	w.srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
		for begin, text := range texts {
			if strings.HasPrefix(strings.ToUpper(cmd.String()), begin) {
				if !strings.HasPrefix(text, "-") && !strings.HasPrefix(text, "*") {
					text = fmt.Sprintf("$%d\r\n%s", len(text), text)
				}
				return fakeredis.Reply(text + "\r\n")
			}
		}
		return fakeredis.Run()
	})
}

// What a server says of itself decides whether it votes.
func TestRedlockWhoVotes(t *testing.T) {
	const yes = "*2\r\n$10\r\nappendonly\r\n$3\r\nyes"
	const always = "*2\r\n$11\r\nappendfsync\r\n$6\r\nalways"
	const during = "*2\r\n$25\r\nno-appendfsync-on-rewrite\r\n$2\r\nno"
	const notDuring = "*2\r\n$25\r\nno-appendfsync-on-rewrite\r\n$3\r\nyes"
	const everysec = "*2\r\n$11\r\nappendfsync\r\n$8\r\neverysec"
	for name, c := range map[string]struct {
		texts map[string]string
		votes bool
	}{
		"up for long":         {map[string]string{"INFO": "run_id:ID\r\nuptime_in_seconds:32"}, true},
		"up for the lease":    {map[string]string{"INFO": "run_id:ID\r\nuptime_in_seconds:30"}, false},
		"writes always":       {map[string]string{"INFO": "run_id:ID\r\nuptime_in_seconds:0", "CONFIG GET APPENDONLY": yes, "CONFIG GET APPENDFSYNC": always, "CONFIG GET NO-APPENDFSYNC-ON-REWRITE": during}, true},
		"but not on rewrite":  {map[string]string{"INFO": "run_id:ID\r\nuptime_in_seconds:0", "CONFIG GET APPENDONLY": yes, "CONFIG GET APPENDFSYNC": always, "CONFIG GET NO-APPENDFSYNC-ON-REWRITE": notDuring}, false},
		"writes every second": {map[string]string{"INFO": "run_id:ID\r\nuptime_in_seconds:0", "CONFIG GET APPENDONLY": yes, "CONFIG GET APPENDFSYNC": everysec}, false},
		"no CONFIG":           {map[string]string{"INFO": "run_id:ID\r\nuptime_in_seconds:0", "CONFIG": "-NOPERM no"}, false},
		"no INFO":             {map[string]string{"INFO": "-NOPERM no"}, false},
		"no uptime":           {map[string]string{"INFO": "run_id:ID"}, false},
		"uptime no number":    {map[string]string{"INFO": "run_id:ID\r\nuptime_in_seconds:-9999999999999999999"}, false},
		"no run_id":           {map[string]string{"INFO": "uptime_in_seconds:1000"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			inFleet(t, 3, func(t *testing.T, f fleet) {
				for i, w := range f[:2] {
					texts := map[string]string{}
					for begin, text := range c.texts {
						texts[begin] = strings.ReplaceAll(text, "ID", fmt.Sprint("id", i))
					}
					w.answers(texts)
				}
				r := f.process(lock.Config{}).redlock(t, lock.RedlockConfig{}, false)
				lease, err := r.TryLock(t.Context())
				if c.votes != (err == nil) {
					t.Errorf("TryLock() = %v, want votes %v", err, c.votes)
				}
				if err == nil {
					mustUnlock(t, lease)
				} else {
					wantErr(t, "TryLock()", err, lock.ErrNoQuorum)
				}
				f.free()
			})
		})
	}
}

// Another server behind the address, up for long, is as good as one that has just been started: a replica that was promoted
// may have missed what the master granted, whatever it writes to its disk. A clock of the client that jumps makes it no older.
func TestRedlockAnotherServerBehindTheAddress(t *testing.T) {
	inFleet(t, 3, func(t *testing.T, f fleet) {
		r := f.process(lock.Config{}).redlock(t, lock.RedlockConfig{}, false)
		mustUnlock(t, lockRed(t, r))
		f[0].sleep(time.Minute)
		for i, w := range f[:2] {
			w.answers(map[string]string{
				"INFO":                                 fmt.Sprintf("run_id:other%d\r\nuptime_in_seconds:1000", i),
				"CONFIG GET APPENDONLY":                "*2\r\n$10\r\nappendonly\r\n$3\r\nyes",
				"CONFIG GET APPENDFSYNC":               "*2\r\n$11\r\nappendfsync\r\n$6\r\nalways",
				"CONFIG GET NO-APPENDFSYNC-ON-REWRITE": "*2\r\n$25\r\nno-appendfsync-on-rewrite\r\n$2\r\nno",
			})
			w.machine.Sleep(time.Hour) // or its clock is wrong
		}
		_, err := r.TryLock(t.Context())
		wantErr(t, "TryLock()", err, lock.ErrNoQuorum)
		f[0].sleep(time.Second) // for what was granted to be given back
		for _, w := range f {
			w.machine.Sleep(time.Hour)
		}
		_, err = r.TryLock(t.Context())
		wantErr(t, "TryLock() when the clock says that an hour has passed", err, lock.ErrNoQuorum)
		f[0].sleep(31 * time.Second)
		mustUnlock(t, lockRed(t, r))
		f.free()
	})
}

// relied is how long one of many relied on the lock.
type relied struct{ from, to time.Time }

// overlaps is how many of the times overlap the one before.
func overlaps(all []relied) (n int) {
	slices.SortFunc(all, func(a, b relied) int { return a.from.Compare(b.from) })
	for i := 1; i < len(all); i++ {
		if all[i].from.Before(all[i-1].to) {
			n++
		}
		if all[i].to.Before(all[i-1].to) {
			all[i].to = all[i-1].to
		}
	}
	return n
}

// In a storm of servers that are stopped, cut off, and restarted empty, no two processes have the lock at the same time, and
// when it is over each of them gets it. That two would have it without quarantine shows TestRedlockRestartInsideTheLease.
func TestRedlockStorm(t *testing.T) {
	for name, plain := range map[string]bool{"hashes": false, "plain": true} {
		t.Run(name, func(t *testing.T) {
			seed := uint64(time.Now().UnixNano())
			defer func() {
				if t.Failed() {
					t.Logf("seed %d", seed)
				}
			}()
			inFleet(t, 5, func(t *testing.T, f fleet) {
				all := redStorm(t, f, plain, seed)
				if n := overlaps(all); n > 0 {
					t.Errorf("%d of %d overlap", n, len(all))
				}
			})
		})
	}
}

// redStorm has six processes take the lock again and again while the servers have faults, for 30 s or, in make torture, 5 minutes,
// and until each has had it once more after that.
func redStorm(t *testing.T, f fleet, plain bool, seed uint64) []relied {
	var mu sync.Mutex
	var all []relied
	var wg sync.WaitGroup
	storm := 30 * time.Second
	if os.Getenv("LOCKWIRE_TORTURE") == "1" {
		storm = 5 * time.Minute
	}
	calm := time.Now().Add(storm)
	for i := range 6 {
		r := f.process(lock.Config{Lease: 2 * time.Second}).redlock(t, lock.RedlockConfig{}, plain)
		random := rand.New(rand.NewPCG(seed, uint64(i)))
		wg.Go(func() {
			for from := time.Now(); from.Before(calm); {
				lease, err := r.Lock(t.Context())
				if err != nil {
					continue
				}
				from = time.Now()
				select {
				case <-lease.Lost():
				case <-time.After(time.Duration(random.Int64N(int64(4 * time.Second)))):
				}
				to := time.Now()
				_ = lease.Unlock(t.Context()) // it may have been lost
				mu.Lock()
				all = append(all, relied{from, to})
				mu.Unlock()
			}
		})
	}
	random := rand.New(rand.NewPCG(seed, 1000))
	for time.Now().Before(calm) {
		f[0].sleep(time.Duration(random.Int64N(int64(time.Second))))
		srv := f[random.IntN(len(f))].srv
		switch random.IntN(6) {
		case 0, 1:
			srv.Restart()
		case 2:
			srv.Mute(true)
			wg.Go(func() { f[0].sleep(3 * time.Second); srv.Mute(false); srv.KillConns(nil) })
		case 3:
			srv.Stall(true)
			wg.Go(func() { f[0].sleep(1500 * time.Millisecond); srv.Stall(false) })
		case 4:
			srv.Latency(time.Duration(random.Int64N(int64(15 * time.Millisecond))))
		case 5:
			srv.ResetConns(nil)
		}
	}
	for _, w := range f {
		w.srv.Latency(0)
	}
	wg.Wait()
	if took := time.Since(calm); took > 5*time.Minute {
		t.Errorf("six turns of four seconds at most took %v", took)
	}
	f[0].sleep(latchLife) // of a release that was given up
	for _, w := range f {
		w.free()
	}
	return all
}

// A part that came late ends the whole as punctually as the others do.
func TestRedlockLateGrantIsWatched(t *testing.T) {
	inFleet(t, 3, func(t *testing.T, f fleet) {
		r := f.process(lock.Config{}).redlock(t, lock.RedlockConfig{}, false)
		mustUnlock(t, lockRed(t, r))
		f.free()
		f[2].onScript("acquire", func(int) fakeredis.Action { return fakeredis.Delay(100*time.Millisecond, fakeredis.Run()) })
		lease := lockRed(t, r)
		lost := lease.Lost()
		f[0].sleep(time.Second)
		f[0].srv.Do("DEL", "job")
		f[0].sleep(12 * time.Second)
		f[2].srv.Intercept(nil)
		f[2].srv.Mute(true)
		until := lease.ValidUntil()
		<-lost
		if late := time.Since(until); late > time.Millisecond {
			t.Errorf("told %v after the end", late)
		}
		f[2].srv.Mute(false)
		_ = lease.Unlock(t.Context()) // for a moment two of the servers have it still
		f[0].sleep(10 * time.Second)
		f.free()
	})
}

// Ten goroutines of two processes read a counter, work for a second, and write it, five times each, and count to fifty. What
// Redisson's tests do with seven locks on two servers, which is refused here, is done with three on three.
func TestRedlockCounts(t *testing.T) {
	wait := func(ctx context.Context, r *lock.Redlock) (*lock.Lease, error) {
		ctx, cancel := context.WithTimeout(ctx, 4*time.Second)
		defer cancel()
		return r.Lock(ctx, lock.For(2*time.Second))
	}
	for name, take := range map[string]func(context.Context, *lock.Redlock) (*lock.Lease, error){
		"Seconds": func(ctx context.Context, r *lock.Redlock) (*lock.Lease, error) {
			return r.Lock(ctx, lock.For(2*time.Second))
		},
		"Minutes": func(ctx context.Context, r *lock.Redlock) (*lock.Lease, error) {
			return r.Lock(ctx, lock.For(time.Minute))
		},
		"WithinAWait": func(ctx context.Context, r *lock.Redlock) (*lock.Lease, error) {
			lease, err := wait(ctx, r)
			for errors.Is(err, lock.ErrNotAcquired) {
				lease, err = wait(ctx, r)
			}
			return lease, err
		},
	} {
		t.Run(name, func(t *testing.T) {
			inFleet(t, 3, func(t *testing.T, f fleet) {
				processes := []process{f.process(lock.Config{Lease: time.Minute}), f.process(lock.Config{Lease: time.Minute})}
				counter, start := 0, time.Now()
				var mu sync.Mutex // for the race detector: the lock is what excludes
				read := func() int { mu.Lock(); defer mu.Unlock(); return counter }
				var wg sync.WaitGroup
				for i := range 10 {
					r := processes[i%2].redlock(t, lock.RedlockConfig{}, false)
					wg.Go(func() {
						for range 5 {
							lease, err := take(t.Context(), r)
							if err != nil {
								t.Errorf("Lock() = %v", err)
								return
							}
							value := read()
							f[0].sleep(time.Second)
							mu.Lock()
							counter = value + 1
							mu.Unlock()
							if err := lease.Unlock(t.Context()); err != nil {
								t.Errorf("Unlock() = %v", err)
							}
						}
					})
				}
				wg.Wait()
				if took := time.Since(start); counter != 50 || took > 2*time.Minute {
					t.Errorf("counted to %d in %v, want 50 within two minutes", counter, took)
				}
				f.free()
			})
		})
	}
}

// After Close, servers that do not answer hold up the release on no other server, and Unlock waits for all of them together.
func TestRedlockUnlockAfterClose(t *testing.T) {
	inFleet(t, 5, func(t *testing.T, f fleet) {
		p := f.process(lock.Config{})
		lease := lockRed(t, p.redlock(t, lock.RedlockConfig{}, false))
		synctest.Wait() // for all five
		for _, c := range p {
			if err := c.Close(); err != nil {
				t.Fatal(err)
			}
		}
		f[0].srv.Mute(true)
		f[1].srv.Mute(true)
		start := time.Now()
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := lease.Unlock(t.Context()); err != nil {
				t.Errorf("Unlock() = %v", err)
			}
			if took := time.Since(start); took > 10*time.Second {
				t.Errorf("Unlock() took %v, want 10s at most", took)
			}
		})
		synctest.Wait()
		for i, w := range f[2:] {
			if w.srv.Do("EXISTS", "job") != int64(0) {
				t.Errorf("the lock is still taken on server %d", i+2)
			}
		}
		wg.Wait()
	})
}

// A vote whose time is over before its request has begun, as after a stop of the process, is no refusal.
func TestVoteThatBeganTooLate(t *testing.T) {
	var f fleet
	for range 3 {
		w := &world{t: t, srv: fakeredis.New()}
		teach(w.srv)
		defer w.close()
		f = append(f, w)
	}
	p := f.process(lock.Config{Lease: time.Second})
	r := p.redlock(t, lock.RedlockConfig{NodeTimeout: 1, Quarantine: -1}, false)
	_, err := r.TryLock(t.Context())
	if errors.Is(err, lock.ErrNotAcquired) {
		t.Errorf("TryLock() of a free lock that no server was asked for = %v, want ErrNoQuorum", err)
	}
}

// After Close, Unlock of a Redlock or a Multi has its whole time, as of a single lock.
func TestUnlockOfManyAfterClose(t *testing.T) {
	for name, locked := range map[string]func(t *testing.T, p process) *lock.Lease{
		"Multi": func(t *testing.T, p process) *lock.Lease {
			return lockMulti(t, newMulti(t, p[0].Reentrant("job"), p[1].Reentrant("job")))
		},
		"Redlock": func(t *testing.T, p process) *lock.Lease {
			return lockRed(t, p.redlock(t, lock.RedlockConfig{}, false))
		},
	} {
		t.Run(name, func(t *testing.T) {
			inFleet(t, 3, func(t *testing.T, f fleet) {
				p := f.process(lock.Config{})
				l := locked(t, p)
				synctest.Wait()
				for i, c := range p {
					_ = c.Close()
					f[i].srv.Stall(true)
					time.AfterFunc(1500*time.Millisecond, func() { f[i].srv.Stall(false) })
				}
				wantOK(t, "Unlock", l.Unlock(t.Context()))
				f[0].sleep(40 * time.Second)
			})
		})
	}
}
