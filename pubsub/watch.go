package pubsub

// Watch is a Subscription of a consumer to whom all messages say the same: look. It has no queue, only a note that there was
// something, so it takes a tenth of the memory and never lags. Its methods may be called by any goroutine.
type Watch struct {
	sub Subscription

	// The Subscriber's mu guards the following.
	wake  chan<- struct{}
	count uint64 // of reasons to look
	taken uint64 // of them
	err   error  // why something is being missed
}

// Watch is Listen without a queue. Whenever there is something for Take to tell, wake is sent to unless that would block: it
// has to have room for one, and may be used for other purposes too.
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
	if err := s.enlist(k, channels, &w.sub); err != nil {
		return nil, err
	}
	return w, nil
}

// Take reports whether nothing is being missed at present, and whether there has been a reason to look since the last Take: a
// message, or that nothing is missed any more.
func (w *Watch) Take() (news, up bool) {
	w.sub.subscriber.mu.Lock()
	defer w.sub.subscriber.mu.Unlock()
	news, w.taken = w.count != w.taken, w.count
	return news, w.upLocked()
}

// Count returns how many reasons to look there have been, and up as Take does. It takes none: whoever has looked after the n-th
// need not look again as long as there are n.
func (w *Watch) Count() (n uint64, up bool) {
	w.sub.subscriber.mu.Lock()
	defer w.sub.subscriber.mu.Unlock()
	return w.count, w.upLocked()
}

func (w *Watch) upLocked() bool { return w.sub.up && !w.sub.closed }

// Err returns why messages are being missed at present: the connection was lost, or the server has refused or ended the subscription.
// It is nil if none are, before the first confirmation, and after Close.
func (w *Watch) Err() error {
	w.sub.subscriber.mu.Lock()
	defer w.sub.subscriber.mu.Unlock()
	if w.sub.closed {
		return nil
	}
	return w.err
}

// Move has another channel woken from now on, or none if wake is nil. What came before is for Take to tell.
func (w *Watch) Move(wake chan<- struct{}) {
	w.sub.subscriber.mu.Lock()
	defer w.sub.subscriber.mu.Unlock()
	w.wake = wake
}

// Close ends the Watch, as Close of a Subscription does. It returns nil, also the second time.
func (w *Watch) Close() error { return w.sub.Close() }

// noteLocked takes the place of a queue.
func (w *Watch) noteLocked(ev *Event) {
	if ev.Kind != Interrupted {
		w.count++
	}
	if ev.Kind != Message {
		w.err = ev.Err // nil of Resumed
	}
	w.ringLocked()
}

func (w *Watch) ringLocked() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}
