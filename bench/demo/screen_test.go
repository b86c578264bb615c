package main

import (
	"bytes"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// sampleFrame is worker 2 dead, with the lock, of three.
func sampleFrame() *frame {
	f := newFrame(settings{workers: 3, lease: 3 * time.Second}, "miniredis inside the demo")
	f.elapsed, f.holder, f.holds, f.left, f.counter = 11*time.Second, 1, 2, 1500*time.Millisecond, 1234
	f.workers = []tally{
		{pid: 4711, acquired: 1000, counted: 1000},
		{pid: 4712, acquired: 235, counted: 234, killed: true, ended: true},
		{pid: 4713},
	}
	return &f
}

func TestBoard(t *testing.T) {
	var out bytes.Buffer
	b := newBoard(&out, false)
	f := sampleFrame()
	b.open(f)
	b.note(f, "worker 2 gets SIGKILL")
	out.Reset()
	b.draw(f)
	drawing := out.String()

	const shown = `lockwire demo                                                          11.00 s
3 processes, one lock, lease 3s renewed every 1s, on miniredis inside the demo

  the lock    worker 2   held 2×   lease ████████████░░░░░░░░░░░░ 1.50 s
  counter     1,234

               process                           holds  increments
  worker 1        4711   waits                   1,000       1,000
  worker 2        4712   dead, has the lock        235         234
  worker 3        4713   waits                       0           0
  all                                            1,235       1,234

  11.00 s  worker 2 gets SIGKILL
`
	text := strings.NewReplacer("\x1b[K", "", "\r", "").Replace(drawing)
	up, text, _ := strings.Cut(text, "A")
	if up != "\x1b[13" {
		t.Errorf("the cursor goes up by %q, want the 13 lines of the last drawing", up)
	}
	if text != shown {
		t.Errorf("drawing is\n%s\nwant\n%s", text, shown)
	}
	for line := range strings.Lines(text) {
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 80 {
			t.Errorf("%d columns: %q", n, line)
		}
	}
}

func TestBoardLeavesTheTerminalAsItWas(t *testing.T) {
	var out bytes.Buffer
	b := newBoard(&out, true)
	b.close()
	if out.Len() > 0 {
		t.Errorf("closing a board that was not opened wrote %q", out.String())
	}
	b.open(sampleFrame())
	b.close()
	b.close()
	if text := out.String(); !strings.HasPrefix(text, boardUp) || !strings.HasSuffix(text, boardDown) ||
		strings.Count(text, boardDown) != 1 {
		t.Errorf("wrote %q, want %q at its beginning and one %q at its end", text, boardUp, boardDown)
	}
}

func TestBoardWithoutALock(t *testing.T) {
	b := newBoard(nil, false)
	f := sampleFrame()
	f.holder = nobody
	if got := b.lock(f)[0]; !strings.Contains(got, "is free") {
		t.Errorf("a free lock is %q", got)
	}
	f.holder, f.left = 0, -1
	if got := b.lock(f)[0]; !strings.Contains(got, strings.Repeat("░", barWidth)) {
		t.Errorf("a lock without a lease is %q", got)
	}
	f.silent = true
	if got := b.lock(f)[0]; !strings.Contains(got, "does not answer") {
		t.Errorf("a silent server is %q", got)
	}
}

func TestColours(t *testing.T) {
	escape := regexp.MustCompile(`\x1b\[[0-9]*m`)
	f := sampleFrame()
	plain, coloured := newBoard(nil, false).compose(f), newBoard(nil, true).compose(f)
	if got := escape.ReplaceAllString(strings.Join(coloured, "\n"), ""); got != strings.Join(plain, "\n") {
		t.Errorf("without its colours the board is\n%s\nwant\n%s", got, strings.Join(plain, "\n"))
	}
	if strings.Join(coloured, "\n") == strings.Join(plain, "\n") {
		t.Error("no colours")
	}
}

func TestLines(t *testing.T) {
	var out bytes.Buffer
	l := newLines(&out)
	f := sampleFrame()
	f.workers[1].killed = false
	l.open(f)
	l.acquired(f, event{worker: 1, report: report{At: at(412), Asked: at(0), Holds: 1}})
	f.elapsed += 900 * time.Millisecond
	l.draw(f) // too soon
	f.elapsed, f.left = f.elapsed+200*time.Millisecond, 400*time.Millisecond
	f.workers[1].killed = true
	l.draw(f)
	f.holder = 0 // by the time the server was asked, somebody else had it
	l.acquired(f, event{worker: 2, report: report{At: at(412), Asked: at(400), Holds: 3}})
	f.sprint, f.rate, f.elapsed = true, 1520, f.elapsed+time.Second
	l.draw(f)

	const want = `lockwire demo: 3 processes, one lock, lease 3s renewed every 1s, on miniredis inside the demo

     time  has the lock    holds  lease left  counter    waited
  11.00 s  worker 2            2      1.50 s    1,234    0.41 s
  12.10 s  worker 2, dead      2      0.40 s    1,234
  12.10 s  worker 3            3           -    1,234    0.01 s
  13.10 s  1,520 holds a second                 1,234
`
	if got := out.String(); got != want {
		t.Errorf("lines are\n%s\nwant\n%s", got, want)
	}
}

func TestSummary(t *testing.T) {
	for _, tt := range []struct {
		ok   bool
		want []string
	}{
		{true, []string{"✓ overlaps  0 in 1,235 holds", "All is well after 11.00 s."}},
		{false, []string{"✗ overlaps", "Not all is well."}},
	} {
		var out bytes.Buffer
		writeSummary(&out, sampleFrame(), []check{{"overlaps", tt.ok, "0 in 1,235 holds"}}, "", palette{})
		for _, want := range tt.want {
			if !strings.Contains(out.String(), want) {
				t.Errorf("with ok = %v the summary has no %q:\n%s", tt.ok, want, out.String())
			}
		}
	}
}

func TestThousands(t *testing.T) {
	for n, want := range map[int]string{0: "0", 7: "7", 999: "999", 1000: "1,000", 12345: "12,345", 1234567: "1,234,567"} {
		if got := thousands(n); got != want {
			t.Errorf("thousands(%d) = %q, want %q", n, got, want)
		}
	}
}
