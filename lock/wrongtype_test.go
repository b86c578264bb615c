package lock_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/lockwire/lockwire/lock"
)

// What asks about a lock of one kind, or frees it, leaves a key of another kind alone and says so. Kinds that are one to the server
// stand for each other: those of an RLock, and a semaphore and a latch.
func TestKeyOfAnotherKind(t *testing.T) {
	const hash, readWrite, text, number, group = "hash", "readwrite", "text", "number", "group"
	put := map[string][]string{
		hash:      {"HSET", "job", "00000000-0000-4000-8000-000000000001:7", "2"},
		readWrite: {"HSET", "job", "mode", "read", "00000000-0000-4000-8000-000000000001:7", "1"},
		"writing": {"HSET", "job", "mode", "write", "00000000-0000-4000-8000-000000000001:7:write", "1"},
		text:      {"SET", "job", "00000000-0000-4000-8000-000000000001:7"},
		number:    {"SET", "job", "3"},
		group:     {"HSET", "job", "a", "client:7", "a:client:7:expire_time", "3", "a:client:7:lock_count", "1"},
		"a hash":  {"HSET", "job", "name", "value"},
		"a list":  {"RPUSH", "job", "1"},
	}
	type kind struct {
		info  func(context.Context) (lock.Info, error)
		force func(context.Context) (bool, error)
		takes []string
	}
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		rw, plain, permits := c.ReadWrite("job"), c.Plain("job"), c.PermitSemaphore("job")
		for name, k := range map[string]kind{
			"Reentrant":        {c.Reentrant("job").Info, c.Reentrant("job").ForceUnlock, []string{hash}},
			"NonReentrant":     {c.NonReentrant("job").Info, c.NonReentrant("job").ForceUnlock, []string{hash}},
			"Spin":             {c.Spin("job", lock.Backoff{}).Info, c.Spin("job", lock.Backoff{}).ForceUnlock, []string{hash}},
			"Fenced":           {c.Fenced("job").Info, c.Fenced("job").ForceUnlock, []string{hash}},
			"Fair":             {c.Fair("job").Info, c.Fair("job").ForceUnlock, []string{hash}},
			"NonReentrantFair": {c.NonReentrantFair("job").Info, c.NonReentrantFair("job").ForceUnlock, []string{hash}},
			"Read":             {rw.Read().Info, rw.Read().ForceUnlock, []string{readWrite, "writing"}},
			"Write":            {rw.Write().Info, rw.Write().ForceUnlock, []string{readWrite, "writing"}},
			"Plain":            {plain.Info, plain.ForceUnlock, []string{text}},
			"PermitSemaphore":  {permits.Info, permits.ReleaseAll, []string{number}},
			"Semaphore":        {info: c.Semaphore("job").Info, takes: []string{number}},
			"FasterMulti":      {c.FasterMulti("job", "a").Info, c.FasterMulti("job", "a").ForceUnlock, []string{group}},
		} {
			for what, command := range put {
				w.srv.Do("FLUSHALL")
				w.srv.Do(command...)
				before := w.srv.Dump()
				_, err := k.info(t.Context())
				if slices.Contains(k.takes, what) {
					if err != nil {
						t.Errorf("%s.Info of %s = %v", name, what, err)
					}
					continue
				}
				wantErr(t, name+".Info of "+what, err, lock.ErrWrongType)
				if k.force != nil {
					_, err = k.force(t.Context())
					wantErr(t, name+".ForceUnlock of "+what, err, lock.ErrWrongType)
				}
				if after := w.srv.Dump(); !slices.Equal(before, after) {
					t.Errorf("%s has made %q of %q", name, after, before)
				}
			}
		}
		w.srv.Do("FLUSHALL")
	})
}

// Check of a lease whose key has come to hold another kind says so, and leaves the key alone.
func TestCheckOfAnotherKind(t *testing.T) {
	const other = "00000000-0000-4000-8000-000000000001:7"
	hash, readWrite, number := []string{"HSET", "job", other, "1"}, []string{"HSET", "job", "mode", "read", other, "1"}, []string{"SET", "job", "3"}
	inVirtualTime(t, func(t *testing.T, w *world) {
		c := w.client(lock.Config{})
		rw, permits := c.ReadWrite("job"), c.PermitSemaphore("job")
		for name, k := range map[string]struct {
			lock    func(context.Context, ...lock.Option) (*lock.Lease, error)
			strange [][]string
			own     []string // another holder's
		}{
			"Reentrant": {c.Reentrant("job").Lock, [][]string{readWrite, number}, hash},
			"Fenced":    {c.Fenced("job").Lock, [][]string{readWrite, number}, hash},
			"Fair":      {c.Fair("job").Lock, [][]string{readWrite, number}, hash},
			"Read":      {rw.Read().Lock, [][]string{hash, number}, readWrite},
			"Write":     {rw.Write().Lock, [][]string{hash, number}, readWrite},
			"Plain":     {c.Plain("job").Lock, [][]string{hash, readWrite}, []string{"SET", "job", other}},
			"Multi": {func(ctx context.Context, opts ...lock.Option) (*lock.Lease, error) {
				m, err := lock.NewMulti(c.Reentrant("job"))
				if err != nil {
					return nil, err
				}
				return m.Lock(ctx, opts...)
			}, [][]string{readWrite, number}, hash},
			"PermitSemaphore": {func(ctx context.Context, opts ...lock.Option) (*lock.Lease, error) {
				if _, err := permits.TrySetPermits(ctx, 1); err != nil {
					return nil, err
				}
				return permits.Acquire(ctx, opts...)
			}, [][]string{hash, readWrite}, []string{"SET", "job", "1"}},
		} {
			for i, put := range append(k.strange, k.own) {
				w.srv.Do("FLUSHALL")
				lease, err := k.lock(t.Context())
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				w.srv.Do("FLUSHALL")
				w.srv.Do(put...)
				before := w.srv.Dump()
				err = lease.Check(t.Context())
				wantErr(t, name+".Check", err, lock.ErrLost)
				if strange := i < len(k.strange); errors.Is(err, lock.ErrWrongType) != strange {
					t.Errorf("%s.Check beside %q = %v", name, put, err)
				}
				wantErr(t, name+".Err after Check", lease.Err(), lock.ErrLost)
				if after := w.srv.Dump(); !slices.Equal(before, after) {
					t.Errorf("%s.Check has made %q of %q", name, after, before)
				}
			}
		}
		w.srv.Do("FLUSHALL")
	})
}
