package logs

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

type lines []string

func (l *lines) Warn(text string, args ...any) {
	*l = append(*l, fmt.Sprint(append([]any{text}, args...)...))
}

// A line about a lock is written once a minute; another text, lock or cause has lines of its own.
func TestOncePerMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got lines
		l := &Log{Logger: &got}
		for range 3 {
			l.WarnOf("a", "reentrant", "me", "lost")
			time.Sleep(every / 2)
		}
		l.WarnOf("a", "reentrant", "me", "held")
		l.WarnOf("b", "reentrant", "me", "lost")
		l.WarnOf("a", "", "", "denied")
		l.WarnOfMany("server 1", "a", "reentrant", "me", "late")
		l.WarnOfMany("server 1", "b", "reentrant", "me", "late")
		l.WarnOfMany("server 2", "b", "reentrant", "me", "late")
		want := lines{
			`lock: lostlockakindreentrantownerme`, `lock: lostlockakindreentrantownerme`,
			`lock: heldlockakindreentrantownerme`, `lock: lostlockbkindreentrantownerme`, `lock: deniedlocka`,
			`lock: latelockakindreentrantownerme`, `lock: latelockbkindreentrantownerme`,
		}
		if !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

// Under very many names lines are dropped, until the oldest are forgotten.
func TestManyNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got lines
		l := &Log{Logger: &got}
		for i := range 2 * most {
			l.WarnOf(fmt.Sprint(i), "reentrant", "me", "lost")
		}
		if len(got) != most {
			t.Errorf("%d lines, want %d", len(got), most)
		}
		time.Sleep(every)
		if l.WarnOf("later", "reentrant", "me", "lost"); len(got) != most+1 || len(l.last) != 1 {
			t.Errorf("%d lines and %d remembered after a minute", len(got), len(l.last))
		}
	})
}

// A logger quotes values itself: a second pair of quotes would hide a name from a filter. Other characters must not look like a line.
func TestName(t *testing.T) {
	l := &Log{}
	for name, want := range map[string]string{
		"orders:{7}": "orders:{7}", "zwölf locks": "zwölf locks", "a\nlevel=ERROR": `"a\nlevel=ERROR"`, `a"b`: `"a\"b"`, "\x1b[2J": `"\x1b[2J"`, "\xff": `"\xff"`,
	} {
		if got := l.Name(name); got != want {
			t.Errorf("Name(%q) = %s, want %s", name, got, want)
		}
	}
}

func TestShown(t *testing.T) {
	var got lines
	l := &Log{Logger: &got, Show: func(name string) string { return name[:0] }}
	if l.WarnOf("secret", "reentrant", "me", "lost"); len(got) != 1 || got[0] != "lock: lostlock-kindreentrantownerme" {
		t.Errorf("got %q", got)
	}
	silent := new(Log)
	silent.WarnOf("secret", "reentrant", "me", "lost")
	if !silent.Silent() || silent.Shown("secret") != "" || silent.last != nil {
		t.Error("a Log without a Logger does something")
	}
}
