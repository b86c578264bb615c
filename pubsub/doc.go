// Package pubsub keeps subscriptions to the channels of a Redis server that outlive their connection.
//
// A [Subscriber] has one connection, opened when the first subscription needs it, that carries all its subscriptions; a
// channel that a thousand of them ask for is subscribed to once. [Subscriber.Subscribe] returns when the server has
// confirmed: whatever is published from then on is received.
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
// Pub/sub promises no delivery, and a Subscription says so when messages may have been missed: [Interrupted] when the
// connection is lost, [Resumed] when the server has confirmed everything again, [Lagged] when the consumer did not read and
// its queue was full. Whoever waits for something looks again at each of them; a [Watch] has no queue, and says no more than that. A
// server that has gone silent is noticed by a PING without a PONG, within PingInterval + Timeout.
//
// A Subscriber and its Subscriptions may be used by any number of goroutines. A consumer that reads all the time gets
// everything; one that does not read delays no other and costs no more than its queue, 16 MiB by default
// ([Config.QueueBytes]). A Subscriber runs two goroutines at most, one that writes, keeps the timers and reconnects, and one
// that reads; beside them each Subscription has one while more than 16 events wait for its consumer. Close joins all.
package pubsub
