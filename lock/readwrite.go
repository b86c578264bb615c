package lock

import (
	"context"
	"strings"
	"time"

	"github.com/lockwire/lockwire/lock/internal/kinds"
	"github.com/lockwire/lockwire/resp"
)

// tellFor is the lifetime of a writer's announcement to readers, longer than the interval between announcements.
const tellFor = 15 * time.Second

// writeKind is the kind of the write lock. Its twin is the kind of the read lock.
var writeKind = &kinds.Lazy[*kind]{Make: newWriteKind}

func newWriteKind() *kind {
	read := &kind{
		Kind:   kinds.Read(),
		args:   readArgs,
		parse:  func(v resp.Value) (Info, error) { return parseReadWrite(v, ModeRead) },
		others: everybody,
	}
	write := &kind{
		Kind:      kinds.Write(),
		args:      writeArgs,
		parse:     func(v resp.Value) (Info, error) { return parseReadWrite(v, ModeWrite) },
		twin:      read,
		announces: true,
		relays:    true,
		joins:     true,
	}
	read.twin = write
	return write
}

// ReadWrite is Redisson's RReadWriteLock (getReadWriteLock): a lock for many readers or a single writer. A ReadWrite is
// immutable, and many goroutines may share it.
//
// Waiting clients have the lock in the order of their arrival; readers who stand one behind the other have it together. A
// new reader waits behind a waiting writer, and TryLock refuses it. A writer that has waited for readers for three seconds lets
// further readers in for two, as readers may wait for each other. The writer then keeps readers out for six seconds, twelve, and so on, and
// each time lets them in for half as long.
// [Config].PreferWriters lets writers pass readers who wait. Redisson's readers pass all who wait. See [ReadLock] for a caller
// with the read lock that takes it again.
//
// An [Owner] with the write lock may take the read lock too. It may then release the write lock and keep reading, or use
// [Lease.Downgrade]. An Owner with only the read lock would wait for itself; its request for the write lock returns
// [ErrUpgrade].
type ReadWrite struct {
	read  ReadLock
	write WriteLock
}

// ReadWrite returns the read-write lock with the given name. The name follows the same rules as for [Client.Reentrant].
func (c *Client) ReadWrite(name string) *ReadWrite {
	write := writeKind.Get()
	return &ReadWrite{ReadLock{c.handle(write.twin, name)}, WriteLock{c.handle(write, name)}}
}

// Name returns the lock's name.
func (l *ReadWrite) Name() string { return l.read.Name() }

// Read returns the read half. Many owners may hold the read half at once, while no other owner holds the write half. A
// caller that reads already needs an [Owner] to lock it again at once: see [ReadLock].
func (l *ReadWrite) Read() *ReadLock { return &l.read }

// Write returns the write half. A single owner holds the write half, while no other owner holds either half.
func (l *ReadWrite) Write() *WriteLock { return &l.write }

// ReadLock is the read half of a [ReadWrite] lock. Each reader has its own lease, and the lock is held until the last lease
// ends. Info lists the readers. ForceUnlock ends all readers' holds, and does nothing if a writer holds the lock.
//
// # Reading again
//
// A caller with the read lock that takes it again without an [Owner] is one more reader. While a writer waits, Lock waits
// behind the writer, and the writer waits for the first hold, until the writer lets readers in: for some three seconds, or for
// about as long again as the writer has waited. With [Config].PreferWriters neither goes on before a context or a lease ends, as
// with [sync.RWMutex]. TryLock returns [ErrNotAcquired] instead. Take both holds [As] the same Owner: further holds of an Owner
// pass all who wait.
type ReadLock struct{ Handle }

// WriteLock is the write half of a [ReadWrite] lock. Info lists the writer. ForceUnlock ends the writer's hold and the
// writer's own read holds, and does nothing if readers hold the lock.
type WriteLock struct{ Handle }

// ForceUnlock frees the lock if any writer holds it, and reports whether a writer did. The writer's own read holds end too.
// Holders are notified as described at [Handle.ForceUnlock].
func (l *WriteLock) ForceUnlock(ctx context.Context) (bool, error) {
	var beneath []*Lease
	read := entryKey{l.target.kind.twin, l.target.name}
	for _, writer := range l.client.table.holdsOf(l.target.hold(), "", nil) {
		beneath = append(beneath, l.client.table.holdsOf(read, strings.TrimSuffix(writer.owner, writeSuffix), nil)...)
	}
	forced, err := l.Handle.ForceUnlock(ctx)
	if forced {
		for _, reader := range beneath {
			reader.lose(Forced, nil)
		}
	}
	return forced, err
}

func readArgs(w wish) []any { return []any{w.preferWriters} }

func writeArgs(w wish) []any {
	if w.announces {
		return []any{tellFor.Milliseconds()}
	}
	return []any{0}
}
