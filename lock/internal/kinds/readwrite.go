package kinds

import (
	_ "embed"

	"github.com/lockwire/lockwire/script"
)

//go:embed lua/read_acquire.lua
var readAcquire string

//go:embed lua/read_release.lua
var readRelease string

//go:embed lua/read_undo.lua
var readUndo string

//go:embed lua/read_leave.lua
var readLeave string

//go:embed lua/read_renew.lua
var readRenew string

//go:embed lua/read_force.lua
var readForce string

//go:embed lua/write_acquire.lua
var writeAcquire string

//go:embed lua/write_release.lua
var writeRelease string

//go:embed lua/write_undo.lua
var writeUndo string

//go:embed lua/write_force.lua
var writeForce string

//go:embed lua/write_downgrade.lua
var writeDowngrade string

//go:embed lua/readwrite_info.lua
var readwriteInfo string

var (
	read             = &Lazy[*Kind]{Make: newRead}
	write            = &Lazy[*Kind]{Make: newWrite}
	infoOfBothHalves = &Lazy[*script.Script]{Make: func() *script.Script { return script.Named("readwrite_info", readwriteInfo) }}
)

// Read is the half of Redisson's RReadWriteLock for readers.
func Read() *Kind { return read.Get() }

// Write is the half of Redisson's RReadWriteLock for writers.
func Write() *Kind { return write.Get() }

// writeSuffix follows the owner of a write lock in the lock's hash.
const writeSuffix = ":write"

func newRead() *Kind {
	return &Kind{
		Name:    "read",
		channel: readWritePrefix,
		Keys:    readWriteKeys,
		Reads:   true,
		Acquire: script.Named("read_acquire", lined(readAcquire)),
		Release: script.Named("read_release", lined(leaving(readRelease))),
		Undo:    script.Named("read_undo", lined(leaving(readUndo))),
		Renew:   script.Named("read_renew", readRenew),
		Force:   script.Named("read_force", lined(readForce)),
		Info:    infoOfBothHalves.Get(),
		Quit:    quit.Get(),
	}
}

// leaving returns a script's source with the functions of read_leave.lua.
func leaving(source string) string { return with(source, "read_leave.lua", readLeave) }

func newWrite() *Kind {
	return &Kind{
		Name:      "write",
		channel:   readWritePrefix,
		Keys:      readWriteKeys,
		Reads:     true,
		Suffix:    writeSuffix,
		Acquire:   script.Named("write_acquire", lined(writeAcquire)),
		Release:   script.Named("write_release", lined(writeRelease)),
		Undo:      script.Named("write_undo", lined(writeUndo)),
		Renew:     Reentrant().Renew, // the hash stores a writer like the owner of a reentrant lock
		Force:     script.Named("write_force", lined(writeForce)),
		Info:      infoOfBothHalves.Get(),
		Downgrade: script.Named("write_downgrade", lined(writeDowngrade)),
		Quit:      quit.Get(),
	}
}
