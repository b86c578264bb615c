package lock_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/lock"
)

// replicated is a Pool of which others tell who is the master and how many replicas that has.
type replicated struct {
	*conn.Pool
	mu    sync.Mutex
	heirs conn.Succession
	fresh *conn.Succession // what is said now, if heirs is what has been said before
	every *conn.Succession // what all sentinels say now, if it is more than fresh
	mute  bool             // nothing is said now
	err   error

	timeless bool          // the time of a question is not said
	slow     time.Duration // of an answer of all
	asked    time.Time     // the last such answer was asked for
}

func (r *replicated) Replicated() bool { return true }

func (r *replicated) Succession(ctx context.Context, _ string, since time.Time) (conn.Succession, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.heirs
	if !since.IsZero() && r.fresh != nil {
		s = *r.fresh
	}
	if !since.IsZero() && r.every != nil && ctx.Value(conn.EverySentinel) == true {
		s = *r.every
	}
	if s.Asked.IsZero() && !r.timeless {
		s.Asked = time.Now()
	}
	if r.slow > 0 && ctx.Value(conn.EverySentinel) == true {
		if err := r.waitLocked(ctx, since); err != nil {
			return conn.Succession{}, err
		}
		s.Asked = r.asked
	}
	if !since.IsZero() && r.mute {
		return s, errors.New("no sentinel")
	}
	return s, r.err
}

// waitLocked waits for an answer of all, which does not depend on those who wait.
func (r *replicated) waitLocked(ctx context.Context, since time.Time) error {
	if r.asked.Before(since) {
		r.asked = time.Now()
	}
	rest := time.Until(r.asked.Add(r.slow))
	r.mu.Unlock()
	defer r.mu.Lock()
	select {
	case <-time.After(rest):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (r *replicated) tell(change func(r *replicated)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(r)
}

// inShard runs fn with a server that may have replicas, which says of itself what info returns.
func inShard(t *testing.T, cfg lock.Config, fn func(t *testing.T, w *world, r *replicated, c *lock.Client)) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		r := &replicated{Pool: w.pool(conn.Config{})}
		info, err := r.Do(t.Context(), "INFO", "server")
		if err != nil {
			t.Fatal(err)
		}
		text, _ := info.Text()
		_, id, _ := strings.Cut(text, "run_id:")
		id, _, _ = strings.Cut(id, "\r\n")
		r.heirs = conn.Succession{Master: id, Addr: "10.0.0.1:6379"}
		c, err := lock.New(r, cfg)
		if err != nil {
			t.Fatal(err)
		}
		w.machine.Run(c)
		w.pools, w.clients = append(w.pools, r.Pool), append(w.clients, c)
		fn(t, w, r, c)
	})
}

// attached has the server say that it has these replicas, each a state and a lag.
func (w *world) attached(replicas ...string) { w.attachedLater(replicas, replicas, 0) }

// attachedLater has the server say so of the replicas before a WAIT, and something else behind it. So many have come meanwhile.
func (w *world) attachedLater(replicas, later []string, came int) {
	w.replicasInfo(func(section string, waits int64) string {
		arrivals := int64(1)
		if waits > 0 {
			replicas, arrivals = later, arrivals+int64(came)
		}
		if section == "stats" {
			return statsOf(arrivals)
		}
		text := fmt.Sprintf("# Replication\r\nrole:master\r\nmaster_replid:1\r\nconnected_slaves:%d\r\n", len(replicas))
		for i, replica := range replicas {
			if !strings.HasPrefix(replica, "ip=") {
				replica = "ip=10.0.0.2,port=6379," + replica
			}
			text += fmt.Sprintf("slave%d:%s\r\n", i, replica)
		}
		return text
	})
}

// statsOf is a server's INFO stats after so many arrivals of replicas.
func statsOf(arrivals int64) string {
	return fmt.Sprintf("# Stats\r\nsync_full:%d\r\nsync_partial_ok:0\r\n", arrivals)
}

// replication has the server say so of its replicas. The number of arrivals is the caller's to change.
func (w *world) replication(text string) *atomic.Int64 {
	var arrivals atomic.Int64
	w.replicasInfo(func(section string, _ int64) string {
		if section == "stats" {
			return statsOf(arrivals.Load())
		}
		return text
	})
	return &arrivals
}

