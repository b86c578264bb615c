package conformance_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/redistest"
	"github.com/lockwire/lockwire/lock"
)

// split is a master and one of its two replicas that has become a master too, of which nobody has been told. In each failover
// there is a time like this: the former master goes on with the other replica, until the sentinels have it follow the new one.
type split struct {
	t           *testing.T
	old, next   *redistest.Server
	proto       int
	known, told conn.Config // as who has not been told, and as who has
}

func newSplit(t *testing.T, s *redistest.Sentinels, proto int) *split {
	x := &split{t: t, old: s.Master(), proto: proto, known: s.Config()}
	for _, server := range s.Servers() {
		if server != x.old {
			x.next = server
		}
	}
	x.told = x.next.Config()
	x.told.Protocol = proto
	return x
}

// client returns a client of locks on one side of the split.
func (x *split) client(side conn.Config, cfg lock.Config) *lock.Client {
	x.t.Helper()
	pool, err := conn.Open(x.t.Context(), side)
	if err != nil {
		x.t.Fatal(err)
	}
	c, err := lock.New(pool, cfg)
	if err != nil {
		x.t.Fatal(err)
	}
	x.t.Cleanup(func() {
		_ = c.Close() // what it has on a former master may be gone
		_ = pool.Close()
	})
	if side.Sentinel.Master != "" {
		eventually(x.t, "that both replicas are known", func() bool {
			s, err := pool.Succession(x.t.Context(), "", time.Now())
			return err == nil && s.Replicas == 2
		})
		unlock(x.t, lockIn(x.t, c.Reentrant("before")))
	}
	return c
}

// begin has one of the replicas become a master. The sentinels stand still from then on, so that this lasts.
func (x *split) begin(s *redistest.Sentinels) {
	x.t.Helper()
	s.AwaitHealthy()
	for _, sentinel := range s.Sentinels() {
		sentinel.Pause()
	}
	x.next.Do("REPLICAOF", "NO", "ONE")
	eventually(x.t, "that the master has one replica", func() bool {
		v, err := x.old.Try("ROLE")
		return err == nil && v.At(2).Len() == 1
	})
}

// While a replica has become a master, and the former one does not know it, no lock is granted and none is renewed there, though
// the other replica acknowledges: whoever asks the new master may have it. Those who ask for one replica get it, and so two have it.
func TestLockOnAFormerMaster(t *testing.T) {
	redistest.RunSentinels(t, redistest.Options{}, func(t *testing.T, s *redistest.Sentinels, proto int) {
		x := newSplit(t, s, proto)
		careful := x.client(x.known, lock.Config{Lease: 3 * time.Second, AckTimeout: 300 * time.Millisecond})
		careless := x.client(x.known, lock.Config{Acks: 1, AckTimeout: patience})
		told := x.client(x.told, lock.Config{})
		held := lockIn(t, careful.Reentrant("held"))
		x.begin(s)
		for i := range 5 { // a semaphore would first have to be set up
			name := fmt.Sprint("job-", i)
			_, err := ofKind(careful, i, 0, name).TryLock(t.Context())
			notReplicated(t, "TryLock() on the former master", err, name, x.old.Addr(), 2)
			unlock(t, lockIn(t, ofKind(told, i, 1, name)))
		}
		waitLost(t, held)
		before := lockIn(t, careless.Reentrant("both"))
		after := lockIn(t, told.Reentrant("both"))
		if err := errors.Join(before.Err(), after.Err()); err != nil {
			t.Errorf("with one acknowledgement, where both get it: %v", err)
		}
	})
}

// The test of overlaps fails when there are any: on a split master, with callers on either side, who need no acknowledgement.
// Those who do get nothing on the side of the former master.
func TestOverlapsAreFound(t *testing.T) {
	redistest.RunSentinels(t, redistest.Options{}, func(t *testing.T, s *redistest.Sentinels, proto int) {
		x := newSplit(t, s, proto)
		careful := x.client(x.known, lock.Config{Lease: 3 * time.Second, AckTimeout: 100 * time.Millisecond})
		careless := x.client(x.known, lock.Config{Lease: 3 * time.Second, Acks: lock.AcksOff})
		told := x.client(x.told, lock.Config{Lease: 3 * time.Second})
		x.begin(s)
		names := func(what string) (names []string) {
			for i := range 6 {
				names = append(names, fmt.Sprintf("%s-%d-%d", what, proto, i))
			}
			return names
		}
		r := compete(t, []*lock.Client{careless, told}, names("careless"))
		eventually(t, "that two have one lock", func() bool { return r.found() > 0 })
		r.halt()

		r = compete(t, []*lock.Client{careful, told}, names("careful"))
		r.awaitGrants(5)
		r.end()
		if n := r.grantsOf(careful); n > 0 {
			t.Errorf("%d locks were granted on the former master", n)
		}
	})
}
