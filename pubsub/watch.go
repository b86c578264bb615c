package pubsub

import "github.com/lockwire/lockwire/internal/netfail"

// Watch is a Subscription that only wakes its consumer. It suits a consumer that checks a condition
// whatever the message says. A Watch has no queue, takes a tenth of a Subscription's memory and
// never lags. Any goroutine may call its methods.
type Watch struct {
	sub Subscription

	// The Subscriber's mu guards the following.
	wake  chan<- struct{}
	count uint64 // messages and Resumed so far
	taken uint64 // count at the last Take
	err   error  // reason of the present interruption
}

// Watch is Listen without a queue. Every event and Close send to wake, without blocking: wake needs
// a capacity of at least 1, and may serve other purposes too.
func (s *Subscriber) Watch(wake chan<- struct{}, channels ...string) (*Watch, error) {
	return s.watch(plain, wake, channels)
}

// SWatch is Watch for shard channels.
func (s *Subscriber) SWatch(wake chan<- struct{}, channels ...string) (*Watch, error) {
	return s.watch(shard, wake, channels)
}

func (s *Subscriber) watch(k kind, wake chan<- struct{}, channels []string) (*Watch, error) {
	w := &Watch{wake: wake}
	w.sub.watch = w
	if err := s.register(k, channels, &w.sub); err != nil {
		return nil, err
	}
	return w, nil
}

// Take returns the Watch's state. news reports a message or Resumed since the last Take. up reports
// that no messages are being missed at present.
func (w *Watch) Take() (news, up bool) {
	w.sub.subscriber.mu.Lock()
	defer w.sub.subscriber.mu.Unlock()
	news, w.taken = w.count != w.taken, w.count
	return news, w.upLocked()
}

// Count returns the number of messages and Resumed so far, and up as in Take. Count does not affect
// Take. A consumer that has checked at count n need not check again until Count exceeds n.
func (w *Watch) Count() (n uint64, up bool) {
	w.sub.subscriber.mu.Lock()
	defer w.sub.subscriber.mu.Unlock()
	return w.count, w.upLocked()
}

func (w *Watch) upLocked() bool { return w.sub.up && !w.sub.closed }

// Err returns the reason why messages are being missed: the connection was lost, or the server
// refused or ended the subscription. Before the first confirmation Err only reports the refusal of a
// channel. Err is nil while no messages are missed, and after Close.
func (w *Watch) Err() error {
	w.sub.subscriber.mu.Lock()
	defer w.sub.subscriber.mu.Unlock()
	if w.sub.closed {
		return nil
	}
	return w.err
}

// Move replaces the wake channel; nil wakes no channel. Earlier news remains for Take.
func (w *Watch) Move(wake chan<- struct{}) {
	w.sub.subscriber.mu.Lock()
	defer w.sub.subscriber.mu.Unlock()
	w.wake = wake
}

// Close ends the Watch like Subscription.Close. Close returns nil, also when called again.
func (w *Watch) Close() error { return w.sub.Close() }

// noteLocked records an event in place of a queue.
func (w *Watch) noteLocked(ev *Event) {
	if ev.Kind != Interrupted {
		w.count++
	}
	if ev.Kind != Message {
		w.err = ev.Err // nil for Resumed
	}
	netfail.Signal(w.wake)
}