// checkAcks takes a lock, and fails unless it is granted, or for needed above 0 refused with these numbers.
func checkAcks(t *testing.T, c *lock.Client, needed, acked int) {
	t.Helper()
	lease, err := c.Reentrant("job").TryLock(t.Context())
	if needed == 0 {
		if err != nil {
			t.Fatalf("TryLock() = %v", err)
		}
		mustUnlock(t, lease)
	} else if e, ok := errors.AsType[*lock.NotReplicatedError](err); !ok || e.Needed != needed || e.Acked != acked {
		t.Errorf("TryLock() = %v, want one that needed %d and has %d", err, needed, acked)
	}
}

// replicasInfo has the server say of its replicas what text returns, in the sections stats and replication, after so many WAITs.
func (w *world) replicasInfo(text func(section string, waits int64) string) {
	waits := int64(0)
	w.srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
		if cmd.Name == "WAIT" {
			waits++
		}
		if cmd.Name != "INFO" || len(cmd.Args) < 2 {
			return fakeredis.Run()
		}
		section := strings.ToLower(cmd.Args[1])
		if section != "stats" && section != "replication" {
			return fakeredis.Run()
		}
		said := text(section, waits)
		return fakeredis.Reply(fmt.Sprintf("$%d\r\n%s\r\n", len(said), said))
	})
}

// A lock is granted without acknowledgement only where the server and others agree that there is no replica.
func TestGrantWithoutReplica(t *testing.T) {
	const live, lagging, syncing = "state=online,offset=1,lag=1", "state=online,offset=1,lag=9", "state=wait_bgsave,offset=0,lag=0"
	for name, x := range map[string]struct {
		change   func(r *replicated)
		replicas []string
		granted  bool // at once
		later    bool // when it has been so for three AckTimeouts
	}{
		"none, ever":                   {func(r *replicated) { r.heirs.Bare = true }, nil, true, true},
		"none any more":                {func(*replicated) {}, nil, false, true},
		"one that only others know":    {func(r *replicated) { r.heirs.Replicas = 1 }, nil, false, false},
		"one that only the server has": {func(r *replicated) { r.heirs.Bare = true }, []string{live}, false, false},
		"one that hangs and failed":    {func(*replicated) {}, []string{lagging}, false, true},
		"one that hangs":               {func(r *replicated) { r.heirs.Replicas = 1 }, []string{lagging}, false, false},
		"one that synchronizes":        {func(r *replicated) { r.heirs.Replicas = 1 }, []string{syncing}, false, true},
		"another server":               {func(r *replicated) { r.heirs.Master, r.heirs.Bare = "another", true }, nil, false, false},
		"nobody to ask":                {func(r *replicated) { r.err = errors.New("no sentinel") }, nil, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			inShard(t, lock.Config{}, func(t *testing.T, w *world, r *replicated, c *lock.Client) {
				r.tell(x.change)
				w.attached(x.replicas...)
				try := func() bool {
					t.Helper()
					lease, err := c.Reentrant("job").TryLock(t.Context())
					w.sleep(100 * time.Millisecond)
					if err != nil {
						e, ok := errors.AsType[*lock.NotReplicatedError](err)
						if !ok || e.Needed != 1 || e.Acked != 0 || e.Name != "job" {
							t.Errorf("TryLock() = %v", err)
						}
						return false
					}
					mustUnlock(t, lease)
					return true
				}
				if got := try(); got != x.granted {
					t.Errorf("at once: granted is %v", got)
				}
				begin := time.Now()
				got := try()
				for ; !got && time.Since(begin) < 20*time.Second; got = try() {
				}
				if got != x.later {
					t.Errorf("later: granted is %v", got)
				}
				if got && !x.granted && time.Since(begin) < 2*time.Second {
					t.Errorf("granted after %v", time.Since(begin))
				}
				if n := c.Stats().Unacknowledged; (n > 0) != x.later {
					t.Errorf("%d locks were granted without acknowledgement", n)
				}
				w.sleep(time.Minute)
			})
		})
	}
}

