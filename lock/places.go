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
type places struct {
	spare    []any // drawn and never taken
	drawn    int64 // number of places so far
	distance int   // doublings of the client's turns
	slow     bool  // the last acquire took more than half of a turn
}

// next returns a place that no acquire of the client with this id has, and that is in no line.
func (p *places) next(id string) any {
	if n := len(p.spare); n > 0 {
		place := p.spare[n-1]
		p.spare = p.spare[:n-1]
		return place
	}
	p.drawn++
	return id + ":" + strconv.FormatInt(p.drawn, 10) + ":" + strconv.Itoa(callFor<<p.distance)
}

// put keeps a place that was never taken for the next acquire.
func (p *places) put(place any) {
	if len(p.spare) < sparePlaces {
		p.spare = append(p.spare, place)
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
