package simulation

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/internal/simulation/redisson"
)

// recorded are the files of testdata/redisson with calls that package redisson has. Each is followed up to a call that it has not.
var recorded = map[string]int{"lock": 19, "fair": 12, "readwrite": 21, "semaphore": 5}

// Package redisson leaves on the server what Redisson has left there.
func TestRedissonAsRecorded(t *testing.T) {
	for name, least := range recorded {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFollower(t)
				defer f.close()
				text, err := os.ReadFile("../../testdata/redisson/" + name + ".txt")
				if err != nil {
					t.Fatal(err)
				}
				if n := f.follow(strings.Split(string(text), "\n")); n < least {
					t.Errorf("%d calls, want %d at least", n, least)
				}
			})
		})
	}
}

// follower makes the calls of a recording.
type follower struct {
	t       *testing.T
	srv     *fakeredis.Server
	in      *interpreter
	pool    *conn.Pool
	clients map[string]*redisson.Client
	holds   map[string][]*redisson.Hold // by caller, lock and whether for reading
	running map[string]chan string      // by number
	later   [][]string                  // calls that would wait beside one that waits, in no order
	inLine  bool                        // they have an order
	heard   int
}

func newFollower(t *testing.T) *follower {
	f := &follower{t: t, srv: fakeredis.New(), in: newInterpreter(func(string, *fakeredis.Call, any) {}),
		clients: map[string]*redisson.Client{}, holds: map[string][]*redisson.Hold{}, running: map[string]chan string{}}
	f.srv.Interpret(f.in.compile)
	var err error
	if f.pool, err = conn.New(conn.Config{Dial: f.srv.Dial}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"A", "B"} {
		f.clients[name] = redisson.New(f.pool, 30*time.Second)
	}
	return f
}

func (f *follower) close() {
	for _, c := range f.clients {
		c.Close()
	}
	_ = f.pool.Close()
	f.srv.Close()
	f.in.close()
}

// follow makes calls until one is unknown, and returns how many it has made.
func (f *follower) follow(lines []string) (calls int) {
	var step, keys []string
	messages := []string{}
	judge := func() {
		synctest.Wait()
		if len(step) > 0 && !f.left(keys) {
			f.t.Errorf("%v: the server has\n\t%q\nRedisson leaves\n\t%q", step, f.srv.Dump(), keys)
		}
		got := f.messages()
		if !slices.Equal(got, messages) {
			f.t.Errorf("%v: published %q, Redisson publishes %q", step, got, messages)
		}
		step, keys, messages = nil, nil, []string{}
	}
	for _, line := range lines {
		mark, rest, _ := strings.Cut(line, " ")
		words := strings.Fields(rest)
		switch mark {
		case ">", "~":
			judge()
			if mark == "~" {
				ms, _ := strconv.Atoi(rest)
				time.Sleep(time.Duration(ms) * time.Millisecond)
				continue
			}
			if !slices.ContainsFunc(lines, func(l string) bool { return strings.HasPrefix(l, "< "+words[0]+" ") }) {
				return calls
			}
			if skipped(words) {
				step = words
				continue
			}
			if !f.start(words, lines) {
				return calls
			}
			step, calls = words, calls+1
		case "<":
			if len(step) > 0 && !skipped(step) || f.running[words[0]] != nil {
				f.result(words[0], strings.Join(words[1:], " "))
			}
		case "!":
			messages = append(messages, rest)
		case "=":
			keys = append(keys, rest)
		}
	}
	judge()
	return calls
}

// skipped are calls that change nothing, and have no part in what is tested here.
func skipped(words []string) bool {
	return slices.Contains([]string{"isheld", "holdcount", "islocked", "ttl"}, words[2]) || slices.Contains(words, "avail")
}

func (f *follower) messages() []string {
	all, list := f.srv.Messages(), []string{}
	for _, m := range all[f.heard:] {
		list = append(list, f.named(m.Channel+" "+m.Payload))
	}
	f.heard = len(all)
	return list
}

// named gives owners their names in the recordings.
func (f *follower) named(text string) string {
	for name, c := range f.clients {
		text = strings.ReplaceAll(text, c.ID()+":", name)
	}
	return text
}

// start starts a call, now or when the one that waits has returned; false if it is unknown.
func (f *follower) start(words, lines []string) bool {
	call := f.call(words[1:])
	if call == nil {
		return false
	}
	f.inLine = f.inLine || words[2] == "fairlock"
	if len(f.running) > 0 && !f.inLine && strings.HasSuffix(words[2], "lock") && !strings.HasPrefix(words[2], "un") && !strings.HasPrefix(words[2], "try") {
		f.later = append(f.later, words)
		return true
	}
	done := make(chan string, 1)
	f.running[words[0]] = done
	go func() { done <- call() }()
	synctest.Wait()
	return true
}

func (f *follower) result(number, want string) {
	for f.running[number] == nil && len(f.later) > 0 {
		next := f.later[0]
		f.later = f.later[1:]
		done := make(chan string, 1)
		f.running[next[0]] = done
		done <- f.call(next[1:])()
	}
	select {
	case got := <-f.running[number]:
		if got != want {
			f.t.Errorf("call %s returned %q, Redisson's %q", number, got, want)
		}
	case <-time.After(time.Second):
		f.t.Fatalf("call %s has not returned", number)
	}
	delete(f.running, number)
}

