package kinds

import (
	"embed"

	"github.com/lockwire/lockwire/script"
)

var (
	//go:embed lua/semaphore_*.lua
	semaphoreLua embed.FS
	//go:embed lua/permits_*.lua
	permitsLua embed.FS
)

// Semaphore is Redisson's RSemaphore.
var Semaphore = &Lazy[*Kind]{Make: func() *Kind {
	return &Kind{
		Name:    "semaphore",
		channel: semaphorePrefix,
		Acquire: named("semaphore_acquire", semaphoreLua),
		Undo:    named("semaphore_undo", semaphoreLua),
		Info:    named("semaphore_info", semaphoreLua),
		Quit:    quit.Get(),
		More: map[string]*script.Script{
			"set":   named("semaphore_set", semaphoreLua),
			"add":   named("semaphore_add", semaphoreLua),
			"drain": named("semaphore_drain", semaphoreLua),
		},
	}
}}

// Permits is Redisson's RPermitExpirableSemaphore.
var Permits = &Lazy[*Kind]{Make: func() *Kind {
	return &Kind{
		Name:    "permits",
		channel: semaphorePrefix,
		Keys:    permitsKeys,
		Lease:   func(name string) string { return permitsKeys(name)[0] },
		Acquire: named("permits_acquire", permitsLua),
		Release: named("permits_release", permitsLua),
		Undo:    named("permits_undo", permitsLua),
		Renew:   named("permits_renew", permitsLua),
		Force:   named("permits_force", permitsLua),
		Info:    named("permits_info", permitsLua),
		Quit:    quit.Get(),
		More: map[string]*script.Script{
			"set":   named("semaphore_set", semaphoreLua),
			"add":   named("permits_add", permitsLua),
			"lease": named("permits_lease", permitsLua),
			"give":  named("permits_give", permitsLua),
			"end":   named("permits_end", permitsLua),
		},
	}
}}
