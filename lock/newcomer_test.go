package lock_test

import (
	"cmp"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/lock"
)

// A replica that comes while the others are waited for acknowledges in place of one that is promoted, and WAIT does not tell. The replica may
// have gone by the time of the next question.
func TestNewcomerDoesNotAcknowledge(t *testing.T) {
	const live, syncing, lagging = "state=online,offset=1,lag=0", "state=send_bulk,offset=0,lag=0", "state=online,offset=1,lag=9"
	const other = "ip=10.0.0.3,port=6379,"
	oneAway := conn.Succession{Replicas: 1, Away: 1, AwayAddrs: []string{"10.0.0.2:6379"}}
	for name, x := range map[string]struct {
		known         conn.Succession
		before, later []string
		came          int
		needed, acked int // 0 needed: the lock is granted
	}{
		"one was away, one has left":     {oneAway, nil, []string{live}, 0, 1, 0},
		"one has left":                   {conn.Succession{Replicas: 1}, nil, []string{other + live}, 0, 1, 0},
		"one synchronized":               {conn.Succession{Replicas: 2}, []string{syncing, other + live}, []string{live, other + live}, 0, 1, 0},
		"one synchronized, both left":    {oneAway, []string{syncing, other + live}, nil, 0, 1, 0},
		"one was silent, and has left":   {oneAway, []string{lagging, other + live}, []string{other + live}, 0, 1, 0},
		"one came, and has left":         {oneAway, []string{other + live}, []string{other + live}, 1, 1, 0},
		"one came, and synchronizes":     {oneAway, []string{other + live}, []string{syncing, other + live}, 1, 0, 1},
		"one synchronizes all the while": {oneAway, []string{syncing, other + live}, []string{syncing, other + live}, 0, 0, 1},
		"one is silent all the while":    {oneAway, []string{lagging, other + live}, []string{lagging, other + live}, 0, 0, 1},
		"one has left, and one has come": {conn.Succession{Replicas: 1}, []string{other + live}, []string{live}, 1, 1, 0},
		"both are there":                 {oneAway, []string{other + live}, []string{other + live}, 0, 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			inShard(t, lock.Config{}, func(t *testing.T, w *world, r *replicated, c *lock.Client) {
				w.attached(other + live)
				w.srv.Replicas(1)
				mustUnlock(t, mustLock(t, c, "job"))
				r.tell(func(r *replicated) {
					x.known.Master, x.known.Addr = r.heirs.Master, r.heirs.Addr
					r.heirs = x.known
				})
				w.attachedLater(x.before, x.later, x.came)
				checkAcks(t, c, x.needed, x.acked)
				w.sleep(time.Minute)
			})
		})
	}
}

// Between two locks a replica comes, synchronizes and takes the server's place. The server then hears of as many replicas as before.
func TestReplicaBetweenTwoRequests(t *testing.T) {
	const live = "state=online,offset=1,lag=0"
	for name, x := range map[string]struct {
		comes   bool
		fresh   *conn.Succession // an answer now; nil for none
		every   *conn.Succession // of all sentinels, if it is another one
		granted bool
	}{
		"a replica is promoted":            {comes: true, fresh: &conn.Succession{Master: "next", Addr: "10.0.0.3:6379", Replicas: 1, Changes: 1}},
		"sentinels do not know yet":        {comes: true, fresh: &conn.Succession{Replicas: 2}},
		"one sentinel does not know yet":   {comes: true, fresh: &conn.Succession{Replicas: 1}, every: &conn.Succession{Replicas: 2}},
		"a replica comes and dies":         {comes: true, fresh: &conn.Succession{Replicas: 1, Away: 1, AwayAddrs: []string{"10.0.0.3:6379"}}, granted: true},
		"nobody says which server is next": {comes: true},
		"nothing happens":                  {granted: true},
	} {
		t.Run(name, func(t *testing.T) {
			inShard(t, lock.Config{}, func(t *testing.T, w *world, r *replicated, c *lock.Client) {
				arrivals := w.replication("# Replication\r\nrole:master\r\nslave0:ip=10.0.0.2,port=6379," + live + "\r\nmaster_replid:1\r\n")
				r.tell(func(r *replicated) { r.heirs.Replicas = 1 })
				w.srv.Replicas(1)
				for range 2 {
					mustUnlock(t, mustLock(t, c, "job"))
				}
				w.sleep(time.Second)
				if x.comes {
					arrivals.Add(1)
				}
				r.tell(func(r *replicated) {
					r.mute = x.fresh == nil
					if fresh := x.fresh; fresh != nil {
						fresh.Master, fresh.Addr = cmp.Or(fresh.Master, r.heirs.Master), cmp.Or(fresh.Addr, r.heirs.Addr)
						r.fresh = fresh
					}
					if every := x.every; every != nil {
						every.Master, every.Addr = r.heirs.Master, r.heirs.Addr
						r.every = every
					}
				})
				lease, err := c.Reentrant("job").TryLock(t.Context())
				if x.granted && err == nil {
					mustUnlock(t, lease)
				}
				for n := 1; !x.granted && n < 50 && errors.Is(err, lock.ErrNotReplicated); n++ {
					w.sleep(100 * time.Millisecond)
					_, err = c.Reentrant("job").TryLock(t.Context())
				}
				if x.granted != (err == nil) || err != nil && !errors.Is(err, lock.ErrNotReplicated) {
					t.Errorf("TryLock() = %v; want a lock: %v", err, x.granted)
				}
				w.sleep(time.Minute)
			})
		})
	}
}

