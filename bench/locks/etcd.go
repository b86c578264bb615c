//go:build etcd

package locks

import (
	"errors"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/lockwire/lockwire/bench/measure"
)

// Etcd is etcd's concurrency.Mutex, only in builds with the tag etcd, as its client is larger than all the rest of the module.
var Etcd Open = func(env measure.Env, _ int) (Client, error) {
	if env.Etcd == "" {
		return nil, errors.New("locks: no etcd server")
	}
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{env.Etcd}})
	if err != nil {
		return nil, err
	}
	return &etcd{c}, nil
}

type etcd struct{ client *clientv3.Client }

// Locker has a private session: within a session a Mutex does not keep callers apart.
func (c *etcd) Locker(name string) (Locker, error) {
	session, err := concurrency.NewSession(c.client, concurrency.WithTTL(int(Lease.Seconds())))
	if err != nil {
		return nil, err
	}
	return etcdLock{concurrency.NewMutex(session, name)}, nil
}

func (c *etcd) Close() { c.client.Close() }

type etcdLock struct{ *concurrency.Mutex }

func (l etcdLock) Lock() (Held, error) { return etcdHeld(l), l.Mutex.Lock(background) }

type etcdHeld struct{ *concurrency.Mutex }

func (h etcdHeld) Unlock() error { return h.Mutex.Unlock(background) }