// All replicas acknowledge that could take the server's place. One that the server does not hear of any more may have done so already,
// and so may one that was away: then what others have said before does not count.
func TestAllAcknowledge(t *testing.T) {
	const live, syncing = "state=online,offset=1,lag=0", "state=send_bulk,offset=0,lag=0"
	const other, third = "ip=10.0.0.3,port=6379,", "ip=10.0.0.4,port=6379,"
	back, both := []string{"10.0.0.2:6379"}, []string{"10.0.0.2:6379", "10.0.0.3:6379"}
	for name, x := range map[string]struct {
		before   []string // the replicas that the server hears of when a lock is granted first
		known    conn.Succession
		replicas []string // and later
		fresh    conn.Succession
		acked    int
		needed   int // 0: the lock is granted
	}{
		"all":                                    {[]string{live, live}, conn.Succession{Replicas: 2}, []string{live, live}, conn.Succession{Replicas: 2}, 2, 0},
		"one of two hangs":                       {[]string{live, live}, conn.Succession{Replicas: 2}, []string{live, live}, conn.Succession{Replicas: 2}, 1, 2},
		"one has left":                           {[]string{live, live}, conn.Succession{Replicas: 2}, []string{live}, conn.Succession{Replicas: 2}, 1, 2},
		"one known to the server alone has left": {[]string{live, live}, conn.Succession{Replicas: 1}, []string{live}, conn.Succession{Replicas: 2}, 1, 2},
		"one is down":                            {[]string{live, live}, conn.Succession{Replicas: 2}, []string{live}, conn.Succession{Replicas: 1, Away: 1}, 1, 0},
		"one was away":                           {[]string{live}, conn.Succession{Replicas: 1, Away: 1}, []string{live}, conn.Succession{Replicas: 2}, 1, 2},
		"one still is away":                      {[]string{live}, conn.Succession{Replicas: 1, Away: 1}, []string{live}, conn.Succession{Replicas: 1, Away: 1}, 1, 0},
		"one comes":                              {[]string{live}, conn.Succession{Replicas: 1}, []string{live, live}, conn.Succession{Replicas: 1}, 1, 2},
		"one begins from scratch":                {[]string{live, live}, conn.Succession{Replicas: 2}, []string{live, other + syncing}, conn.Succession{Replicas: 2}, 1, 0},
		"from scratch over two connections":      {[]string{live, other + live, third + live}, conn.Succession{Replicas: 3}, []string{live, other + live, third + syncing, third + syncing}, conn.Succession{Replicas: 3}, 2, 0},
		"one connection lingers, and one has left": {[]string{live, other + live}, conn.Succession{Replicas: 2}, []string{live, syncing}, conn.Succession{Replicas: 2}, 1, 2},
		"the same, and one is promoted":            {[]string{live, other + live, third + live}, conn.Succession{Replicas: 3}, []string{live, third + syncing, third + syncing}, conn.Succession{Replicas: 3}, 1, 2},
		"one from scratch is promoted":             {[]string{live, other + syncing}, conn.Succession{Replicas: 2}, []string{live, other + syncing}, conn.Succession{Replicas: 2, Master: "another", Addr: "10.0.0.3:6379"}, 1, 1},
		"one is promoted, one is back":             {[]string{other + live}, conn.Succession{Replicas: 1, Away: 1, AwayAddrs: back}, []string{live}, conn.Succession{Replicas: 1, Away: 1, AwayAddrs: back}, 1, 2},
		"one is promoted, one synchronizes":        {[]string{other + live}, conn.Succession{Replicas: 1, Away: 1, AwayAddrs: back}, []string{syncing}, conn.Succession{Replicas: 1, Away: 1, AwayAddrs: back}, 0, 1},
		"both are there, one for the server":       {[]string{live, other + live}, conn.Succession{Replicas: 1, Away: 1, AwayAddrs: back}, []string{live, other + live}, conn.Succession{Replicas: 1, Away: 1, AwayAddrs: back}, 2, 0},
		"one comes, one is promoted":               {[]string{live, other + live}, conn.Succession{Replicas: 2, ReplicaAddrs: both}, []string{live, third + live}, conn.Succession{Replicas: 2, ReplicaAddrs: both}, 2, 3},
		"one comes in place of one that is down":   {[]string{live, other + live}, conn.Succession{Replicas: 2, ReplicaAddrs: both}, []string{live, third + live}, conn.Succession{Replicas: 1, ReplicaAddrs: back, Away: 1, AwayAddrs: both[1:]}, 2, 0},
		"one known by name begins from scratch":    {[]string{live, other + live}, conn.Succession{Replicas: 2, ReplicaAddrs: both}, []string{live, other + syncing}, conn.Succession{Replicas: 2, ReplicaAddrs: both}, 1, 0},
		"IPv6 is written in two ways":              {[]string{live, "ip=2001:DB8:0:0:0:0:0:1,port=6379," + live}, conn.Succession{Replicas: 2, ReplicaAddrs: []string{back[0], "[2001:db8::1]:6379"}}, []string{live, "ip=2001:DB8:0:0:0:0:0:1,port=6379," + live}, conn.Succession{Replicas: 2, ReplicaAddrs: []string{back[0], "[2001:db8::1]:6379"}}, 2, 0},
		"all have other names to the sentinels":    {[]string{live, other + live}, conn.Succession{Replicas: 2, ReplicaAddrs: []string{"a:6379", "b:6379"}}, []string{live, other + live}, conn.Succession{Replicas: 2, ReplicaAddrs: []string{"a:6379", "b:6379"}}, 2, 0},
		"the server was started anew":              {[]string{live}, conn.Succession{Replicas: 1}, []string{live}, conn.Succession{Replicas: 1, Master: "before"}, 1, 0},
		"another was the master for a moment":      {[]string{live}, conn.Succession{Replicas: 1, Away: 1}, []string{live}, conn.Succession{Replicas: 1, Away: 1, Master: "another", Changes: 2}, 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			inShard(t, lock.Config{}, func(t *testing.T, w *world, r *replicated, c *lock.Client) {
				say := func(s conn.Succession) conn.Succession {
					s.Addr = cmp.Or(s.Addr, r.heirs.Addr)
					if s.Master == "" {
						s.Master = r.heirs.Master
					}
					return s
				}
				r.tell(func(r *replicated) { r.heirs = say(x.known) })
				w.attached(x.before...)
				w.srv.Replicas(len(x.before))
				if lease, err := c.Reentrant("job").TryLock(t.Context()); err == nil {
					mustUnlock(t, lease)
				} else if x.known.Away == 0 {
					t.Fatalf("before: TryLock() = %v", err)
				}
				r.tell(func(r *replicated) {
					fresh := say(x.fresh)
					r.fresh = &fresh
					r.heirs.Master = fresh.Master
				})
				w.attached(x.replicas...)
				w.srv.Replicas(x.acked)
				checkAcks(t, c, x.needed, x.acked)
				w.sleep(time.Minute)
			})
		})
	}
}

