package lock

import (
	"strconv"
	"time"
)

const (
	callFor     = 100 // ms of a turn of a near process
	sparePlaces = 64  // kept for later acquires
	maxDistance = 3   // doublings of callFor for a process far from the server
)

// places makes the places of a client. table.mu guards it.
//
// Each Lock draws a place, and most get the lock at once and never take it: without spare places a Lock and Unlock would make 10
// allocations in place of 6 (TestAllocations).
type places struct {
	spare    map[string][]any // drawn and never taken, by waiter
	drawn    int64            // number of places so far
	distance int              // doublings of the client's turns
	slow     bool             // the last acquire took more than half of a turn
}

// next returns a place of waiter that no acquire of the client has, and that is in no line.
func (p *places) next(waiter string) any {
	if spare := p.spare[waiter]; len(spare) > 0 {
		place := spare[len(spare)-1]
		p.spare[waiter] = spare[:len(spare)-1]
		return place
	}
	p.drawn++
	return waiter + ":" + strconv.FormatInt(p.drawn, 10) + ":" + strconv.Itoa(callFor<<p.distance)
}

// put keeps a place of waiter that was never taken for the next acquire.
func (p *places) put(waiter string, place any) {
	if p.spare == nil {
		p.spare = make(map[string][]any)
	}
	if spare := p.spare[waiter]; len(spare) < sparePlaces {
		p.spare[waiter] = append(spare, place)
	}
}

// measure lengthens the turns of the client if acquires take more than half of a turn, twice in a row, and reports
// whether it has.
func (p *places) measure(took time.Duration) bool {
	if p.distance == maxDistance || took < callFor<<p.distance*time.Millisecond/2 {
		p.slow = false
		return false
	}
	if !p.slow {
		p.slow = true
		return false
	}
	p.slow, p.distance, p.spare = false, p.distance+1, nil
	return true
}
