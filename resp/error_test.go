package resp_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/lockwire/lockwire/resp"
)

func TestErrorPrefix(t *testing.T) {
	for text, want := range map[resp.Error]string{
		"":                        "",
		"ERR":                     "ERR",
		"ERR unknown":             "ERR",
		"NOSCRIPT No matching s.": "NOSCRIPT",
		" ERR":                    "",
		"mine it is":              "mine",
	} {
		if got := text.Prefix(); got != want {
			t.Errorf("Prefix of %q = %q, want %q", string(text), got, want)
		}
		if text.Error() != string(text) {
			t.Errorf("Error of %q = %q", string(text), text.Error())
		}
	}
}

func TestErrorIs(t *testing.T) {
	err := fmt.Errorf("script: %w", resp.Error("NOSCRIPT No matching script. Please use EVAL."))
	if !errors.Is(err, resp.ErrNoScript) || !errors.Is(err, resp.Error("NOSCRIPT")) {
		t.Errorf("%v does not match ErrNoScript", err)
	}
	for _, target := range []error{resp.ErrMoved, resp.Error("NO"), resp.Error(""), resp.Error("NOSCRIPT No"), errors.New("NOSCRIPT")} {
		if errors.Is(err, target) {
			t.Errorf("%v matches %q", err, target)
		}
	}
	if errors.Is(resp.Error(" x"), resp.Error("")) {
		t.Error("an error without a prefix matches an error with another text")
	}
}

func TestErrorClass(t *testing.T) {
	for text, want := range map[resp.Error]string{
		"READONLY You can't write against a read only replica.":                                                  "READONLY",
		"WRONGTYPE Operation against a key holding the wrong kind of value script: 1b, on @user_script:1.":       "WRONGTYPE",
		"ERR Error running script (call to f_1b): @user_script:1: @user_script: 1: -READONLY You can't write.":   "READONLY",
		"ERR Error running script (call to f_1b): @user_script:12: WRONGTYPE Operation against a key":            "WRONGTYPE",
		"ERR Error running script (call to f_1b): @user_script:1: -OOM command not allowed":                      "OOM",
		"ERR Error running script (call to f_1b): @user_script:1: user_script:1: attempt to index a nil value":   "ERR",
		"ERR Error running script (call to f_1b): @user_script:1: Script attempted to access nonexistent global": "ERR",
		"ERR Error running script (call to f_1b): @user_script:x: READONLY":                                      "ERR",
		"ERR Error running script (call to f_1b): @user_script:":                                                 "ERR",
		"ERR Error running script (call to f_1b)":                                                                "ERR",
		"ERR Error compiling script (new function): @user_script:1: READONLY":                                    "ERR",
		"": "",
	} {
		if got := text.Class(); got != want {
			t.Errorf("Class of %q = %q, want %q", string(text), got, want)
		}
	}
}

func TestErrorRedirect(t *testing.T) {
	for text, want := range map[resp.Error]resp.Redirect{
		"MOVED 3999 127.0.0.1:6381":     {Slot: 3999, Host: "127.0.0.1", Port: 6381},
		"MOVED 3999 :6381":              {Slot: 3999, Host: "", Port: 6381},
		"MOVED 3999 ?:6381":             {Slot: 3999, Host: "?", Port: 6381},
		"MOVED 3999 ::1:6381":           {Slot: 3999, Host: "::1", Port: 6381},
		"MOVED 12182 2001:db8::1:7402":  {Slot: 12182, Host: "2001:db8::1", Port: 7402},
		"MOVED 3999 [2001:db8::1]:7402": {Slot: 3999, Host: "2001:db8::1", Port: 7402},
		"MOVED 3999 node1.example:7001": {Slot: 3999, Host: "node1.example", Port: 7001},
		"ASK 0 10.0.0.1:1":              {Slot: 0, Host: "10.0.0.1", Port: 1},
		"ASK 16383 10.0.0.1:65535":      {Slot: 16383, Host: "10.0.0.1", Port: 65535},
	} {
		if got, ok := text.Redirect(); !ok || got != want {
			t.Errorf("Redirect of %q = %+v, %v, want %+v", string(text), got, ok, want)
		}
	}
	for _, text := range []resp.Error{
		"", "MOVED", "MOVED ", "MOVED x", "MOVED 1", "MOVED 1 ", "MOVED 1 a", "MOVED 1 a:", "MOVED 1 a:0", "MOVED 1 a:99999",
		"MOVED 1 a:-1", "MOVED 1 a:+1", "MOVED 1 a:1 b", "MOVED  1 a:1", "MOVED 16384 a:1", "MOVED 99999 a:1", "MOVED -1 a:1",
		"MOVED +1 a:1", "MOVED x a:1", "MOVED 1 a:99999999999999999999", "MOVEDX 1 a:1", "ERR 1 a:1", "moved 1 a:1",
	} {
		if got, ok := text.Redirect(); ok || got != (resp.Redirect{}) {
			t.Errorf("Redirect of %q = %+v, %v, want none", string(text), got, ok)
		}
	}
}

func TestErrorTexts(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want string
	}{
		{&resp.SyntaxError{Offset: 12, Reason: "malformed integer"}, "resp: not RESP: malformed integer at offset 12"},
		{&resp.LimitError{Limit: "depth", Max: 1024, Offset: 7}, "resp: reply exceeds the limit of 1024 (depth) at offset 7"},
		{&resp.KindError{Kind: resp.Null, Want: "an integer"}, "resp: null is not an integer"},
	} {
		if got := tt.err.Error(); got != tt.want {
			t.Errorf("Error = %q, want %q", got, tt.want)
		}
	}
}
