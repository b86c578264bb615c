//go:build etcd

// Etcd is a small program with etcd's client. It is built with the tag etcd only, as etcd is larger than all further libraries
// together.
package main

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/lockwire/lockwire/bench/footprint/probe"
)

func main() {
	ctx := context.Background()
	connect := func(addr string) (*clientv3.Client, error) {
		return clientv3.New(clientv3.Config{Endpoints: []string{addr}})
	}
	probe.Program{
		Open: func(addr string) (func() error, error) {
			c, err := connect(addr)
			return func() error {
				if _, err := c.Put(ctx, "key", "value"); err != nil {
					return err
				}
				_, err := c.Get(ctx, "key")
				return err
			}, err
		},
		Lock: func(addr string) error {
			c, err := connect(addr)
			if err != nil {
				return err
			}
			session, err := concurrency.NewSession(c)
			if err != nil {
				return err
			}
			m := concurrency.NewMutex(session, "job")
			if err := m.Lock(ctx); err != nil {
				return err
			}
			return m.Unlock(ctx)
		},
	}.Main()
}
