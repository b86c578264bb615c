package conn

import (
	"strings"
)

// Introduce adds name to the names of the Pool's connections in CLIENT LIST, behind Config.ClientName and a comma,
// until stop is called. The shared connections change their names at once, all other connections when they are next
// dialed. Introduce does not wait for the server, and a server that refuses the name is not asked again. name is
// printable ASCII without spaces and commas; any other name, and a name beyond the sixteenth, is ignored. With
// Config.NoIdentity Introduce does nothing.
func (p *Pool) Introduce(name string) (stop func()) {
	if name == "" || strings.Contains(name, ",") || !validName(name) {
		return func() {}
	}
	remove := p.cfg.titles.add(name)
	p.rename()
	return func() {
		remove()
		p.rename()
	}
}

func (p *Pool) rename() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.sharedConns {
		if l := s.ready(); l != nil {
			p.renameLocked(l)
		}
	}
}
