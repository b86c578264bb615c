package locktorture_test

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/lockwire/lockwire/internal/locktorture"
)

func TestEventsAsLines(t *testing.T) {
	var b strings.Builder
	log := locktorture.NewLog(&b, 7)
	for i, want := range []int64{1, 2, 3} {
		if got := log.NextHold(); got != want {
			t.Errorf("NextHold() number %d = %d, want %d", i, got, want)
		}
	}
	events := []locktorture.Event{
		{At: 5, Hold: 1, Kind: locktorture.Acquired, Name: "a \"b\"\n", Owner: "o:1", Until: 12},
		{At: 6, Kind: locktorture.Note, Text: "x\x00\ty"},
	}
	for _, e := range events {
		log.Add(e)
	}
	before := locktorture.Now()
	log.Add(locktorture.Event{Kind: locktorture.Asked})
	after := locktorture.Now()
	lines := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
	if len(lines) != 3 {
		t.Fatalf("%d lines for 3 events: %q", len(lines), lines)
	}
	for i, want := range events {
		want.Process = 7
		if got, err := locktorture.Parse([]byte(lines[i])); err != nil || got != want {
			t.Errorf("Parse(%q) = %+v, %v, want %+v", lines[i], got, err, want)
		}
	}
	if e, err := locktorture.Parse([]byte(lines[2])); err != nil || e.At < before || e.At > after {
		t.Errorf("event of now is %+v, %v, want At between %d and %d", e, err, before, after)
	}
	if _, err := locktorture.Parse([]byte(`{"At":`)); err == nil {
		t.Error("half a line was parsed")
	}
}

func TestLogToNobody(t *testing.T) {
	r, w := io.Pipe()
	r.Close()
	locktorture.NewLog(w, 1).Add(locktorture.Event{Kind: locktorture.Note})
}

func TestAt(t *testing.T) {
	before := locktorture.Now()
	instant := time.Now()
	after := locktorture.Now()
	for _, d := range []time.Duration{-time.Hour, 0, time.Hour} {
		// The result may be earlier than the truth by as long as it took to read both clocks.
		got := locktorture.At(instant.Add(d))
		if got < before+d-time.Millisecond || got > after+d {
			t.Errorf("At(%v from now) = %v, want between %v and %v", d, got, before+d, after+d)
		}
	}
}
