package conn

import (
	"slices"
	"strings"
	"sync"

	"github.com/lockwire/lockwire/conn/internal/pipeline"
	"github.com/lockwire/lockwire/resp"
)

// maxTitles limits the names that users of a Pool add to the name of its connections.
const maxTitles = 16

// titles are the names that users of a Pool have added to the name of its connections.
type titles struct {
	mu   sync.Mutex // guards the following
	list []*string
}

// join returns base followed by the titles, separated by commas. The receiver may be nil.
func (t *titles) join(base string) string {
	if t == nil {
		return base
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.list) == 0 {
		return base
	}
	var b strings.Builder
	b.WriteString(base)
	for _, title := range t.list {
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		b.WriteString(*title)
	}
	return b.String()
}

func (t *titles) add(name string) (remove func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.list) == maxTitles {
		return func() {}
	}
	key := &name
	t.list = append(t.list, key)
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.list = slices.DeleteFunc(t.list, func(other *string) bool { return other == key })
	}
}

// Introduce adds name to the names of the Pool's connections in CLIENT LIST, behind Config.ClientName and a comma,
// until stop is called. The shared connections change their names at once, all other connections when they are next
// dialed. Introduce does not wait for the server, and a server that refuses the name is not asked again. name is
// printable ASCII without spaces and commas; any other name, and a name beyond the sixteenth, is ignored. With
// Config.NoIdentity Introduce does nothing.
func (p *Pool) Introduce(name string) (stop func()) {
	if p.cfg.NoIdentity || name == "" || strings.Contains(name, ",") || !validName(name) {
		return func() {}
	}
	remove := p.cfg.titles.add(name)
	p.rename()
	return func() {
		remove()
		p.rename()
	}
}

// name returns the name of the Pool's connections.
func (p *Pool) name() string { return p.cfg.titles.join(p.cfg.ClientName) }

// rename gives the shared connections their current name.
func (p *Pool) rename() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.sharedConns {
		if l := s.ready(); l != nil {
			p.renameLocked(l)
		}
	}
}

// renameLocked sends CLIENT SETNAME, unless the handshake had to do without such commands.
func (p *Pool) renameLocked(l *pipeline.Link) {
	if p.links[l] {
		l.Post(resp.Cmd("CLIENT", "SETNAME", p.name()))
	}
}

// validName reports whether name is a valid name of a connection.
func validName(name string) bool {
	return !strings.ContainsFunc(name, func(r rune) bool { return r < '!' || r > '~' })
}
