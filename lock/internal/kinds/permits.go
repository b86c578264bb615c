package kinds

import (
	_ "embed"

	"github.com/lockwire/lockwire/script"
)

var (
	//go:embed lua/semaphore_acquire.lua
	semaphoreAcquire string
	//go:embed lua/semaphore_undo.lua
	semaphoreUndo string
	//go:embed lua/semaphore_info.lua
	semaphoreInfo string
	//go:embed lua/semaphore_set.lua
	semaphoreSet string
	//go:embed lua/semaphore_add.lua
	semaphoreAdd string
	//go:embed lua/semaphore_drain.lua
	semaphoreDrain string
	//go:embed lua/permits_acquire.lua
	permitsAcquire string
	//go:embed lua/permits_release.lua
	permitsRelease string
	//go:embed lua/permits_end.lua
	permitsEnd string
	//go:embed lua/permits_undo.lua
	permitsUndo string
	//go:embed lua/permits_renew.lua
	permitsRenew string
	//go:embed lua/permits_force.lua
	permitsForce string
	//go:embed lua/permits_info.lua
	permitsInfo string
	//go:embed lua/permits_add.lua
	permitsAdd string
	//go:embed lua/permits_give.lua
	permitsGive string
	//go:embed lua/permits_lease.lua
	permitsLease string
)

// Semaphore is Redisson's RSemaphore.
var Semaphore = &Lazy[*Kind]{Make: func() *Kind {
	return &Kind{
		Name:    "semaphore",
		channel: semaphorePrefix,
		Acquire: named("semaphore_acquire", semaphoreAcquire),
		Undo:    named("semaphore_undo", semaphoreUndo),
		Info:    named("semaphore_info", semaphoreInfo),
		Quit:    quit.Get(),
		More: map[string]*script.Script{
			"set":   named("semaphore_set", semaphoreSet),
			"add":   named("semaphore_add", semaphoreAdd),
			"drain": named("semaphore_drain", semaphoreDrain),
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
		Acquire: named("permits_acquire", permitsAcquire),
		Release: named("permits_release", permitsRelease),
		Undo:    named("permits_undo", permitsUndo),
		Renew:   named("permits_renew", permitsRenew),
		Force:   named("permits_force", permitsForce),
		Info:    named("permits_info", permitsInfo),
		Quit:    quit.Get(),
		More: map[string]*script.Script{
			"set":   named("semaphore_set", semaphoreSet),
			"add":   named("permits_add", permitsAdd),
			"lease": named("permits_lease", permitsLease),
			"give":  named("permits_give", permitsGive),
			"end":   named("permits_end", permitsEnd),
		},
	}
}}
