// Package logs writes the lines of a client, and not too many of them.
package logs

import (
	"cmp"
	"strconv"
	"sync"
	"time"

	"github.com/lockwire/lockwire/conn"
)

const (
	// every is the minimum interval between two lines of the same text about the same lock or cause.
	every = time.Minute
	// most limits the lines remembered. While so many are younger than every, further lines are dropped.
	most = 4096
)

// Log is where a client reports. Any number of goroutines may use it at once.
type Log struct {
	Logger conn.Logger              // nil is silent
	Show   func(name string) string // returns what stands for the name of a lock; nil for the name

	mu   sync.Mutex // guards the following
	last map[line]time.Time
}

// line has the texts that two lines share if the second is a repetition.
type line struct{ lock, cause, text string }

// Silent reports whether nobody reads the log.
func (l *Log) Silent() bool { return l.Logger == nil }

// Warn writes a line.
func (l *Log) Warn(text string, args ...any) {
	if l.Logger != nil {
		l.Logger.Warn("lock: "+text, args...)
	}
}

// WarnOf writes a line about a lock, at most one a minute. The line leaves out an empty kind or owner.
func (l *Log) WarnOf(name, kind, owner, text string, args ...any) {
	if l.Logger != nil && l.allows(line{lock: name, text: text}) {
		l.warnOf(name, kind, owner, text, args)
	}
}

// WarnOfMany writes a line about a trouble of several locks with the same cause, at most one a minute. name, kind and owner stand for
// one of the locks.
func (l *Log) WarnOfMany(cause, name, kind, owner, text string, args ...any) {
	if l.Logger != nil && l.allows(line{cause: cause, text: text}) {
		l.warnOf(name, kind, owner, text, args)
	}
}

func (l *Log) warnOf(name, kind, owner, text string, args []any) {
	subject := []any{"lock", l.Name(name)}
	if kind != "" {
		subject = append(subject, "kind", kind)
	}
	if owner != "" {
		subject = append(subject, "owner", owner)
	}
	l.Warn(text, append(subject, args...)...)
}

// Name returns the name of a lock as the value of an attribute: quoted only if it has characters that could confuse a reader.
func (l *Log) Name(name string) string {
	if shown := l.Shown(name); shown != "" {
		return shown
	}
	if quoted := strconv.Quote(name); quoted[1:len(quoted)-1] != name {
		return quoted
	}
	return name
}

// Shown returns what stands for the name of a lock in texts; "" is the quoted name, as without a Log.
func (l *Log) Shown(name string) string {
	if l == nil || l.Show == nil {
		return ""
	}
	return cmp.Or(l.Show(name), "-")
}

// allows reports whether the line may be written now.
func (l *Log) allows(key line) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if last, known := l.last[key]; known && now.Sub(last) < every {
		return false
	}
	if len(l.last) >= most {
		for old, at := range l.last {
			if now.Sub(at) >= every {
				delete(l.last, old)
			}
		}
		if len(l.last) >= most {
			return false
		}
	}
	if l.last == nil {
		l.last = make(map[line]time.Time)
	}
	l.last[key] = now
	return true
}
