package conn

import (
	"slices"
	"strings"
)

// maxTitles limits the names that users of a Pool add to the name of its connections.
const maxTitles = 16

// Introduce adds name to the names of the Pool's connections in CLIENT LIST, behind Config.ClientName and a comma,
// until stop is called. The shared connections change their names at once, all other connections when they are next
// dialed. Introduce does not wait for the server, and a server that refuses the name is not asked again. name is
// printable ASCII without spaces and commas; any other name, and a name beyond the sixteenth, is ignored. With
// Config.NoIdentity Introduce does nothing.
func (p *Pool) Introduce(name string) (stop func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if name == "" || strings.Contains(name, ",") || !validName(name) || len(p.titles) == maxTitles {
		return func() {}
	}
	key := &name
	p.titles = append(p.titles, key)
	p.renameAllLocked()
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.titles = slices.DeleteFunc(p.titles, func(other *string) bool { return other == key })
		p.renameAllLocked()
	}
}

func (p *Pool) renameAllLocked() {
	for _, s := range p.sharedConns {
		if l := s.ready(); l != nil {
			p.renameLocked(l)
		}
	}
}
