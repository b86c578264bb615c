package kinds

import (
	_ "embed"

	"github.com/lockwire/lockwire/script"
)

var (
	//go:embed lua/read_acquire.lua
	readAcquire string
	//go:embed lua/read_release.lua
	readRelease string
	//go:embed lua/read_undo.lua
	readUndo string
	//go:embed lua/read_leave.lua
	readLeave string
	//go:embed lua/read_renew.lua
	readRenew string
	//go:embed lua/write_acquire.lua
	writeAcquire string
	//go:embed lua/write_release.lua
	writeRelease string
	//go:embed lua/write_leave.lua
	writeLeave string
	//go:embed lua/write_undo.lua
	writeUndo string
	//go:embed lua/write_downgrade.lua
	writeDowngrade string
	//go:embed lua/readwrite_force.lua
	readwriteForce string
	//go:embed lua/readwrite_info.lua
	readwriteInfo string
)

var (
	forceOfBothHalves = &Lazy[*script.Script]{Make: func() *script.Script { return named("readwrite_force", readwriteForce) }}
	infoOfBothHalves  = &Lazy[*script.Script]{Make: func() *script.Script { return named("readwrite_info", readwriteInfo) }}
)

// writeSuffix follows the owner of a write lock in the lock's hash.
const writeSuffix = ":write"

// Read is the half of Redisson's RReadWriteLock for readers.
var Read = &Lazy[*Kind]{Make: func() *Kind {
	return &Kind{
		Name:    "read",
		channel: readWritePrefix,
		Keys:    readWriteKeys,
		Reads:   true,
		Acquire: named("read_acquire", readAcquire),
		Release: named("read_release", leaving(readRelease)),
		Undo:    named("read_undo", leaving(readUndo)),
		Renew:   named("read_renew", readRenew),
		Hold:    named("plain_renew", plainRenew),
		Force:   forceOfBothHalves.Get(),
		Info:    infoOfBothHalves.Get(),
		Quit:    quit.Get(),
	}
}}

// leaving returns a script's source with the texts of read_leave.lua and write_leave.lua.
func leaving(source string) string {
	return with(with(source, "read_leave.lua", readLeave), "write_leave.lua", writeLeave)
}

// Write is the half of Redisson's RReadWriteLock for writers.
var Write = &Lazy[*Kind]{Make: func() *Kind {
	return &Kind{
		Name:      "write",
		channel:   readWritePrefix,
		Keys:      readWriteKeys,
		Reads:     true,
		Suffix:    writeSuffix,
		Acquire:   named("write_acquire", writeAcquire),
		Release:   named("write_release", leaving(writeRelease)),
		Undo:      named("write_undo", leaving(writeUndo)),
		Renew:     Reentrant.Get().Renew, // the hash stores a writer like the owner of a reentrant lock
		Force:     forceOfBothHalves.Get(),
		Info:      infoOfBothHalves.Get(),
		Downgrade: named("write_downgrade", writeDowngrade),
		Quit:      quit.Get(),
	}
}}
