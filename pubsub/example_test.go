package pubsub_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/pubsub"
)

func Example() {
	cfg, err := conn.ParseURL(os.Getenv("REDIS_URL"))
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	pool, err := conn.Open(ctx, cfg)
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	events := pubsub.New(pool, pubsub.Config{})
	defer events.Close()

	sub, err := events.Subscribe(ctx, "example:news")
	if err != nil {
		log.Fatal(err)
	}
	defer sub.Close()
	if _, err := pool.Do(ctx, "PUBLISH", "example:news", "nothing is missed from here on"); err != nil {
		log.Fatal(err)
	}
	for ev, err := range sub.All(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(ev.Kind, ev.Channel, ev.Payload)
		break
	}
	// Output: Message example:news nothing is missed from here on
}

// Listen does not wait for the server. The first event is the server's confirmation.
func ExampleSubscriber_Listen() {
	cfg, err := conn.ParseURL(os.Getenv("REDIS_URL"))
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	pool, err := conn.Open(ctx, cfg)
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	events := pubsub.New(pool, pubsub.Config{})
	defer events.Close()

	sub, err := events.Listen("example:wake-ups")
	if err != nil {
		log.Fatal(err)
	}
	defer sub.Close()
	for ev := range sub.Events() {
		fmt.Println(ev.Kind)
		if ev.Kind == pubsub.Message {
			break
		}
		// Check again after Resumed, Interrupted and Lagged: a message may have been missed.
		if _, err := pool.Do(ctx, "PUBLISH", "example:wake-ups", ""); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// Resumed
	// Message
}

// A Watch only wakes its consumer.
func ExampleSubscriber_Watch() {
	cfg, err := conn.ParseURL(os.Getenv("REDIS_URL"))
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	pool, err := conn.Open(ctx, cfg)
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	events := pubsub.New(pool, pubsub.Config{})
	defer events.Close()

	wake := make(chan struct{}, 1)
	watch, err := events.Watch(wake, "example:looks")
	if err != nil {
		log.Fatal(err)
	}
	defer watch.Close()
	for range 2 {
		<-wake
		fmt.Println(watch.Take())
		if _, err := pool.Do(ctx, "PUBLISH", "example:looks", ""); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// true true
	// true true
}

func ExampleEventKind() {
	fmt.Println(pubsub.Message, pubsub.Resumed, pubsub.Lagged, pubsub.Interrupted)
	// Output: Message Resumed Lagged Interrupted
}

// nowhere is a Dialer without a server.
type nowhere struct{}

func (nowhere) Stream(context.Context) (*conn.Stream, error) { return nil, errors.New("no server") }

// Subscriptions wait for an unreachable server. Stats shows the state of the connection.
func ExampleStats() {
	events := pubsub.New(nowhere{}, pubsub.Config{})
	defer events.Close()
	for range 1000 {
		if _, err := events.Listen("news"); err != nil {
			log.Fatal(err)
		}
	}
	stats := events.Stats()
	fmt.Println(stats.Subscriptions, "subscriptions,", stats.Channels, "channel, connected:", stats.Connected)
	// Output: 1000 subscriptions, 1 channel, connected: false
}
