// Package pubsub keeps subscriptions to Redis channels across lost connections.
//
// [Subscriber.Subscribe] returns when the server has confirmed the subscription. From then on every
// published message is received:
//
//	events := pubsub.New(pool, pubsub.Config{})
//	defer events.Close()
//
//	sub, err := events.Subscribe(ctx, "news")
//	if err != nil {
//		return err
//	}
//	defer sub.Close()
//	for ev, err := range sub.All(ctx) {
//		...
//	}
//
// # Lost messages
//
// Pub/sub does not guarantee delivery. A [Subscription] reports when messages may have been missed:
//
//   - [Interrupted]: the connection is lost, or the server has ended a subscription.
//   - [Resumed]: the server has confirmed all channels again.
//   - [Lagged]: the consumer was slow and its queue was full.
//
// A consumer that waits for a change checks for the change after each of the three. A [Watch] has
// no queue and only wakes its consumer. A PING without a PONG detects a silent server within
// PingInterval + Timeout.
//
// # Connections and goroutines
//
// A [Subscriber] opens one connection for all its subscriptions, when the first subscription needs
// the connection. A channel with a thousand subscriptions is subscribed to once.
//
// Any number of goroutines may use a Subscriber and its Subscriptions. A consumer that reads
// steadily receives everything. A slow consumer delays no other consumer and costs no more memory
// than its queue, by default 16 MiB ([Config.QueueBytes]).
//
// A Subscriber runs at most two goroutines per server: the keeper writes, keeps the timers and
// reconnects; the reader reads. In addition, each Subscription runs a goroutine while more than 16
// events wait for its consumer. Close joins all goroutines.
package pubsub