// Lock goes on while no replica acknowledges, for as long as its context allows, and says what was lacking.
func TestLockWithoutAcknowledgement(t *testing.T) {
	inShard(t, lock.Config{Lease: 5 * time.Second}, func(t *testing.T, w *world, r *replicated, c *lock.Client) {
		r.tell(func(r *replicated) { r.heirs.Replicas = 1 })
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := c.Reentrant("job").Lock(ctx)
		wantErr(t, "Lock()", err, lock.ErrNotReplicated)
		wantErr(t, "Lock()", err, context.DeadlineExceeded)
		time.AfterFunc(30*time.Second, func() { w.srv.Replicas(1) })
		mustUnlock(t, mustLock(t, c, "job"))
		if n := c.Stats().Unacknowledged; n > 0 {
			t.Errorf("%d locks were granted without acknowledgement", n)
		}
		w.sleep(time.Minute)
	})
}

// A call with little time hears the answer of the server, though no replica acknowledges in that time.
func TestShortCallWithoutAcknowledgement(t *testing.T) {
	inShard(t, lock.Config{}, func(t *testing.T, w *world, r *replicated, c *lock.Client) {
		r.tell(func(r *replicated) { r.heirs.Replicas = 1 })
		w.srv.Replicas(1)
		taken := mustLock(t, c, "taken")
		w.srv.Replicas(0)
		for name, want := range map[string]error{"taken": lock.ErrNotAcquired, "free": lock.ErrNotReplicated} {
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			if _, err := c.Reentrant(name).TryLock(ctx); !errors.Is(err, want) || ctx.Err() != nil {
				t.Errorf("TryLock() of the %s lock = %v, want %v", name, err, want)
			}
		}
		w.srv.Replicas(1)
		mustUnlock(t, taken)
		w.sleep(time.Minute)
	})
}

// Acquires that are refused at once follow each other at a distance, though the undo of each tells those who wait.
func TestLockThatIsRefusedAtOnce(t *testing.T) {
	inShard(t, lock.Config{}, func(t *testing.T, w *world, r *replicated, c *lock.Client) {
		w.attached("state=online,offset=1,lag=0")
		w.srv.Replicas(1)
		mustUnlock(t, mustLock(t, c, "job"))
		r.tell(func(r *replicated) { r.heirs, r.err = conn.Succession{}, errors.New("no sentinel") })
		before := w.srv.Count("WAIT") // two in each request
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		_, err := c.Reentrant("job").Lock(ctx)
		wantErr(t, "Lock()", err, lock.ErrNotReplicated)
		if n := (w.srv.Count("WAIT") - before) / 2; n < 50 || n > 300 {
			t.Errorf("%d acquires in ten seconds", n)
		}
		w.sleep(time.Minute)
	})
}

