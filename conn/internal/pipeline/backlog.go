package pipeline

import "sync/atomic"

// backlog counts the commands whose callers have left before the answer.
type backlog struct {
	abandoned atomic.Int64 // unanswered commands and batches without a caller
	heldBack  atomic.Bool  // pending commands wait until fewer are abandoned; stores hold the link's mu
}

// abandonedMost is the number of abandoned commands from which their share of the unanswered ones counts.
const abandonedMost = 16

// behindLocked reports whether the server is so far behind that callers leave before their answers: most of the commands
// that have been sent and are unanswered are abandoned. Further commands then stay pending, where a caller that leaves
// withdraws its command. Otherwise callers with deadlines would fill the connection with commands that nobody waits for,
// and delay all other callers.
func (l *Link) behindLocked() bool {
	n := int(l.abandoned.Load())
	return n >= abandonedMost && n > (l.outstandingLocked()-len(l.waiting))/2
}

// holdBackLocked is behindLocked. If it returns true, the reader calls resume when it has answered enough of the abandoned
// commands. At the latest it does so at the last of them, and each is answered unless the link fails.
func (l *Link) holdBackLocked() bool {
	if !l.behindLocked() {
		return false
	}
	l.heldBack.Store(true)
	if l.behindLocked() { // still: otherwise the reader may have answered the last one before it could see heldBack
		return true
	}
	l.heldBack.Store(false)
	return false
}

// resume goes on with the pending commands if they are held back and the server is no longer behind.
func (l *Link) resume() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.heldBack.Load() || l.behindLocked() {
		return
	}
	l.heldBack.Store(false)
	if !l.writing && len(l.waiting) > 0 && l.err == nil {
		l.writing = true
		l.handOverLocked()
	}
}
