// Package kinds has the server's side of each kind of lock: the names of keys and channels, derived from the name of the lock as
// in Redisson, and the scripts in the folder lua.
//
// A kind is made at its first use. The linker drops the kinds missing from a program.
package kinds

import (
	"cmp"
	"embed"
	"maps"

	"github.com/lockwire/lockwire/script"
)

// Kind is a kind of lock as the server knows it. A Kind never changes.
//
// The headers of the scripts name their KEYS and ARGV:
//
//   - KEYS, except of Renew: the lock, its channel, the kind's own keys, and then the latch, if any. An acquire that publishes nothing
//     has no channel. A script touches no further keys, except the leases of further readers.
//   - ARGV of Acquire and Undo: the arguments common to all kinds, followed by the kind's own. Release of a kind with a queue
//     has a further argument.
//   - Scripts with an effect also get their last moment.
type Kind struct {
	Name    string
	channel string                     // prefix of the channel's name
	Keys    func(name string) []string // own keys; nil for none
	Token   func(name string) string   // the key of the last token, KEYS[2] of Acquire, HandOver and Info; nil for none
	Lease   func(name string) string   // the key with the lease, for Renew; nil for the lock
	Reads   bool                       // the scripts take the leases of the owner's read holds
	Suffix  string                     // follows the owner in the lock's hash

	Acquire   *script.Script
	Release   *script.Script // nil if there is nothing to give back
	Undo      *script.Script // takes back an acquire without an answer; nil if Acquire changes nothing
	Renew     *script.Script
	RenewRead *script.Script // extends the lease of a reader's hold like that of a Plain lock; nil for other kinds
	Force     *script.Script
	Info      *script.Script

	Downgrade *script.Script            // turns a hold into a hold of the other half of a read-write lock; nil for none
	Pass      *script.Script            // of a kind with a queue: passes over owners in front
	HandOver  *script.Script            // puts the next owner in the place of the last; nil for none
	Single    *script.Script            // the release for owners of a single hold; nil for Release
	Keep      *script.Script            // the release that leaves the lock taken for a while; nil for none
	Quit      *script.Script            // ends a place in the line of waiting processes; nil if there is no line
	More      map[string]*script.Script // further scripts, by operation
}

// like returns a copy of base with another name, for the caller to change.
func like(base *Kind, name string) Kind {
	k := *base
	k.Name = name
	return k
}

// operations returns the fields with scripts that are files of their kind, by the operation in the name of the file.
func (k *Kind) operations() map[string]**script.Script {
	return map[string]**script.Script{
		"acquire": &k.Acquire, "release": &k.Release, "undo": &k.Undo, "renew": &k.Renew, "force": &k.Force, "info": &k.Info,
		"pass": &k.Pass, "downgrade": &k.Downgrade, "handover": &k.HandOver, "single": &k.Single, "keep": &k.Keep,
		"quit": &k.Quit,
	}
}

// moreOperations are the operations in More.
var moreOperations = [...]string{"set", "add", "drain", "lease", "give", "end", "down", "delete"}

// scripted returns k with the scripts of its name, such as plain_acquire.lua of the kind plain. Without a file an operation stays as
// it is in k. The texts in the scripts are from the same folders.
func scripted(k Kind, folders ...embed.FS) *Kind {
	own := func(operation string) *script.Script {
		name := k.Name + "_" + operation
		if _, ok := find(name+".lua", folders); !ok {
			return nil
		}
		return named(name, folders...)
	}
	for operation, field := range k.operations() {
		*field = cmp.Or(own(operation), *field)
	}
	more := make(map[string]*script.Script)
	maps.Copy(more, k.More)
	for _, operation := range moreOperations {
		if s := own(operation); s != nil {
			more[operation] = s
		}
	}
	k.More = more
	return &k
}
