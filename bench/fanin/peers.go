package fanin

import (
	"context"
	"sync"

	redigo "github.com/gomodule/redigo/redis"
	"github.com/mediocregopher/radix/v4"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"

	"github.com/lockwire/lockwire/bench/clients"
	"github.com/lockwire/lockwire/bench/floor"
	"github.com/lockwire/lockwire/bench/measure"
)

// GoRedis has a PubSub for each channel, and so a connection for each channel.
func GoRedis(env measure.Env, channels []string, deliver func(string)) (func(), error) {
	c := redis.NewClient(&redis.Options{Network: env.Network, Addr: env.Addr})
	var readers sync.WaitGroup
	var subs []*redis.PubSub
	for _, name := range channels {
		sub := c.Subscribe(background, name)
		if _, err := sub.Receive(background); err != nil {
			return nil, err
		}
		subs = append(subs, sub)
		readers.Go(func() {
			for m := range sub.Channel() {
				deliver(m.Payload)
			}
		})
	}
	return func() {
		for _, sub := range subs {
			sub.Close()
		}
		readers.Wait()
		c.Close()
	}, nil
}

// Rueidis has a Receive for each channel, over its shared connection.
func Rueidis(env measure.Env, channels []string, deliver func(string)) (func(), error) {
	c, err := rueidis.NewClient(clients.RueidisOption(clients.Setup{Network: env.Network, Addr: env.Addr}))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(background)
	var readers sync.WaitGroup
	confirmed := make(chan struct{}, len(channels))
	for _, name := range channels {
		readers.Go(func() {
			hooked := rueidis.WithOnSubscriptionHook(ctx, func(s rueidis.PubSubSubscription) {
				if s.Kind == "subscribe" {
					confirmed <- struct{}{}
				}
			})
			c.Receive(hooked, c.B().Subscribe().Channel(name).Build(), func(m rueidis.PubSubMessage) { deliver(m.Message) })
		})
	}
	for range channels {
		<-confirmed
	}
	return func() {
		cancel()
		c.Close()
		readers.Wait()
	}, nil
}

// Redigo has a PubSubConn for each channel, and so a connection for each channel.
func Redigo(env measure.Env, channels []string, deliver func(string)) (func(), error) {
	var readers sync.WaitGroup
	var conns []redigo.Conn
	for _, name := range channels {
		c, err := redigo.Dial(env.Network, env.Addr)
		if err != nil {
			return nil, err
		}
		conns = append(conns, c)
		sub := redigo.PubSubConn{Conn: c}
		if err := sub.Subscribe(name); err != nil {
			return nil, err
		}
		if _, ok := sub.Receive().(redigo.Subscription); !ok {
			return nil, errRefused
		}
		readers.Go(func() {
			for {
				switch m := sub.Receive().(type) {
				case redigo.Message:
					deliver(string(m.Data))
				case error:
					return
				}
			}
		})
	}
	return func() {
		for _, c := range conns {
			c.Close()
		}
		readers.Wait()
	}, nil
}

// Radix has a PubSubConn for each channel, and so a connection for each channel.
func Radix(env measure.Env, channels []string, deliver func(string)) (func(), error) {
	ctx, cancel := context.WithCancel(background)
	var readers sync.WaitGroup
	var subs []radix.PubSubConn
	for _, name := range channels {
		c, err := radix.Dial(background, env.Network, env.Addr)
		if err != nil {
			cancel()
			return nil, err
		}
		sub := radix.PubSubConfig{}.New(c)
		if err := sub.Subscribe(background, name); err != nil {
			cancel()
			return nil, err
		}
		subs = append(subs, sub)
		readers.Go(func() {
			for {
				m, err := sub.Next(ctx)
				if err != nil {
					return
				}
				deliver(string(m.Message))
			}
		})
	}
	return func() {
		cancel()
		readers.Wait()
		for _, sub := range subs {
			sub.Close()
		}
	}, nil
}

// Floor is a connection and a goroutine that turns a message into just two strings.
func Floor(env measure.Env, channels []string, deliver func(string)) (func(), error) {
	c, err := floor.Dial(env.Network, env.Addr, nil)
	if err != nil {
		return nil, err
	}
	for _, name := range channels {
		if _, err := c.Do(floor.Request("SUBSCRIBE", name)); err != nil {
			return nil, err
		}
	}
	var reader sync.WaitGroup
	reader.Go(func() {
		for {
			_, payload, err := c.Message()
			if err != nil {
				return
			}
			deliver(payload)
		}
	})
	return func() {
		c.Close()
		reader.Wait()
	}, nil
}