// A renewal that no replica acknowledges does not move ValidUntil, and a lease that ends like that is lost.
func TestRenewalIsAcknowledged(t *testing.T) {
	inShard(t, lock.Config{Lease: 6 * time.Second}, func(t *testing.T, w *world, r *replicated, c *lock.Client) {
		r.tell(func(r *replicated) { r.heirs.Replicas = 1 })
		w.srv.Replicas(1)
		lease := mustLock(t, c, "job")
		write, err := c.ReadWrite("rw").Write().Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		w.sleep(20 * time.Second)
		if err := errors.Join(lease.Err(), write.Err()); err != nil {
			t.Fatalf("with a replica: %v", err)
		}
		w.srv.Replicas(0)
		until, written := lease.ValidUntil(), write.ValidUntil()
		w.sleep(3 * time.Second)
		read, err := write.Downgrade(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if now := lease.ValidUntil(); now.After(until) {
			t.Errorf("ValidUntil has moved by %v", now.Sub(until))
		}
		if now := read.ValidUntil(); now.After(written) {
			t.Errorf("ValidUntil has moved by %v with the downgrade", now.Sub(written))
		}
		w.srv.Replicas(1)
		w.sleep(2 * time.Second)
		if !lease.ValidUntil().After(until) {
			t.Error("ValidUntil has not moved since the replica acknowledges again")
		}
		w.srv.Replicas(0)
		w.sleep(8 * time.Second)
		lostBecause(t, lease.Err(), lock.Unreachable)
		wantErr(t, "Err()", lease.Err(), lock.ErrNotReplicated)
		lostBecause(t, read.Err(), lock.Unreachable)
		w.sleep(time.Minute)
	})
}

// A round of renewals takes two writes if the server lacks one of the scripts. A replica takes the server's place in between: the replicas of
// the next server do not acknowledge what the former one has run.
func TestRenewalsOnTwoServers(t *testing.T) {
	inShard(t, lock.Config{Lease: 6 * time.Second}, func(t *testing.T, w *world, r *replicated, c *lock.Client) {
		r.tell(func(r *replicated) { r.heirs.Replicas = 1 })
		w.srv.Replicas(1)
		lease := mustLock(t, c, "job")
		read, err := c.ReadWrite("rw").Read().Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		w.sleep(time.Second) // the client listens now, and has renewed its leases because of that
		until := lease.ValidUntil()
		var writes atomic.Int64 // of the round
		w.srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
			switch {
			case isScript(cmd, "renew") && writes.Load() == 0: // the next server hears nothing of it
				return fakeredis.Reply("*1\r\n:1\r\n")
			case isScriptOf("read", cmd, "renew") && writes.Load() == 0:
				return fakeredis.Reply("-NOSCRIPT No matching script.\r\n")
			case cmd.Name == "WAIT" && cmd.Args[1] != "0":
				if writes.Add(1) == 1 {
					r.tell(func(r *replicated) { r.heirs.Master, r.heirs.Addr, r.heirs.Changes = "next", "10.0.0.2:6379", 1 })
				}
			case cmd.Name == "INFO" && strings.EqualFold(cmd.Args[1], "server") && writes.Load() > 0:
				return fakeredis.Reply("+run_id:next\r\n")
			}
			return fakeredis.Run()
		})
		w.sleep(time.Until(until) - 3920*time.Millisecond) // just after the round, before the next
		if now := lease.ValidUntil(); writes.Load() != 2 || now.After(until) {
			t.Errorf("after %d writes: ValidUntil has moved by %v", writes.Load(), now.Sub(until))
		}
		w.sleep(time.Second)
		if now := lease.ValidUntil(); !now.After(until) {
			t.Errorf("after %d writes: ValidUntil has not moved", writes.Load())
		}
		w.srv.Intercept(nil)
		r.tell(func(r *replicated) { r.heirs.Master = "" })
		mustUnlock(t, lease)
		mustUnlock(t, read)
		w.sleep(time.Minute)
	})
}