// A replica has come and gone. The sentinels were asked just before, which is enough for a request: no failover is as fast. They are asked again by
// a later one.
func TestReplicaBehindTheAnswerOfTheSentinels(t *testing.T) {
	inShard(t, lock.Config{}, func(t *testing.T, w *world, r *replicated, c *lock.Client) {
		arrivals := w.replication("# Replication\r\nrole:master\r\nslave0:ip=10.0.0.2,port=6379,state=online,offset=1,lag=0\r\nmaster_replid:1\r\n")
		r.tell(func(r *replicated) { r.heirs.Replicas = 1 })
		w.srv.Replicas(1)
		mustUnlock(t, mustLock(t, c, "job"))
		w.sleep(time.Second)
		arrivals.Add(1)
		r.tell(func(r *replicated) {
			before := r.heirs
			before.Asked = time.Now().Add(-400 * time.Millisecond)
			r.every = &before
		})
		mustUnlock(t, mustLock(t, c, "job"))
		w.sleep(10 * time.Second)
		r.tell(func(r *replicated) {
			now := r.heirs
			now.Replicas = 2
			r.every = &now
		})
		_, err := c.Reentrant("job").TryLock(t.Context())
		wantErr(t, "TryLock()", err, lock.ErrNotReplicated)
		w.sleep(time.Minute)
	})
}

// A sentinel hangs, so that an answer of all takes longer than a caller's patience. The answer counts for the next call, however late.
func TestNewsOfLittlePatience(t *testing.T) {
	const live = "state=online,offset=1,lag=0"
	inShard(t, lock.Config{}, func(t *testing.T, w *world, r *replicated, c *lock.Client) {
		r.tell(func(r *replicated) {
			r.heirs.Replicas = 2
			r.slow = 250 * time.Millisecond
		})
		w.attached(live, "ip=10.0.0.3,port=6379,"+live)
		w.srv.Replicas(2)
		try := func() error {
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			lease, err := c.Reentrant("job").TryLock(ctx)
			if err == nil {
				mustUnlock(t, lease)
			}
			return err
		}
		if try() == nil {
			t.Error("a lock without an answer of all sentinels")
		}
		for range 2 {
			w.sleep(time.Minute)
			if err := try(); err != nil {
				t.Errorf("TryLock() = %v", err)
			}
		}
		r.tell(func(r *replicated) { r.heirs.Replicas = 1 })
		w.attached(live)
		w.srv.Replicas(1)
		if try() == nil {
			t.Error("a lock without an answer of all sentinels behind the change")
		}
		w.sleep(time.Minute)
		if err := try(); err != nil {
			t.Errorf("TryLock() behind the change = %v", err)
		}
		w.sleep(time.Minute)
	})
}

// A Failover of a wrapper may not say when it asked. A replica that has left does not delay locks for good.
func TestFailoverWithoutAsked(t *testing.T) {
	const live = "state=online,offset=1,lag=0"
	inShard(t, lock.Config{}, func(t *testing.T, w *world, r *replicated, c *lock.Client) {
		r.tell(func(r *replicated) { r.heirs.Replicas, r.timeless = 2, true })
		w.attached(live, "ip=10.0.0.3,port=6379,"+live)
		w.srv.Replicas(2)
		mustUnlock(t, mustLock(t, c, "job"))
		r.tell(func(r *replicated) { r.heirs.Replicas = 1 })
		w.attached(live)
		w.srv.Replicas(1)
		mustUnlock(t, mustLock(t, c, "job"))
		begin := time.Now()
		mustUnlock(t, mustLock(t, c, "job"))
		if took := time.Since(begin); took > 100*time.Millisecond {
			t.Errorf("a lock took %v", took)
		}
		w.sleep(time.Minute)
	})
}

// A replica unknown to all comes while the others are waited for, and acknowledges in place of one of them.
func TestReplicaDuringTheWait(t *testing.T) {
	const live, other, third = "state=online,offset=1,lag=0", "ip=10.0.0.3,port=6379,", "ip=10.0.0.4,port=6379,"
	before := []string{live, other + live}
	for name, x := range map[string]struct {
		later         []string
		came          int
		needed, acked int // 0 needed: the lock is granted
	}{
		"one hangs":       {[]string{live, other + live, third + live}, 1, 2, 1},
		"one has left":    {[]string{live, third + live}, 1, 2, 1},
		"it has left":     {before, 1, 2, 1},
		"nothing happens": {before, 0, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			inShard(t, lock.Config{}, func(t *testing.T, w *world, r *replicated, c *lock.Client) {
				r.tell(func(r *replicated) { r.heirs.Replicas = 2 })
				w.attached(before...)
				w.srv.Replicas(2)
				mustUnlock(t, mustLock(t, c, "job"))
				w.srv.Latency(300 * time.Millisecond) // time enough to come
				w.attachedLater(before, x.later, x.came)
				checkAcks(t, c, x.needed, x.acked)
				w.sleep(time.Minute)
			})
		})
	}
}
