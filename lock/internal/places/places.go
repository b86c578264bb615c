// Package places makes the places of a process in lines on the server, each with the length of its turns.
package places

import (
	"strconv"
	"time"
)

const (
	callFor     = 100 // ms of a turn of a near process
	sparePlaces = 64  // kept for later acquires
	maxDistance = 3   // doublings of callFor for a process far from the server
	quickInARow = 16  // acquires after which turns that are longer than needed are halved
)

// Places makes the places of a client. They are for one goroutine at a time.
//
// Each Lock draws a place, and most get the lock at once and never take it: without spare places a Lock and Unlock would make 10
// allocations in place of 6 (TestAllocations).
type Places struct {
	spare    map[string][]any // drawn and never taken, by waiter
	drawn    int64            // number of places so far
	distance int              // doublings of the client's turns
	slow     time.Time        // when the first slow acquire behind the last other one was answered; zero without one
	quick    int              // acquires in a row for which half of the turns would do
}

// Next returns a place of waiter for one acquire. The place is in no line.
func (p *Places) Next(waiter string) any {
	if spare := p.spare[waiter]; len(spare) > 0 {
		place := spare[len(spare)-1]
		p.spare[waiter] = spare[:len(spare)-1]
		return place
	}
	p.drawn++
	return waiter + ":" + strconv.FormatInt(p.drawn, 10) + ":" + strconv.Itoa(callFor<<p.distance)
}

// Put keeps a place of waiter that was never taken for the next acquire.
func (p *Places) Put(waiter string, place any) {
	if p.spare == nil {
		p.spare = make(map[string][]any)
	}
	if spare := p.spare[waiter]; len(spare) < sparePlaces {
		p.spare[waiter] = append(spare, place)
	}
}

// Measure adapts the turns of the client to an acquire, and reports whether they are longer now. They are doubled if two acquires take half of
// a turn or longer, the second of them sent after the answer to the first: of a single pause of the server many acquires are slow. They are
// halved after several that take less than a quarter.
func (p *Places) Measure(sent, answered time.Time) (longer bool) {
	took, turn := answered.Sub(sent), callFor<<p.distance*time.Millisecond
	if took < turn/2 {
		p.slow = time.Time{}
		if p.quick++; took >= turn/4 || p.distance == 0 {
			p.quick = 0
		}
		if p.quick == quickInARow {
			p.quick, p.distance, p.spare = 0, p.distance-1, nil
		}
		return false
	}
	p.quick = 0
	switch {
	case p.distance == maxDistance:
		return false
	case p.slow.IsZero():
		p.slow = answered
		return false
	case sent.Before(p.slow):
		return false
	}
	p.slow, p.distance, p.spare = time.Time{}, p.distance+1, nil
	return true
}
