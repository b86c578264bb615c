package conformance

import (
	"context"
	"slices"
	"time"

	"github.com/lockwire/lockwire/lock"
)

// multi is a lock of several locks. The state of the first lock stands for all.
type multi struct{ *lock.Multi }

func newMulti(members ...lock.Member) Locker {
	m, err := lock.NewMulti(members...)
	if err != nil {
		panic(err)
	}
	return multi{m}
}

func (m multi) Info(ctx context.Context) (lock.Info, error) {
	infos, err := m.Multi.Info(ctx)
	return infos[0], err
}

// redlock is a lock on several servers. It is free if most servers say so.
type redlock struct{ *lock.Redlock }

// newRedlock is for freshly started servers, on a machine that may be slow.
func newRedlock(nodes ...lock.Member) Locker {
	r, err := lock.NewRedlock(lock.RedlockConfig{Quarantine: -1, NodeTimeout: 2 * time.Second}, nodes...)
	if err != nil {
		panic(err)
	}
	return redlock{r}
}

func (r redlock) Info(ctx context.Context) (lock.Info, error) {
	infos, err := r.Redlock.Info(ctx)
	taken := slices.DeleteFunc(infos, func(i lock.Info) bool { return !i.Locked })
	if len(taken) < 2 {
		return lock.Info{}, err
	}
	return taken[0], err
}

// owners are the owner of a lease and the owners of its members.
func owners(lease *lock.Lease) []string {
	list := []string{lease.Owner()}
	for _, part := range lease.Members() {
		list = append(list, part.Owner())
	}
	return list
}
