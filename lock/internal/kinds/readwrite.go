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

// WriteSuffix follows the owner of a write lock in the lock's hash.
const WriteSuffix = ":write"

// Read is the half of Redisson's RReadWriteLock for readers.
var Read = &Lazy[*Kind]{Make: func() *Kind {
	return scripted(Kind{
		Name:      "read",
		channel:   readWritePrefix,
		Keys:      readWriteKeys,
		Reads:     true,
		RenewRead: named("plain_renew", plainLua),
		Force:     forceOfBothHalves.Get(),
		Info:      infoOfBothHalves.Get(),
		Quit:      quit.Get(),
	}, readWriteLua)
}}

// Write is the half of Redisson's RReadWriteLock for writers.
var Write = &Lazy[*Kind]{Make: func() *Kind {
	return scripted(Kind{
		Name:    "write",
		channel: readWritePrefix,
		Keys:    readWriteKeys,
		Reads:   true,
		Suffix:  WriteSuffix,
		Renew:   Reentrant.Get().Renew, // the hash stores a writer like the owner of a reentrant lock
		Force:   forceOfBothHalves.Get(),
		Info:    infoOfBothHalves.Get(),
		Quit:    quit.Get(),
	}, readWriteLua)
}}
