package lockotel

import (
	"sync"
	"testing"
)

// The work on events waits until there are enough of them, or for a flush. No event is lost or worked on twice.
func TestQueue(t *testing.T) {
	var q queue
	worked := 0 // guarded by q.working
	work := func(*event) { worked++ }
	for range fullQueue - 1 {
		q.add(event{}, work)
	}
	if worked != 0 {
		t.Errorf("work on %d events of a queue that is not full", worked)
	}
	q.add(event{}, work)
	if worked != fullQueue {
		t.Errorf("work on %d events, want %d", worked, fullQueue)
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
	if want := fullQueue + callers*each; worked != want {
		t.Errorf("work on %d events, want %d", worked, want)
	}
}
