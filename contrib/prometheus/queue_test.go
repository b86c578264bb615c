package lockprom

import (
	"sync"
	"sync/atomic"
	"testing"
)

// The work on events waits until there are enough of them, or for a flush. No event is lost or worked on twice.
func TestQueue(t *testing.T) {
	var q queue
	var count atomic.Int64
	work := func(*event) { count.Add(1) }
	worked := func() int { return int(count.Load()) }
	for range fullQueue - 1 {
		q.add(event{}, work)
	}
	if worked() != 0 {
		t.Errorf("work on %d events of a queue that is not full", worked())
	}
	q.add(event{}, work)
	if worked() != fullQueue {
		t.Errorf("work on %d events, want %d", worked(), fullQueue)
	}
	const callers, each = 8, 1000
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for n := range each {
				q.add(event{}, work)
				if n%100 == 0 {
					q.flush(work)
				}
			}
		})
	}
	wg.Wait()
	q.flush(work)
	if want := fullQueue + callers*each; worked() != want {
		t.Errorf("work on %d events, want %d", worked(), want)
	}
}

// A call of add does a bounded share of the work that came together while a flush was slow, and the memory of that time is not kept.
func TestQueueOfASlowFlush(t *testing.T) {
	var q queue
	const behind = 20 * fullQueue
	q.add(event{}, nil)
	begun, end, ended := make(chan bool), make(chan bool), make(chan bool)
	go func() {
		defer close(ended)
		q.flush(func(*event) { close(begun); <-end })
	}()
	<-begun
	for range behind {
		q.add(event{}, func(*event) { t.Error("work on an event during a flush") })
	}
	close(end)
	<-ended
	worked, calls := 0, 0
	for ; worked < behind && calls < behind; calls++ {
		before := worked
		q.add(event{}, func(*event) { worked++ })
		if worked-before > fullQueue {
			t.Fatalf("a call works on %d events, want %d at most", worked-before, fullQueue)
		}
	}
	q.flush(func(*event) { worked++ })
	if worked != behind+calls {
		t.Errorf("work on %d events, want %d", worked, behind+calls)
	}
	if n := cap(q.events); n > 2*fullQueue {
		t.Errorf("the empty queue keeps memory for %d events", n)
	}
}

// A panic of the work loses the event that it was about, and no other.
func TestQueueAfterAPanic(t *testing.T) {
	var q queue
	worked := 0
	work := func(*event) {
		if worked++; worked == 10 {
			panic("a name without a group")
		}
	}
	func() {
		defer func() { _ = recover() }()
		for range fullQueue {
			q.add(event{}, work)
		}
	}()
	q.flush(work)
	if worked != fullQueue {
		t.Errorf("work on %d events, want %d", worked, fullQueue)
	}
}