// Replicas acknowledge a downgrade: the read lease then counts from it. Without them it counts from the start of the write lease.
func TestDowngradeIsAcknowledged(t *testing.T) {
	inShard(t, lock.Config{Lease: 6 * time.Second}, func(t *testing.T, w *world, r *replicated, c *lock.Client) {
		r.tell(func(r *replicated) { r.heirs.Replicas = 1 })
		for replicas, counts := range []bool{false, true} {
			w.srv.Replicas(1)
			write := mustWrite(t, c)
			w.sleep(time.Second)
			w.srv.Replicas(replicas)
			begin := time.Now()
			read := mustDowngrade(t, write)
			if moved := read.ValidUntil().After(write.ValidUntil()); moved != counts {
				t.Errorf("with %d replicas: a lease of %v, moved: %v", replicas, time.Until(read.ValidUntil()), moved)
			}
			if waited := time.Since(begin) >= time.Second; waited == counts {
				t.Errorf("with %d replicas: it took %v, and the AckTimeout is a second", replicas, time.Since(begin))
			}
			w.srv.Replicas(1)
			mustUnlock(t, read)
		}
		w.sleep(time.Minute)
	})
}

// A fixed lease is downgraded without acknowledgement, after some time for the count of the replicas: it ends when the write lease would have.
func TestDowngradeOfAFixedLeaseWithoutAcknowledgement(t *testing.T) {
	inShard(t, lock.Config{}, func(t *testing.T, w *world, r *replicated, c *lock.Client) {
		r.tell(func(r *replicated) { r.heirs.Replicas = 1 })
		w.srv.Replicas(1)
		write := mustWrite(t, c, lock.For(20*time.Second))
		w.srv.Replicas(0)
		_, err := c.Reentrant("other").TryLock(t.Context()) // the next request counts the replicas
		wantErr(t, "TryLock()", err, lock.ErrNotReplicated)
		w.srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
			if cmd.Name == "INFO" {
				return fakeredis.Delay(2*time.Second, fakeredis.Run())
			}
			return fakeredis.Run()
		})
		read := mustDowngrade(t, write)
		w.srv.Intercept(nil)
		if until, written := read.ValidUntil(), write.ValidUntil(); until.After(written.Add(200 * time.Millisecond)) { // 1 % of 20 s
			t.Errorf("the read lease ends %v later", until.Sub(written))
		}
		mustUnlock(t, read)
		w.sleep(time.Minute)
	})
}

// Where nobody acknowledges, a renewal after one that failed, or that is answered late, counts when another one is done too.
func TestRenewalIsConfirmed(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{Lease: 6 * time.Second})
		lease := mustLock(t, c, "job")
		w.sleep(time.Second)
		until := lease.ValidUntil()
		var renewed atomic.Int64
		w.srv.Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
			if !isScript(cmd, "renew") {
				return fakeredis.Run()
			}
			switch renewed.Add(1) {
			case 1:
				return fakeredis.Delay(700*time.Millisecond, fakeredis.Run())
			case 2:
				return fakeredis.Delay(500*time.Millisecond, fakeredis.Run())
			}
			return fakeredis.Run()
		})
		w.sleep(1800 * time.Millisecond) // the first renewal has its answer, the second one has not
		if now := lease.ValidUntil(); renewed.Load() != 2 || now.After(until) {
			t.Errorf("after %d renewals: ValidUntil has moved by %v", renewed.Load(), now.Sub(until))
		}
		w.sleep(600 * time.Millisecond)
		if now := lease.ValidUntil(); renewed.Load() != 2 || !now.After(until.Add(2*time.Second)) {
			t.Errorf("after %d renewals: ValidUntil has moved by %v", renewed.Load(), now.Sub(until))
		}
		mustUnlock(t, lease)
	})
}

// Too few replicas, and one lock under two addresses, are reported without a hidden name.
func TestHiddenNames(t *testing.T) {
	hide := lock.Config{ShowName: func(string) string { return "(hidden)" }}
	inShard(t, hide, func(t *testing.T, w *world, r *replicated, c *lock.Client) {
		r.tell(func(r *replicated) { r.heirs.Replicas = 1 })
		_, err := c.Reentrant("job").TryLock(t.Context())
		if want := "lock: too few replicas have acknowledged the lock: 0 of 1 within 1s, of (hidden) on 10.0.0.1:6379"; err == nil || err.Error() != want {
			t.Errorf("TryLock() = %v, want %s", err, want)
		}
	})
	inVirtualTime(t, func(t *testing.T, w *world) {
		m := newMulti(t, w.client(hide).Reentrant("job"), w.client(hide).Reentrant("job"))
		_, err := m.TryLock(t.Context())
		if want := "lock (hidden): invalid: twice, under two addresses of one server"; err == nil || err.Error() != want {
			t.Errorf("TryLock() of a Multi = %v, want %s", err, want)
		}
	})
}
