package lock

import (
	"cmp"
	"context"
	"errors"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/resp"
)

const (
	// namesEvery is the least interval between questions for the names of processes.
	namesEvery = time.Minute
	// mostConnections limits the connections of a server that is asked for names: CLIENT LIST holds up all clients for 1.7 ms
	// with 1,000 connections, and for 15 ms with 10,000.
	mostConnections = 1000
	// mostNames limits the names remembered.
	mostNames = 1000
)

// processNames remembers the names of processes by the ids of their clients, which never change.
type processNames struct {
	mu      sync.Mutex // guards the following
	known   map[string]string
	asked   time.Time
	answer  chan struct{} // closed with the answer to the last question
	refused bool          // the user may not ask
}

// of returns the name of the process with a client; "" if unknown. name is a lock of the client's server.
func (p *processNames) of(ctx context.Context, server conn.Doer, name, id string) string {
	now := time.Now()
	p.mu.Lock()
	process, known := p.known[id]
	ask := !known && !p.refused && (p.asked.IsZero() || now.Sub(p.asked) >= namesEvery)
	if ask {
		p.asked, p.answer = now, make(chan struct{})
	}
	answer := p.answer
	p.mu.Unlock()
	switch {
	case known || answer == nil:
		return process
	case !ask: // another waiter has asked
		select {
		case <-answer:
		case <-ctx.Done():
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.known[id]
	}
	defer close(answer)
	names, err := connectedNames(ctx, server, name)
	p.mu.Lock()
	defer p.mu.Unlock()
	if reply, ok := errors.AsType[resp.Error](err); ok && !passing(reply) {
		p.refused = true
	}
	if err == nil && len(p.known)+len(names) > mostNames {
		p.known = nil
	}
	for id, process := range names {
		if p.known == nil {
			p.known = make(map[string]string)
		}
		p.known[id] = process
	}
	return p.known[id]
}

// connectedNames returns the names of the processes connected to the server of a lock, by the ids of their clients; nil if there
// are too many.
func connectedNames(ctx context.Context, server conn.Doer, name string) (map[string]string, error) {
	text, err := textOf(server.Send(ctx, resp.Cmd("INFO", "clients").On(name)))
	if err != nil {
		return nil, err
	}
	_, rest, _ := strings.Cut(text, "connected_clients:")
	count, _, _ := strings.Cut(rest, "\r\n")
	if n, err := strconv.Atoi(count); err != nil || n > mostConnections {
		return nil, err
	}
	if text, err = textOf(server.Send(ctx, resp.Cmd("CLIENT", "LIST").On(name))); err != nil {
		return nil, err
	}
	names := make(map[string]string)
	for line := range strings.Lines(text) {
		titles, _, _ := connection(line)
		for title := range strings.SplitSeq(titles, ",") {
			if colon := strings.LastIndexByte(title, ':'); colon >= 0 {
				names[title[colon+1:]] = title[:colon]
			}
		}
	}
	return names, nil
}

// maxName limits the length of the default Config.Name.
const maxName = 100

// defaultName returns the name of this process: the name of its pod, or else the host's name and the process id.
func defaultName() string {
	name := os.Getenv("POD_NAME")
	if name == "" {
		host, _ := os.Hostname()
		name = cmp.Or(host, "unknown") + "-" + strconv.Itoa(os.Getpid())
	}
	name = strings.Map(func(r rune) rune {
		if !inName(r) {
			return '-'
		}
		return r
	}, name)
	return name[max(0, len(name)-maxName):]
}

// inName reports whether r may be in the name of a process.
func inName(r rune) bool { return r > ' ' && r <= '~' && r != ',' }

// introduce adds the client's title to the names of its Server's connections, if the Server has names, until stop is
// called.
func introduce(s Server, title string) (stop func()) {
	if named, ok := find[interface {
		Introduce(name string) (stop func())
	}](s); ok {
		return named.Introduce(title)
	}
	return func() {}
}

// onLoss registers fn with a Server that reports lost connections, and returns a function to unregister.
func onLoss(s Server, fn func()) (stop func()) {
	if l, ok := find[interface {
		OnLoss(fn func()) (stop func())
	}](s); ok {
		return l.OnLoss(fn)
	}
	return func() {}
}

// find returns the first of a Server and of the Servers that it wraps that is a T.
func find[T any](s Server) (found T, ok bool) {
	for {
		if found, ok = s.(T); ok {
			return found, true
		}
		wrapper, wraps := s.(interface{ Unwrap() Server })
		if !wraps {
			return found, false
		}
		s = wrapper.Unwrap()
	}
}

// connection reads a line of CLIENT LIST.
func connection(line string) (names, addr string, age time.Duration) {
	for field := range strings.FieldsSeq(line) {
		switch key, value, _ := strings.Cut(field, "="); key {
		case "name":
			names = value
		case "addr":
			addr = value
		case "age":
			seconds, _ := strconv.ParseInt(value, 10, 32)
			age = time.Duration(seconds) * time.Second
		}
	}
	return names, addr, age
}
