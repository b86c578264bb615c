package lock_test

import "github.com/lockwire/lockwire/lock"

func goldenRead(c *lock.Client, name string) goldenLock { return c.ReadWrite(name).Read() }

func goldenWrite(c *lock.Client, name string) goldenLock { return c.ReadWrite(name).Write() }

const readWriteChannel = "redisson_rwlock:{g:rw} "

var readWriteDifferences = []difference{
	{call: "10", why: "A26: a further write hold does not add its lease to what is left",
		keys: []string{"hash g:rw 30000 B1:write=2 mode=write"}},
	{call: "11", why: "A26: as before", keys: writtenAndRead},
	{call: "12", why: "A26: as before", keys: writtenAndRead},
	{
		call: "14", why: "A14: the end of a write lock beneath which its owner reads lets other readers in at once",
		messages: []string{readWriteChannel + "1"},
		keys: []string{
			"hash g:rw 30000 A1=1 B1=1 mode=read",
			"string {g:rw}:A1:rwlock_timeout:1 30000 1", "string {g:rw}:B1:rwlock_timeout:1 30000 1",
		},
	},
	{call: "15", why: "A14: so this is not the last reader any more", messages: []string{}},
	{call: "25", why: "A27: the release calls the reader at the head of the line, and the first reader lets in clients that know nothing of the line",
		messages: []string{readWriteChannel + "1", readWriteChannel + "1"}},
	{call: "27", why: "A9: a release of what is not held changes nothing, and tells nobody that it did", messages: []string{}},
	{call: "31", why: "A9: as call 27", messages: []string{}},
}

var writtenAndRead = []string{"hash g:rw 30000 B1:write=2 B1=1 mode=write", "string {g:rw}:B1:rwlock_timeout:1 30000 1"}

var watchdogReadWriteDifferences = []difference{
	{call: "3", why: "§9: as long as the other reader, whose renewal was less long ago than when Redisson's was recorded",
		keys: []string{"hash g:rw 3000 A2=1 mode=read", "string {g:rw}:A2:rwlock_timeout:1 3000 1"}},
}
