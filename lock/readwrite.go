package lock

import (
	"context"
	_ "embed"
	"fmt"
	"strings"
	"time"

	"github.com/lockwire/lockwire/resp"
	"github.com/lockwire/lockwire/script"
)

//go:embed read_acquire.lua
var readAcquire string

//go:embed read_release.lua
var readRelease string

//go:embed read_undo.lua
var readUndo string

//go:embed read_renew.lua
var readRenew string

//go:embed read_force.lua
var readForce string

//go:embed write_acquire.lua
var writeAcquire string

//go:embed write_release.lua
var writeRelease string

//go:embed write_undo.lua
var writeUndo string

//go:embed write_force.lua
var writeForce string

//go:embed write_downgrade.lua
var writeDowngrade string

//go:embed readwrite_info.lua
var readWriteInfo string

// writeSuffix makes the owner of a write lock out of that of a read lock.
const writeSuffix = ":write"

// tellFor is for how long readers believe that a writer waits: for longer than it takes until it says so again.
const tellFor = 15 * time.Second

// writeKind has the kind of the read lock as its twin.
var writeKind = &lazy[*kind]{make: newWriteKind}

func newWriteKind() *kind {
	info := script.New(readWriteInfo)
	read := &kind{
		name:    "read",
		channel: readWriteChannel,
		keys:    readWriteKeys,
		reads:   true,
		args:    readArgs,
		parse:   func(v resp.Value) (Info, error) { return parseReadWrite(v, ModeRead) },
		others:  everybody,
		acquire: script.New(readAcquire),
		release: script.New(readRelease),
		undo:    script.New(readUndo),
		renew:   script.New(readRenew),
		force:   script.New(readForce),
		info:    info,
	}
	write := &kind{
		name:      "write",
		channel:   readWriteChannel,
		keys:      readWriteKeys,
		reads:     true,
		args:      writeArgs,
		parse:     func(v resp.Value) (Info, error) { return parseReadWrite(v, ModeWrite) },
		suffix:    writeSuffix,
		twin:      read,
		tells:     true,
		joins:     true,
		acquire:   script.New(writeAcquire),
		release:   script.New(writeRelease),
		undo:      script.New(writeUndo),
		renew:     reentrantKind.get().renew, // the writer stands in the hash as the owner of a reentrant lock does
		force:     script.New(writeForce),
		info:      info,
		downgrade: script.New(writeDowngrade),
	}
	read.twin = write
	return write
}

// ReadWrite is Redisson's RReadWriteLock (getReadWriteLock): any number of readers, or one writer. It is not fair: readers
// come in while a writer waits, unless [Config].PreferWriters is set. It holds nothing itself, and may be shared by any
// number of goroutines.
//
// An [Owner] that has the write lock may take the read lock too, and go on reading when it releases the write lock, or turn
// the one into the other with [Lease.Downgrade]. The other way round would make it wait for itself, and is [ErrUpgrade].
type ReadWrite struct {
	read  ReadLock
	write WriteLock
}

// ReadWrite returns the read-write lock of that name, of which the same is true as of [Client.Reentrant]'s.
func (c *Client) ReadWrite(name string) *ReadWrite {
	write := writeKind.get()
	return &ReadWrite{ReadLock{c.handle(write.twin, name)}, WriteLock{c.handle(write, name)}}
}

// Name returns the lock's name.
func (l *ReadWrite) Name() string { return l.read.Name() }

// Read returns the half that any number of owners may have at once, while no other owner has the write half.
func (l *ReadWrite) Read() *ReadLock { return &l.read }

// Write returns the half that one owner has, while no other owner has either.
func (l *ReadWrite) Write() *WriteLock { return &l.write }

// ReadLock is the half of a [ReadWrite] lock for readers. Each has a lease of its own, and the lock is taken until the last
// of them ends. Info lists the readers; ForceUnlock ends all of them, and nothing if a writer has the lock.
type ReadLock struct{ Handle }

// WriteLock is the half of a [ReadWrite] lock for one writer. Info lists that one; ForceUnlock ends it with what it reads
// beneath, and nothing if readers have the lock.
type WriteLock struct{ Handle }

// ForceUnlock frees the lock if a writer has it, whoever that is, and reports whether one had. What the writer reads beneath
// its lock ends too. Who is told of it, and when, is as [Handle.ForceUnlock] says.
func (l *WriteLock) ForceUnlock(ctx context.Context) (bool, error) {
	if l.err != nil {
		return false, l.err
	}
	var beneath []*Lease
	read := entryKey{l.target.kind.twin, l.target.name}
	for _, writer := range l.client.holdsOf(l.target.hold(), "", nil) {
		beneath = append(beneath, l.client.holdsOf(read, strings.TrimSuffix(writer.owner, writeSuffix), nil)...)
	}
	forced, err := l.Handle.ForceUnlock(ctx)
	if forced {
		for _, reader := range beneath {
			reader.lose(Forced, nil)
		}
	}
	return forced, err
}

func readArgs(c *Client, _ request) []any { return []any{c.cfg.PreferWriters} }

func writeArgs(_ *Client, r request) []any {
	if r.tells && r.waits {
		return []any{tellFor.Milliseconds()}
	}
	return []any{0}
}

// parseBothHalves is parseReadWrite about the lock as a whole.
func parseBothHalves(v resp.Value) (Info, error) { return parseReadWrite(v, "") }

// parseReadWrite is what a reply of the remaining lease in ms, the mode, and owner, hold count and lease in ms of each holder
// says about one half of the lock, or both.
func parseReadWrite(v resp.Value, half Mode) (Info, error) {
	left, err := v.At(0).Int()
	if err != nil {
		return Info{}, fmt.Errorf("lock: info: %w", err)
	}
	mode, err := v.At(1).Text()
	if err != nil {
		return Info{}, fmt.Errorf("lock: info: %w", err)
	}
	info := Info{Mode: Mode(mode)}
	for i := 2; i+2 < v.Len(); i += 3 {
		owner, err := v.At(i).Text()
		if err != nil {
			return Info{}, fmt.Errorf("lock: info: %w", err)
		}
		if half != "" && strings.HasSuffix(owner, writeSuffix) != (half == ModeWrite) {
			continue
		}
		holds, err := v.At(i + 1).Int()
		if err != nil {
			return Info{}, fmt.Errorf("lock: info: %w", err)
		}
		ms, err := v.At(i + 2).Int()
		if err != nil {
			return Info{}, fmt.Errorf("lock: info: %w", err)
		}
		info.Holders = append(info.Holders, Holder{owner, holds, milliseconds(ms)})
	}
	if info.Locked = len(info.Holders) > 0; info.Locked {
		info.Remaining = milliseconds(left)
	}
	return info, nil
}
