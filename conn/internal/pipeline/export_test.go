package pipeline

// Abandoned returns the number of unanswered commands whose callers have left.
func (l *Link) Abandoned() int { return int(l.abandoned.Load()) }

// Unread has unread tell in place of the operating system which bytes have been received and not read.
func (s *Session) Unread(unread func() (bool, error)) { s.unread = unread }
