package locktest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/lock"
)

// leaksSettle is the maximum wait for the Clients' work in the background, for example the undo of an acquire.
const leaksSettle = 5 * time.Second

// Leaks returns a line for each held lock on the server, for each Client with leases, and for each Client with waiting
// calls: nothing after a tidy test. Leaks waits up to 5 s for changes under way.
//
// The counters of Fenced locks and the permits of semaphores stay by design, and the latches of releases expire by
// themselves: Leaks ignores all of these. A lock taken by [Server.Hold] counts until Release.
func (s *Server) Leaks() []string {
	for end := time.Now().Add(leaksSettle); ; time.Sleep(10 * time.Millisecond) {
		if list := s.leaks(); len(list) == 0 || !time.Now().Before(end) {
			return list
		}
	}
}

func (s *Server) leaks() (list []string) {
	for _, name := range s.keys() {
		if owners := s.owners(name); len(owners) > 0 {
			list = append(list, fmt.Sprintf("key %q, of %s", name, strings.Join(owners, ", ")))
		}
	}
	s.mu.Lock()
	processes := slices.Clone(s.processes)
	s.mu.Unlock()
	for i, p := range processes {
		stats := p.locks.Stats()
		if stats.Leases > 0 {
			list = append(list, fmt.Sprintf("Client %d (%s) holds %d leases%s", i+1, p.locks.ID(), stats.Leases, held(p.locks)))
		}
		if stats.Waiting > 0 {
			list = append(list, fmt.Sprintf("Client %d (%s) has %d calls that wait%s", i+1, p.locks.ID(), stats.Waiting, s.awaited()))
		}
	}
	return list
}

// held names the locks of a Client's leases.
func held(locks *lock.Client) string {
	var names []string
	for _, l := range locks.Held() {
		names = append(names, fmt.Sprintf("%q", l.Name))
	}
	if len(names) == 0 {
		return ""
	}
	slices.Sort(names)
	return ", of " + strings.Join(names, ", ")
}

// awaited names the locks with subscribers.
func (s *Server) awaited() string {
	channels, _ := s.fake.Do("PUBSUB", "CHANNELS", "redisson_*").([]any)
	var names []string
	for _, channel := range channels {
		_, name, ok := strings.Cut(channel.(string), "{")
		if name, lock := strings.CutSuffix(name, "}"); ok && lock { // others have a client or an owner behind the name
			names = append(names, fmt.Sprintf("%q", name))
		}
	}
	if len(names) == 0 {
		return ""
	}
	slices.Sort(names)
	return ", for " + strings.Join(names, ", ")
}

// keys returns the possible keys of locks.
func (s *Server) keys() (list []string) {
	all, _ := s.fake.Do("KEYS", "*").([]any)
	for _, key := range all {
		name := key.(string)
		if !strings.HasPrefix(name, "redisson_unlock_latch:") && !strings.HasPrefix(name, "lockwire_line:") {
			list = append(list, name)
		}
	}
	slices.Sort(list)
	return list
}

// owners returns the owners of locks in a key: clients with a number, or ids of permits.
func (s *Server) owners(name string) (list []string) {
	var members []any
	permits := false
	switch s.fake.Do("TYPE", name) {
	case fakeredis.Status("hash"):
		members, _ = s.fake.Do("HKEYS", name).([]any)
	case fakeredis.Status("zset"):
		members, _ = s.fake.Do("ZRANGE", name, "0", "-1").([]any)
		permits = strings.HasSuffix(name, ":timeout")
	case fakeredis.Status("list"):
		members, _ = s.fake.Do("LRANGE", name, "0", "-1").([]any)
	case fakeredis.Status("string"):
		members = []any{s.fake.Do("GET", name)}
	}
	for _, m := range members {
		if text, _ := m.(string); permits || isOwner(text) {
			list = append(list, fmt.Sprintf("%q", text))
		}
	}
	return list
}

// isOwner reports whether text begins with a UUID and a colon.
func isOwner(text string) bool {
	return len(text) > 37 && text[8] == '-' && text[13] == '-' && text[18] == '-' && text[23] == '-' && text[36] == ':'
}