var lockCall = regexp.MustCompile(`^(un|try)?(fair|read|write|)lock$`)

// call is what a line of a recording calls, nil if that is unknown.
func (f *follower) call(words []string) func() string {
	caller, method, rest := words[0], words[1], words[2:]
	c, ctx := f.clients[caller[:1]], context.Background()
	thread, _ := strconv.ParseInt(caller[1:], 10, 64)
	parts := lockCall.FindStringSubmatch(method)
	switch {
	case method == "sem":
		return f.semaphore(c, rest)
	case method == "force" && len(rest) == 1:
		return func() string {
			was, err := c.Force(ctx, rest[0])
			return fmt.Sprint(outcome(err, was))
		}
	case parts == nil:
		return nil
	}
	kind := map[string]redisson.Kind{"": redisson.Plain, "fair": redisson.Fair, "read": redisson.Read, "write": redisson.Write}[parts[2]]
	key := caller + rest[0] + string(kind)
	if parts[1] == "un" {
		return func() string {
			held := f.holds[key]
			if len(held) == 0 { // of nothing
				held = append(held, c.Of(kind, rest[0], thread))
			}
			f.holds[key] = held[:len(held)-1]
			return fmt.Sprint(outcome(held[len(held)-1].Unlock(ctx), "unlocked"))
		}
	}
	times := []time.Duration{}
	for _, word := range rest[1:] {
		ms, _ := strconv.Atoi(word)
		times = append(times, time.Duration(ms)*time.Millisecond)
	}
	r := redisson.Request{Kind: kind, Name: rest[0], Thread: thread}
	switch {
	case parts[1] == "try" && len(times) == 2:
		r.Wait, r.Lease, r.Try = times[0], times[1], times[0] == 0
	case parts[1] == "try":
		r.Try = true
	case len(times) == 1:
		r.Lease = times[0]
	}
	return func() string {
		h, err := c.Lock(ctx, r)
		switch {
		case err != nil:
			return err.Error()
		case h == nil:
			return "false"
		case parts[1] == "try":
			f.holds[key] = append(f.holds[key], h)
			return "true"
		}
		f.holds[key] = append(f.holds[key], h)
		return "locked"
	}
}

func outcome(err error, good any) any {
	switch {
	case errors.Is(err, redisson.ErrNotOwner):
		return "error IllegalMonitorStateException"
	case err != nil:
		return err
	}
	return good
}

func (f *follower) semaphore(c *redisson.Client, words []string) func() string {
	n, wait := 0, time.Duration(0)
	if len(words) > 2 {
		n, _ = strconv.Atoi(words[2])
	}
	if len(words) > 3 {
		ms, _ := strconv.Atoi(words[3])
		wait = time.Duration(ms) * time.Millisecond
	}
	switch words[0] {
	case "set":
		return func() string {
			set := f.srv.Do("SETNX", words[1], words[2]) == any(int64(1))
			if set {
				f.srv.Do("PUBLISH", "redisson_sc:{"+words[1]+"}", words[2])
			}
			return fmt.Sprint(set)
		}
	case "acquire":
		return func() string {
			_, err := c.Acquire(context.Background(), words[1], n, time.Hour)
			return fmt.Sprint(outcome(err, "acquired"))
		}
	case "try":
		return func() string {
			got, err := c.Acquire(context.Background(), words[1], n, wait)
			return fmt.Sprint(outcome(err, got))
		}
	case "release":
		return func() string {
			return fmt.Sprint(outcome(c.Release(context.Background(), words[1], n), "released"))
		}
	}
	return nil
}

// left reports whether the server has the keys of the recording, with lives of about the same length.
func (f *follower) left(want []string) bool {
	got := 0
	for _, key := range f.srv.Keys() {
		got++
		if !slices.ContainsFunc(want, func(line string) bool { return f.is(key.Name, strings.Fields(line)) }) {
			return false
		}
	}
	return got == len(want)
}

// is compares a key with its words in a recording: type, name, life, parts.
func (f *follower) is(name string, want []string) bool {
	kind := string(f.srv.Do("TYPE", name).(fakeredis.Status))
	life, _ := f.srv.Do("PTTL", name).(int64)
	set, err := strconv.ParseInt(want[2], 10, 64)
	if kind != want[0] || f.named(name) != want[1] || (err != nil) != (life < 0) || err == nil && (life > set+set/20+500 || life < set*2/3-500) {
		return false
	}
	parts := []string{}
	switch kind {
	case "string":
		parts = append(parts, f.srv.Do("GET", name).(string))
	case "list", "zset":
		command := map[string]string{"list": "LRANGE", "zset": "ZRANGE"}[kind]
		for _, e := range f.srv.Do(command, name, "0", "-1").([]any) {
			parts = append(parts, f.named(e.(string)))
		}
	case "hash":
		pairs := f.srv.Do("HGETALL", name).([]any)
		for i := 0; i < len(pairs); i += 2 {
			parts = append(parts, f.named(pairs[i].(string))+"="+pairs[i+1].(string))
		}
	}
	wanted := slices.Clone(want[3:])
	if kind == "zset" { // the scores are of another time
		for i := range wanted {
			wanted[i], _, _ = strings.Cut(wanted[i], "=")
		}
	}
	if kind == "hash" {
		slices.Sort(parts)
		slices.Sort(wanted)
	}
	return slices.Equal(parts, wanted)
}
