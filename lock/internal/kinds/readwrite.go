package kinds

import (
	"embed"

	"github.com/lockwire/lockwire/script"
)

//go:embed lua/read_*.lua lua/write_*.lua lua/readwrite_*.lua
var readWriteLua embed.FS

var (
	forceOfBothHalves = &Lazy[*script.Script]{Make: func() *script.Script { return named("readwrite_force", readWriteLua) }}
	infoOfBothHalves  = &Lazy[*script.Script]{Make: func() *script.Script { return named("readwrite_info", readWriteLua) }}
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
		Acquire: named("read_acquire", readWriteLua),
		Release: named("read_release", readWriteLua),
		Undo:    named("read_undo", readWriteLua),
		Renew:   named("read_renew", readWriteLua),
		Hold:    named("plain_renew", plainLua),
		Force:   forceOfBothHalves.Get(),
		Info:    infoOfBothHalves.Get(),
		Quit:    quit.Get(),
	}
}}

// Write is the half of Redisson's RReadWriteLock for writers.
var Write = &Lazy[*Kind]{Make: func() *Kind {
	return &Kind{
		Name:      "write",
		channel:   readWritePrefix,
		Keys:      readWriteKeys,
		Reads:     true,
		Suffix:    writeSuffix,
		Acquire:   named("write_acquire", readWriteLua),
		Release:   named("write_release", readWriteLua),
		Undo:      named("write_undo", readWriteLua),
		Renew:     Reentrant.Get().Renew, // the hash stores a writer like the owner of a reentrant lock
		Force:     forceOfBothHalves.Get(),
		Info:      infoOfBothHalves.Get(),
		Downgrade: named("write_downgrade", readWriteLua),
		Quit:      quit.Get(),
	}
}}
