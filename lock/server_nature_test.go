package lock_test

import (
	"context"
	"errors"
	"testing"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/lock"
	"github.com/lockwire/lockwire/resp"
)

// hidden hides what a Server declares, and is of a type that cannot be compared.
type hidden struct {
	lock.Server
	sent func()
}

func (h hidden) Send(ctx context.Context, cmd resp.Command) (resp.Value, error) {
	h.sent()
	return h.Server.Send(ctx, cmd)
}

// telling is hidden, and tells what it hides.
type telling struct{ hidden }

func (w telling) Unwrap() lock.Server { return w.Server }

// embedding is a Pool, and more.
type embedding struct{ *conn.Pool }

// A Server that cannot be classified is refused, unless it is said to be a single one; one that wraps another is what that is.
func TestServerNature(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		pool := w.pool(conn.Config{})
		w.pools = append(w.pools, pool)
		n := 0
		dark := hidden{pool, func() { n++ }}
		for name, c := range map[string]struct {
			server     lock.Server
			standalone bool
			ok         bool
		}{
			"a pool":                   {pool, false, true},
			"a pool that stands alone": {pool, true, true},
			"an embedded pool":         {embedding{pool}, false, true},
			"a hidden pool":            {dark, false, false},
			"one that stands alone":    {dark, true, true},
			"one that tells":           {telling{dark}, false, true},
			"one that tells of one":    {telling{hidden{telling{dark}, func() {}}}, false, true},
			"one that tells of nobody": {telling{dark.nobody()}, false, false},
			"slots that stand alone":   {slotted{pool}, true, false},
			"no server":                {nil, false, false},
		} {
			locks, err := lock.New(c.server, lock.Config{Standalone: c.standalone})
			if c.ok != (err == nil) || err != nil && !errors.Is(err, lock.ErrInvalid) {
				t.Errorf("New of %s = %v", name, err)
			}
			if err != nil {
				continue
			}
			w.clients = append(w.clients, locks)
			before := n
			mustUnlock(t, mustLock(t, locks, name))
			if through := n > before; through != (c.server != lock.Server(pool) && name != "an embedded pool") {
				t.Errorf("%s: the commands went through it: %v", name, through)
			}
		}
	})
}

func (h hidden) nobody() hidden { return hidden{nil, h.sent} }

// Two clients whose Servers wrap one pool are on one server.
func TestWrappedServersAreOne(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		pool := w.pool(conn.Config{})
		w.pools = append(w.pools, pool)
		var handles []lock.Member
		for _, s := range []lock.Server{pool, telling{hidden{pool, func() {}}}, telling{hidden{pool, func() {}}}} {
			c, err := lock.New(s, lock.Config{})
			if err != nil {
				t.Fatal(err)
			}
			w.clients = append(w.clients, c)
			handles = append(handles, c.Reentrant("job"))
		}
		if _, err := lock.NewRedlock(lock.RedlockConfig{}, handles...); !errors.Is(err, lock.ErrInvalid) {
			t.Errorf("NewRedlock of three wrappers of one pool = %v", err)
		}
		lease, err := newMulti(t, handles...).TryLock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if n := len(lease.Members()); n != 1 {
			t.Errorf("a Multi of one lock by three wrappers of its server has %d members", n)
		}
		mustUnlock(t, lease)
	})
}
