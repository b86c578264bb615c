package redistest

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Message is a published message.
type Message struct {
	Channel, Payload string
}

// Messages is a subscription apart from everything under test, for the test's own goroutine only.
type Messages struct {
	s *Server
	c *check
	n int // of PINGs sent
}

// PSubscribe subscribes to the channels of a pattern, until the end of the test. It returns after the server's confirmation; an
// error ends the test.
func (s *Server) PSubscribe(pattern string) *Messages {
	s.t.Helper()
	m := &Messages{s: s, c: s.dialUntilEnd()}
	if _, err := m.c.do("PSUBSCRIBE", pattern); err != nil {
		s.t.Fatalf("redistest: PSUBSCRIBE: %v", err)
	}
	return m
}

// All returns the messages published before this call and after the last call, in order, without a wait: a message of a command
// with a known reply has arrived.
func (m *Messages) All() []Message {
	m.s.t.Helper()
	m.n++
	mark := strconv.Itoa(m.n)
	if err := m.c.send("PING", mark); err != nil {
		m.s.t.Fatalf("redistest: PING: %v", err)
	}
	var all []Message
	for {
		words, err := m.next()
		switch {
		case err != nil:
			m.s.t.Fatalf("redistest: subscription: %v", err)
		case len(words) == 2 && words[0] == "pong" && words[1] == mark:
			return all
		case len(words) == 4 && words[0] == "pmessage":
			all = append(all, Message{Channel: words[2], Payload: words[3]})
		default:
			m.s.t.Fatalf("redistest: subscription: unexpected %q", words)
		}
	}
}

func (m *Messages) next() ([]string, error) {
	v, err := m.c.r.Read()
	if err != nil {
		return nil, err
	}
	return texts(v)
}

// Monitor records the commands of the server, for the test's own goroutine only.
type Monitor struct {
	s *Server
	c *check
	n int // of ECHOs sent
}

// Monitor records commands until the end of the test, including commands inside scripts. An error ends the test.
func (s *Server) Monitor() *Monitor {
	s.t.Helper()
	m := &Monitor{s: s, c: s.dialUntilEnd()}
	if _, err := m.c.do("MONITOR"); err != nil {
		s.t.Fatalf("redistest: MONITOR: %v", err)
	}
	return m
}

// Lines returns the commands run before this call and after the last call, as in MONITOR but without the time: `[0
// 127.0.0.1:33388] "GET" "key"`, and `[0 lua] "get" "key"` inside a script.
func (m *Monitor) Lines() []string {
	m.s.t.Helper()
	var lines []string
	for _, c := range m.Commands() {
		lines = append(lines, c.Line)
	}
	return lines
}

// Command is a command run by the server.
type Command struct {
	At   time.Time // by the server's clock
	Line string    // as in Lines
}

// Commands is Lines with the time of each command.
func (m *Monitor) Commands() []Command {
	m.s.t.Helper()
	m.n++
	mark := fmt.Sprintf("redistest monitor %d", m.n)
	m.s.Do("ECHO", mark)
	m.c.nc.SetDeadline(time.Now().Add(Patience))
	var commands []Command
	for {
		c, err := m.next()
		switch {
		case err != nil:
			m.s.t.Fatalf("redistest: MONITOR: %v", err)
		case strings.HasSuffix(c.Line, `"ECHO" "`+mark+`"`):
			return commands
		case !strings.Contains(c.Line, `"AUTH"`):
			commands = append(commands, c)
		}
	}
}

func (m *Monitor) next() (Command, error) {
	v, err := m.c.r.Read()
	if err != nil {
		return Command{}, err
	}
	text, err := v.Text()
	if err != nil {
		return Command{}, err
	}
	stamp, line, _ := strings.Cut(text, " ")
	seconds, fraction, _ := strings.Cut(stamp, ".")
	s, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return Command{}, fmt.Errorf("%q: %w", text, err)
	}
	us, err := strconv.ParseInt(fraction, 10, 64)
	if err != nil {
		return Command{}, fmt.Errorf("%q: %w", text, err)
	}
	return Command{At: time.Unix(s, us*1000), Line: line}, nil
}

// dialUntilEnd opens a connection for checks, closed at the end of the test.
func (s *Server) dialUntilEnd() *check {
	s.t.Helper()
	c, err := s.dialCheck()
	if err != nil {
		s.t.Fatalf("redistest: %v", err)
	}
	s.t.Cleanup(func() { c.nc.Close() })
	return c
}
