package pipeline

// Abandoned returns the number of unanswered commands whose callers have left.
func (l *Link) Abandoned() int { return int(l.abandoned.Load()) }
