package kinds

import (
	_ "embed"
	"maps"
	"strings"

	"github.com/lockwire/lockwire/script"
)

// The scripts of no kind in particular.

var (
	//go:embed lua/all_late.lua
	allLate string
	//go:embed lua/all_repeat.lua
	allRepeat string
	//go:embed lua/all_undo.lua
	allUndo string
	//go:embed lua/all_unheld.lua
	allUnheld string
	//go:embed lua/all_change.lua
	allChange string
	//go:embed lua/all_number.lua
	allNumber string
	//go:embed lua/all_tell.lua
	allTell string
	//go:embed lua/all_line.lua
	allLine string
	//go:embed lua/all_quit.lua
	allQuit string
	//go:embed lua/all_apart.lua
	allApart string
	//go:embed lua/all_look.lua
	allLook string
	//go:embed lua/all_publish.lua
	allPublish string
	//go:embed lua/any_shape.lua
	anyShape string
)

var quit = &Lazy[*script.Script]{Make: func() *script.Script { return named("all_quit", allQuit) }}

// Look asks for the existence of a key, and for the time of its server.
var Look = &Lazy[*script.Script]{Make: func() *script.Script { return named("all_look", allLook) }}

// Publish asks whether the user may publish on a lock's channel.
var Publish = &Lazy[*script.Script]{Make: func() *script.Script { return named("all_publish", allPublish) }}

// Shape asks for the kind of a lock, by the keys of [ShapeKeys].
var Shape = &Lazy[*script.Script]{Make: func() *script.Script { return named("any_shape", anyShape) }}

// Apart returns s preceded by all_apart.lua: the lock is its only named key.
func Apart(s *script.Script) *script.Script { return script.Named(s.Name(), allApart+s.Source()) }

// named returns the script with a name and a source. A line of the source that names a file of a text common to all kinds has the text behind it.
func named(name, source string) *script.Script {
	for _, common := range []struct{ file, text string }{
		{"all_repeat.lua", allRepeat}, {"all_undo.lua", allUndo}, {"all_change.lua", allChange}, {"all_tell.lua", allTell}, // name the others
		{"all_late.lua", allLate}, {"all_unheld.lua", allUnheld}, {"all_number.lua", allNumber}, {"all_line.lua", allLine},
	} {
		source = with(source, common.file, common.text)
	}
	return script.Named(name, source)
}

// with returns a script's source with the text of a file behind the line that names the file, if there is such a line.
func with(source, file, text string) string {
	here := "\n-- " + file + "\n"
	return strings.Replace(source, here, here+text, 1)
}

// Any stands in [All] for the scripts of no kind in particular.
const Any = "any"

// All returns the scripts of each kind, by name and operation. It is for tests, and links all kinds.
func All() map[string]map[string]*script.Script {
	all := map[string]map[string]*script.Script{Any: {
		"shape": Shape.Get(), "publish": Publish.Get(), "look": Look.Get(), "apart": script.New(allApart), "quit": quit.Get(),
	}}
	for _, lazy := range []*Lazy[*Kind]{
		Reentrant, Fenced, NonReentrant, Spin, Read, Write, Semaphore, Permits, CountDown, Fair, NonReentrantFair, Plain, FasterMulti,
	} {
		k := lazy.Get()
		scripts := map[string]*script.Script{}
		for operation, s := range map[string]*script.Script{
			"acquire": k.Acquire, "release": k.Release, "undo": k.Undo, "renew": k.Renew, "force": k.Force, "info": k.Info,
			"pass": k.Pass, "downgrade": k.Downgrade, "handover": k.HandOver, "single": k.Single, "keep": k.Keep,
		} {
			if s != nil {
				scripts[operation] = s
			}
		}
		maps.Copy(scripts, k.More)
		all[k.Name] = scripts
	}
	return all
}
