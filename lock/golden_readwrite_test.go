package lock_test

import (
	"context"
	"slices"
	"strings"

	"github.com/lockwire/lockwire/lock"
)

// locker is what the locks of all kinds have in common.
type locker interface {
	Lock(ctx context.Context, opts ...lock.Option) (*lock.Lease, error)
	TryLock(ctx context.Context, opts ...lock.Option) (*lock.Lease, error)
	ForceUnlock(ctx context.Context) (bool, error)
	Info(ctx context.Context) (lock.Info, error)
}

// half is what a call of a golden file is made on.
type half struct {
	lock   func(c *lock.Client, name string) locker
	suffix string // behind the owner
}

var (
	readHalf  = half{lock: func(c *lock.Client, name string) locker { return c.ReadWrite(name).Read() }}
	writeHalf = half{lock: func(c *lock.Client, name string) locker { return c.ReadWrite(name).Write() }, suffix: ":write"}
)

// halfOf tells what a call is made on, and returns it as a call of that.
func halfOf(call []string) (half, []string) {
	call = slices.Clone(call)
	for part, h := range map[string]half{"read": readHalf, "write": writeHalf} {
		if strings.HasSuffix(call[1], part+"lock") {
			call[1] = strings.Replace(call[1], part, "", 1)
			return h, call
		}
		if call[2] == part {
			return h, slices.Delete(call, 2, 3)
		}
	}
	return half{lock: func(c *lock.Client, name string) locker { return c.Reentrant(name) }}, call
}

const readWriteMessage = "redisson_rwlock:{g:rw} "

var readWriteDifferences = map[string]goldenDifference{
	"10": {
		why:  "A26: a further write hold does not add its lease to what is left",
		keys: []string{"hash g:rw 30000 B1:write=2 mode=write"},
	},
	"11": {
		why:  "A26",
		keys: []string{"hash g:rw 30000 B1:write=2 B1=1 mode=write", "string {g:rw}:B1:rwlock_timeout:1 30000 1"},
	},
	"12": {
		why:  "A26",
		keys: []string{"hash g:rw 30000 B1:write=2 B1=1 mode=write", "string {g:rw}:B1:rwlock_timeout:1 30000 1"},
	},
	"14": {
		why:      "A14: the end of a write lock beneath which its owner reads lets other readers in at once",
		messages: []string{readWriteMessage + "1"},
		keys: []string{
			"hash g:rw 30000 A1=1 B1=1 mode=read",
			"string {g:rw}:A1:rwlock_timeout:1 30000 1", "string {g:rw}:B1:rwlock_timeout:1 30000 1",
		},
	},
	"15": {
		why:  "A14: not the last reader any more",
		keys: []string{"hash g:rw 30000 A1=1 mode=read", "string {g:rw}:A1:rwlock_timeout:1 30000 1"},
	},
	"27": {why: "A9: a release of what is not held changes nothing, and tells nobody that it did"},
	"30": {
		why:      "the leases of readers that were ended by force are of no use to anybody, and go with the lock",
		messages: []string{readWriteMessage + "0"},
	},
	"31": {why: "A9, and what call 30 left"},
}
