package runner_test

import (
	"bufio"
	"encoding/json"
	"io"
	"strings"
	"testing"

	"github.com/lockwire/lockwire/bench/measure"
	"github.com/lockwire/lockwire/bench/runner"
)

func TestChild(t *testing.T) {
	order, err := json.Marshal(runner.Order{Case: "codec-integer", Contender: "lockwire", Procs: 1, Length: measure.Length{Ops: 1000}})
	if err != nil {
		t.Fatal(err)
	}
	stdin, begin := io.Pipe()
	out, stdout := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := runner.Child(string(order), stdin, stdout)
		stdout.Close()
		ended <- err
	}()
	lines := bufio.NewScanner(out)
	if !lines.Scan() || lines.Text() != "ready" {
		t.Fatalf("first line %q, want ready", lines.Text())
	}
	if _, err := io.WriteString(begin, "begin\n"); err != nil {
		t.Fatal(err)
	}
	if !lines.Scan() || lines.Text() != "done" {
		t.Fatalf("second line %q, want done", lines.Text())
	}
	var r measure.Report
	if !lines.Scan() {
		t.Fatal("no report")
	}
	if err := json.Unmarshal(lines.Bytes(), &r); err != nil || r.Ops != 1000 || r.Seconds <= 0 {
		t.Errorf("report %+v, %v; want 1000 operations", r, err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestChildRefuses(t *testing.T) {
	for _, order := range []string{"", `{"Case":"none"}`, `{"Case":"codec-integer","Contender":"none"}`} {
		if err := runner.Child(order, strings.NewReader(""), io.Discard); err == nil {
			t.Errorf("no error for the order %q", order)
		}
	}
	// Its parent has died before it could say when to begin.
	order := `{"Case":"codec-integer","Contender":"lockwire","Length":{"Ops":1}}`
	if err := runner.Child(order, strings.NewReader(""), io.Discard); err == nil {
		t.Error("no error without a line to begin")
	}
}
