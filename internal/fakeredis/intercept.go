package fakeredis

import (
	"slices"
	"strings"
	"time"
)

// Cmd is a command received over a connection.
type Cmd struct {
	Conn int64    // [Conn].ID of the connection
	Name string   // in upper case
	Args []string // as sent, the name first
	N    int      // 1 for the server's first command of this name, and so on
}

// String returns the arguments with spaces between.
func (c Cmd) String() string { return strings.Join(c.Args, " ") }

// Intercept lets fn decide about every received command before its run, including commands of the handshake and of a
// transaction. The calls come singly, in goroutines of the Server. fn must not block: [Delay] and [Wait] hold a command back.
// nil removes the interceptor. Intercept waits for a call under way.
func (s *Server) Intercept(fn func(Cmd) Action) {
	s.hookMu.Lock()
	defer s.hookMu.Unlock()
	s.hook = fn
}

// Action is the fate of a command. The zero value runs and answers the command.
type Action struct {
	kind    actionKind
	raw     string
	silent  bool // run, but not answered
	end     ending
	wait    time.Duration
	gate    <-chan struct{}
	then    *Action
	late    time.Duration
	before  string
	after   string
	split   bool
	cuts    []int
	between time.Duration
}

type actionKind uint8

const (
	actRun actionKind = iota
	actReply
	actSwallow
)

type ending uint8

const (
	endNone ending = iota
	endClose
	endReset
)

// Run runs and answers the command.
func Run() Action { return Action{} }

// Reply answers raw bytes in place of the command, such as "-LOADING busy\r\n".
func Reply(raw string) Action { return Action{kind: actReply, raw: raw} }

// Drop runs the command without an answer.
func Drop() Action { return Action{silent: true} }

// Swallow neither runs nor answers the command.
func Swallow() Action { return Action{kind: actSwallow} }

// Close closes the connection in the command's stead.
func Close() Action { return Swallow().ThenClose() }

// RunThenClose runs the command and closes the connection without an answer.
func RunThenClose() Action { return Drop().ThenClose() }

// Delay lets d pass before the run; later commands of the same connection wait. A client's close does not stop the command, as
// nothing stops a command under way.
func Delay(d time.Duration, then Action) Action { return Action{wait: d, then: &then} }

// Wait is Delay until ch is closed.
func Wait(ch <-chan struct{}, then Action) Action { return Action{gate: ch, then: &then} }

// Late runs the command and sends the answer d late, together with everything later on the connection.
func (a Action) Late(d time.Duration) Action { a.late = d; return a }

// Before sends raw bytes before the answer.
func (a Action) Before(raw string) Action { a.before = raw; return a }

// After sends raw bytes behind the answer.
func (a Action) After(raw string) Action { a.after = raw; return a }

// Split sends the answer in pieces, a piece every pause, cut at the given offsets, or into single bytes without offsets.
func (a Action) Split(pause time.Duration, at ...int) Action {
	a.split, a.between, a.cuts = true, pause, at
	return a
}

// ThenClose closes the connection at the end.
func (a Action) ThenClose() Action { a.end = endClose; return a }

// ThenReset resets the connection at the end: the answer is lost.
func (a Action) ThenReset() Action { a.end = endReset; return a }

// decide logs the command and asks the interceptor. ok is false if the server is mute or the connection closed.
func (s *Server) decide(c *conn, args []string) (act Action, ok bool) {
	s.mu.Lock()
	cmd := Cmd{Conn: c.id, Name: strings.ToUpper(args[0]), Args: args}
	if c.dead || s.mute {
		s.mu.Unlock()
		return Action{}, false
	}
	s.counts[cmd.Name]++
	cmd.N = s.counts[cmd.Name]
	s.log = append(s.log, cmd)
	s.tickLocked()
	s.mu.Unlock()

	s.hookMu.Lock()
	defer s.hookMu.Unlock()
	if s.hook == nil {
		return Action{}, true
	}
	return s.hook(cmd), true
}

// Log returns the commands received over connections so far, in order, including intercepted commands, without muted commands.
func (s *Server) Log() []Cmd {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.log)
}

// Commands returns the log as text, the arguments of each command with spaces between.
func (s *Server) Commands() []string {
	var list []string
	for _, cmd := range s.Log() {
		list = append(list, cmd.String())
	}
	return list
}

// Count returns how many commands of that name are in the log. The case of the name does not matter.
func (s *Server) Count(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts[strings.ToUpper(name)]
}

// ClearLog empties the log, starts the counts anew and forgets the messages.
func (s *Server) ClearLog() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log, s.counts, s.messages = nil, map[string]int{}, nil
}
