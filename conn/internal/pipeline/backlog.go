package pipeline

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

// resume goes on with the pending commands if they are held back and the server is no longer behind. The reader calls resume
// after each answer to an abandoned command, and each is answered unless the link fails.
func (l *Link) resume() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.writer == nobody && len(l.waiting) > 0 && l.err == nil && !l.behindLocked() {
		l.handOverLocked()
	}
}
