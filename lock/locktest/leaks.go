package locktest

import (
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
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
// themselves, as does the rest of a lock that AtLeast keeps taken: Leaks ignores all of these. A lock taken by [Server.Hold] counts
// until Release.
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
		if !strings.HasPrefix(name, "redisson_unlock_latch:") && !strings.HasPrefix(name, "lockwire_line:") && s.mayHold(name) {
			list = append(list, name)
		}
	}
	slices.Sort(list)
	return list
}

// mayHold reports whether a key may be that of a lock: a hash, as of the clients of Redisson too, or a key named by an acquire. Other
// keys are the program's, whatever their values look like.
func (s *Server) mayHold(name string) bool {
	s.mu.Lock()
	asked := s.asked[name]
	s.mu.Unlock()
	return asked || s.fake.Do("TYPE", name) == fakeredis.Status("hash")
}

// owners returns the owners of locks in a key: clients with a number, values of Plain locks, or ids of permits.
func (s *Server) owners(name string) (list []string) {
	var members []any
	permits := false
	switch s.fake.Do("TYPE", name) {
	case fakeredis.Status("hash"):
		if members = s.ownersOfGroup(name); members == nil {
			members, _ = s.fake.Do("HKEYS", name).([]any)
		}
	case fakeredis.Status("zset"):
		if permits = strings.HasSuffix(name, ":timeout"); permits {
			members, _ = s.fake.Do("ZRANGEBYSCORE", name, fmt.Sprintf("(%d", s.now()), "+inf").([]any) // ended permits are free
		} else {
			members, _ = s.fake.Do("ZRANGE", name, "0", "-1").([]any)
		}
	case fakeredis.Status("list"):
		members, _ = s.fake.Do("LRANGE", name, "0", "-1").([]any)
	case fakeredis.Status("string"):
		members = []any{s.fake.Do("GET", name)}
	}
	for _, m := range members {
		switch text, _ := m.(string); {
		case permits:
			list = append(list, fmt.Sprintf("%q", hex.EncodeToString([]byte(text))))
		case isOwner(text), isPlain(text):
			list = append(list, fmt.Sprintf("%q", text))
		}
	}
	return list
}

// ownersOfGroup returns the owners of the values of a FasterMulti lock whose leases have not ended. It returns nil for any other hash.
func (s *Server) ownersOfGroup(name string) (list []any) {
	fields, _ := s.fake.Do("HGETALL", name).([]any)
	for i := 0; i+1 < len(fields); i += 2 {
		field, _ := fields[i].(string)
		text, _ := fields[i+1].(string)
		hold, ends := strings.CutSuffix(field, ":expire_time")
		_, owner, _ := strings.Cut(hold, ":") // behind the value
		if end, err := strconv.ParseInt(text, 10, 64); ends && err == nil && end > s.now() && !slices.Contains(list, any(owner)) {
			list = append(list, owner)
		}
	}
	return list
}

// now returns the server's time, in milliseconds since 1970.
func (s *Server) now() int64 {
	parts, _ := s.fake.Do("TIME").([]any)
	seconds, _ := strconv.ParseInt(fmt.Sprint(parts[0]), 10, 64)
	micros, _ := strconv.ParseInt(fmt.Sprint(parts[1]), 10, 64)
	return seconds*1000 + micros/1000
}

// isOwner reports whether text begins with a UUID and a colon. The rest of a lock that AtLeast keeps taken has no owner: its number
// is negative.
func isOwner(text string) bool {
	return len(text) > 37 && text[8] == '-' && text[13] == '-' && text[18] == '-' && text[23] == '-' && text[36] == ':' && text[37] != '-'
}

// isPlain reports whether text is the value of a Plain lock, which is of 16 bytes.
func isPlain(text string) bool {
	value, err := hex.DecodeString(text)
	return err == nil && len(value) == 16
}
