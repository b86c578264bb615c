// Package processes finds the names of processes: the default name, and the names of a server's connections.
package processes

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"maps"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/lock/internal/remote"
	"github.com/lockwire/lockwire/resp"
)

const (
	// namesEvery is the least interval between questions for the names of processes.
	namesEvery = time.Minute
	// mostConnections limits the connections of a server asked for names: CLIENT LIST holds up all clients for 1.7 ms
	// with 1,000 connections, and for 15 ms with 10,000.
	mostConnections = 1000
	// mostNames limits the names remembered.
	mostNames = 1000
)

// Names remembers the names of processes by the ids of their clients, which never change.
type Names struct {
	mu      sync.Mutex // guards the following
	known   map[string]string
	asked   time.Time
	answer  chan struct{} // closed with the answer to the last question
	refused bool          // the user may not ask
}

// Of returns the name of the process with a client; "" if unknown. name is a lock of the client's server.
func (p *Names) Of(ctx context.Context, server conn.Doer, name, id string) string {
	p.mu.Lock()
	process, known := p.known[id]
	ask := !known && !p.refused && time.Since(p.asked) >= namesEvery
	if ask {
		p.asked, p.answer = time.Now(), make(chan struct{})
	}
	answer := p.answer
	p.mu.Unlock()
	switch {
	case known || answer == nil:
		return process
	case ask:
		defer close(answer)
		p.learn(connectedNames(ctx, server, name))
	default: // another waiter has asked
		select {
		case <-answer:
		case <-ctx.Done():
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.known[id]
}

// learn records the answer to a question for the names.
func (p *Names) learn(names map[string]string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if reply, ok := errors.AsType[resp.Error](err); ok && !remote.NotReady(reply) {
		p.refused = true
	}
	if p.known == nil || len(p.known)+len(names) > mostNames {
		p.known = make(map[string]string)
	}
	maps.Copy(p.known, names)
}

// connectedNames returns the names of the processes connected to the server of a lock, by the ids of their clients; nil if there
// are too many.
func connectedNames(ctx context.Context, server conn.Doer, name string) (map[string]string, error) {
	text, err := remote.Text(server.Send(ctx, resp.Cmd("INFO", "clients").On(name)))
	if err != nil {
		return nil, err
	}
	if n, err := strconv.Atoi(remote.InfoLine(text, "connected_clients")); err != nil || n > mostConnections {
		return nil, err
	}
	if text, err = remote.Text(server.Send(ctx, resp.Cmd("CLIENT", "LIST").On(name))); err != nil {
		return nil, err
	}
	names := make(map[string]string)
	for p := range Connected(text) {
		names[p.ID] = p.Name
	}
	return names, nil
}

// maxName limits the length of the default name.
const maxName = 100

// DefaultName returns the name of this process: the name of its pod, or else the host's name and the process id.
func DefaultName() string {
	name := os.Getenv("POD_NAME")
	if name == "" {
		host, _ := os.Hostname()
		name = cmp.Or(host, "unknown") + "-" + strconv.Itoa(os.Getpid())
	}
	name = strings.Map(func(r rune) rune {
		if !InName(r) {
			return '-'
		}
		return r
	}, name)
	return name[max(0, len(name)-maxName):]
}

// InName reports whether r may be in the name of a process.
func InName(r rune) bool { return r > ' ' && r <= '~' && r != ',' }

// Process is a client, as named by a connection.
type Process struct {
	ID, Name, Addr string
	Age            time.Duration // of the connection
}

// Connected yields the clients in a reply to CLIENT LIST, each for each of its connections.
func Connected(text string) iter.Seq[Process] {
	return func(yield func(Process) bool) {
		for line := range strings.Lines(text) {
			var titles string
			var p Process
			for field := range strings.FieldsSeq(line) {
				switch key, value, _ := strings.Cut(field, "="); key {
				case "name":
					titles = value
				case "addr":
					p.Addr = value
				case "age":
					seconds, _ := strconv.ParseInt(value, 10, 32)
					p.Age = time.Duration(seconds) * time.Second
				}
			}
			for title := range strings.SplitSeq(titles, ",") {
				if colon := strings.LastIndexByte(title, ':'); colon >= 0 {
					if p.Name, p.ID = title[:colon], title[colon+1:]; !yield(p) {
						return
					}
				}
			}
		}
	}
}
