package locktest

import (
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockwire/lockwire/internal/fakeredis"
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
	s.mu.Lock()
	processes, asked := slices.Clone(s.processes), maps.Clone(s.asked)
	s.mu.Unlock()
	for _, key := range s.fake.Keys() {
		switch {
		case strings.HasPrefix(key.Name, "redisson_unlock_latch:"), strings.HasPrefix(key.Name, "lockwire_line:"):
		case key.Type != "hash" && !asked[key.Name]: // the program's, whatever it looks like; the clients of Redisson make hashes
		default:
			if owners := quoted(", of ", s.owners(key)); owners != "" {
				list = append(list, fmt.Sprintf("key %q%s", key.Name, owners))
			}
		}
	}
	for i, p := range processes {
		stats := p.locks.Stats()
		if stats.Leases > 0 {
			var held []string
			for _, l := range p.locks.Held() {
				held = append(held, l.Name)
			}
			slices.Sort(held)
			list = append(list, fmt.Sprintf("Client %d (%s) holds %d leases%s", i+1, p.locks.ID(), stats.Leases, quoted(", of ", held)))
		}
		if stats.Waiting > 0 {
			list = append(list, fmt.Sprintf("Client %d (%s) has %d calls that wait%s", i+1, p.locks.ID(), stats.Waiting, quoted(", for ", s.awaited())))
		}
	}
	return list
}

// quoted returns names behind a word about them; "" without names.
func quoted(about string, names []string) string {
	if len(names) == 0 {
		return ""
	}
	var list []string
	for _, name := range names {
		list = append(list, strconv.Quote(name))
	}
	return about + strings.Join(list, ", ")
}

// awaited returns the locks with subscribers.
func (s *Server) awaited() (names []string) {
	channels, _ := s.fake.Do("PUBSUB", "CHANNELS", "redisson_*").([]any)
	for _, channel := range channels {
		_, name, _ := strings.Cut(channel.(string), "{")
		if name, lock := strings.CutSuffix(name, "}"); lock { // others have a client or an owner behind the name
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// owners returns the owners of locks in a key: clients with a number, values of Plain locks, or ids of permits.
func (s *Server) owners(key fakeredis.Key) (list []string) {
	now := time.Now().Add(s.fake.Ahead()).UnixMilli()
	permits := key.Type == "zset" && strings.HasSuffix(key.Name, ":timeout")
	var members []any
	switch key.Type {
	case "hash":
		if members = s.ownersOfGroup(key.Name, now); members == nil {
			members, _ = s.fake.Do("HKEYS", key.Name).([]any)
		}
	case "zset":
		if permits { // those that have ended are free
			members, _ = s.fake.Do("ZRANGEBYSCORE", key.Name, fmt.Sprintf("(%d", now), "+inf").([]any)
		} else {
			members, _ = s.fake.Do("ZRANGE", key.Name, "0", "-1").([]any)
		}
	case "list":
		members, _ = s.fake.Do("LRANGE", key.Name, "0", "-1").([]any)
	case "string":
		members = []any{key.Value}
	}
	for _, m := range members {
		switch text, _ := m.(string); {
		case permits:
			list = append(list, hex.EncodeToString([]byte(text)))
		case isOwner(text), isPlain(text):
			list = append(list, text)
		}
	}
	return list
}

// ownersOfGroup returns the owners of the values of a FasterMulti lock whose leases have not ended at now, in ms since 1970. It returns nil for
// any other hash.
func (s *Server) ownersOfGroup(name string, now int64) (list []any) {
	fields, _ := s.fake.Do("HGETALL", name).([]any)
	for i := 0; i+1 < len(fields); i += 2 {
		field, _ := fields[i].(string)
		text, _ := fields[i+1].(string)
		hold, ends := strings.CutSuffix(field, ":expire_time")
		_, owner, _ := strings.Cut(hold, ":") // behind the value
		if end, err := strconv.ParseInt(text, 10, 64); ends && err == nil && end > now && !slices.Contains(list, any(owner)) {
			list = append(list, owner)
		}
	}
	return list
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
