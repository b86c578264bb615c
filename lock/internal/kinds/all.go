package kinds

import (
	"embed"
	"maps"
	"strings"

	"github.com/lockwire/lockwire/script"
)

// The scripts of no kind in particular, and the texts that stand in scripts of several kinds.

var (
	//go:embed lua/all_*.lua
	allLua embed.FS
	//go:embed lua/any_shape.lua
	anyLua embed.FS
)

var quit = &Lazy[*script.Script]{Make: func() *script.Script { return named("all_quit", allLua) }}

var apart = &Lazy[*script.Script]{Make: func() *script.Script { return named("all_apart", allLua) }}

// Look asks for the existence of a key, and for the time of its server.
var Look = &Lazy[*script.Script]{Make: func() *script.Script { return named("all_look", allLua) }}

// Publish asks whether the user may publish on a lock's channel.
var Publish = &Lazy[*script.Script]{Make: func() *script.Script { return named("all_publish", allLua) }}

// Shape asks for the kind of a lock, by the keys of [ShapeKeys].
var Shape = &Lazy[*script.Script]{Make: func() *script.Script { return named("any_shape", anyLua) }}

// Apart returns s preceded by all_apart.lua: the lock is its only named key.
func Apart(s *script.Script) *script.Script {
	return script.Named(s.Name(), apart.Get().Source()+s.Source())
}

// named returns the script with a name, from the file of that name. The texts in it are from the same folders, and from allLua.
func named(name string, folders ...embed.FS) *script.Script {
	return script.Named(name, sourceOf(name+".lua", append(folders, allLua)))
}

// sourceOf returns the text of a file. Behind a line that names a file, as in "-- all_late.lua", it has the text of that file.
func sourceOf(file string, folders []embed.FS) string {
	var source strings.Builder
	for line := range strings.Lines(read(file, folders)) {
		source.WriteString(line)
		if name, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "-- "); ok && strings.HasSuffix(name, ".lua") && !strings.Contains(name, " ") {
			source.WriteString(sourceOf(name, folders))
		}
	}
	return source.String()
}

func read(file string, folders []embed.FS) string {
	text, ok := find(file, folders)
	if !ok {
		panic("kinds: no file " + file)
	}
	return text
}

func find(file string, folders []embed.FS) (text string, ok bool) {
	for _, folder := range folders {
		if text, err := folder.ReadFile("lua/" + file); err == nil {
			return string(text), true
		}
	}
	return "", false
}

// Any stands in [All] for the scripts of no kind in particular.
const Any = "any"

// All returns the scripts of each kind, by name and operation. It is for tests, and links all kinds.
func All() map[string]map[string]*script.Script {
	all := map[string]map[string]*script.Script{Any: {
		"shape": Shape.Get(), "publish": Publish.Get(), "look": Look.Get(), "apart": apart.Get(),
	}}
	for _, lazy := range []*Lazy[*Kind]{
		Reentrant, Fenced, NonReentrant, Spin, Read, Write, Semaphore, Permits, CountDown, Fair, NonReentrantFair, Plain, FasterMulti,
	} {
		k := lazy.Get()
		scripts := map[string]*script.Script{}
		for operation, s := range k.operations() {
			if *s != nil {
				scripts[operation] = *s
			}
		}
		maps.Copy(scripts, k.More)
		all[k.Name] = scripts
	}
	return all
}
