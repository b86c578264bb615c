package locktorture_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/lockwire/lockwire/internal/locktorture"
	"github.com/lockwire/lockwire/internal/redistest"
)

const childEnv = "LOCKWIRE_LOCKTORTURE_CHILD"

func TestMain(m *testing.M) {
	if mode := os.Getenv(childEnv); mode != "" {
		os.Exit(child(mode))
	}
	if text, ok := os.LookupEnv(workerEnv); ok {
		os.Exit(work(text))
	}
	redistest.Main(m)
}

// child repeats each line of its input as a note and ends with the input.
func child(mode string) int {
	log := locktorture.NewLog(os.Stdout, 3)
	log.Add(locktorture.Event{Kind: locktorture.Note, Text: "ready"})
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		log.Add(locktorture.Event{Kind: locktorture.Note, Text: lines.Text()})
	}
	if mode == "fails" {
		fmt.Println("no event")
		fmt.Fprintln(os.Stderr, "some reason")
		return 5
	}
	return 0
}

func start(t *testing.T, mode string) (*locktorture.History, *locktorture.Process) {
	t.Helper()
	h := new(locktorture.History)
	p, err := locktorture.Start(h, 3, childEnv+"="+mode)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	await(t, h, "ready")
	return h, p
}

func await(t *testing.T, h *locktorture.History, text string) locktorture.Event {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	e, err := h.Await(ctx, func(e locktorture.Event) bool { return e.Text == text })
	if err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return e
}

func TestProcessEnds(t *testing.T) {
	h, p := start(t, "ends")
	before := locktorture.Now()
	if err := p.Send("hello"); err != nil {
		t.Fatal(err)
	}
	if e := await(t, h, "hello"); e.Process != 3 || e.At < before || e.At > locktorture.Now() {
		t.Errorf("the child's event %+v is not of now, %v", e, before)
	}
	p.Finish()
	if err := p.Wait(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestProcessFails(t *testing.T) {
	_, p := start(t, "fails")
	p.Finish()
	err := p.Wait(t.Context())
	if err == nil || !strings.Contains(err.Error(), "exit status 5") ||
		!strings.Contains(err.Error(), "some reason") || !strings.Contains(err.Error(), "no event") {
		t.Errorf("Wait = %v, want how it ended and what it said", err)
	}
}

func TestProcessStopped(t *testing.T) {
	h, p := start(t, "ends")
	if err := p.Pause(); err != nil {
		t.Fatal(err)
	}
	if err := p.Send("later"); err != nil {
		t.Fatal(err)
	}
	if err := p.Continue(); err != nil {
		t.Fatal(err)
	}
	await(t, h, "later")
	if err := p.Pause(); err != nil {
		t.Fatal(err)
	}
	p.Kill()
	h.Add(locktorture.Event{Process: 3, Hold: 1, Kind: locktorture.Acquired})
	if holds := h.Holds(); len(holds) != 1 || holds[0].To > locktorture.Now() {
		t.Errorf("holds of a dead process %v, want one that ended", holds)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := p.Wait(ctx); err == nil {
		t.Error("Wait of a killed process = nil")
	}
}
