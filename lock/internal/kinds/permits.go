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
	return scripted(Kind{Name: "semaphore", channel: semaphorePrefix, Quit: quit.Get()}, semaphoreLua)
}}

// Permits is Redisson's RPermitExpirableSemaphore.
var Permits = &Lazy[*Kind]{Make: func() *Kind {
	return scripted(Kind{
		Name:    "permits",
		channel: semaphorePrefix,
		Keys:    permitsKeys,
		Lease:   func(name string) string { return permitsKeys(name)[0] },
		Quit:    quit.Get(),
		More:    map[string]*script.Script{"set": named("semaphore_set", semaphoreLua)},
	}, permitsLua)
}}
