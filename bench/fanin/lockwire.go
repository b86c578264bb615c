package fanin

import (
	"context"
	"sync"

	"github.com/lockwire/lockwire/bench/measure"
	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/pubsub"
)

var background = context.Background()

// Lockwire has a Subscription and a goroutine for each channel, like its users.
func Lockwire(env measure.Env, channels []string, deliver func(string)) (func(), error) {
	pool, err := conn.Open(background, conn.Config{Network: env.Network, Addr: env.Addr})
	if err != nil {
		return nil, err
	}
	s := pubsub.New(pool, pubsub.Config{})
	var readers sync.WaitGroup
	for _, name := range channels {
		sub, err := s.Subscribe(background, name)
		if err != nil {
			return nil, err
		}
		readers.Go(func() {
			for e := range sub.Events() {
				if e.Kind == pubsub.Message {
					deliver(e.Payload)
				}
			}
		})
	}
	return func() {
		s.Close()
		readers.Wait()
		pool.Close()
	}, nil
}
