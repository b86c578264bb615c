package kinds

import "embed"

//go:embed lua/read_*.lua lua/write_*.lua lua/readwrite_*.lua
var readWriteLua embed.FS

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
		Force:     named("readwrite_force", readWriteLua),
		Info:      named("readwrite_info", readWriteLua),
		Quit:      quit.Get(),
	}, readWriteLua)
}}

// Write is the half of Redisson's RReadWriteLock for writers.
var Write = &Lazy[*Kind]{Make: func() *Kind {
	k := like(Read.Get(), "write")
	k.Suffix = WriteSuffix
	k.Renew, k.RenewRead = Reentrant.Get().Renew, nil // the hash stores a writer like the owner of a reentrant lock
	return scripted(k, readWriteLua)
}}
