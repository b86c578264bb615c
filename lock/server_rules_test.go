package lock_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/redistest"
	"github.com/lockwire/lockwire/lock"
)

// ruled is a row of the table of rules in OPERATIONS.md.
type ruled struct {
	scripts string // a pattern for the kind's scripts
	use     func(r *ruledUser) error
}

// rulesOfKinds are the rows, by their first column.
var rulesOfKinds = map[string]ruled{
	"Reentrant, NonReentrant, Spin": {"reentrant|nonreentrant|all", func(r *ruledUser) error {
		return errors.Join(
			r.useLock(func(c *lock.Client) ruledLock { return c.Reentrant("orders:1") }),
			r.useLock(func(c *lock.Client) ruledLock { return c.NonReentrant("orders:1") }),
			r.useLock(func(c *lock.Client) ruledLock { return c.Spin("orders:1", lock.Backoff{}) }))
	}},
	"Fenced": {"reentrant|fenced|all", func(r *ruledUser) error {
		return r.useLock(func(c *lock.Client) ruledLock { return c.Fenced("orders:1") })
	}},
	"Fair, NonReentrantFair": {"reentrant_renew|reentrant_holder|fair", func(r *ruledUser) error {
		return errors.Join(
			r.useLock(func(c *lock.Client) ruledLock { return c.Fair("orders:1") }),
			r.useLock(func(c *lock.Client) ruledLock { return c.NonReentrantFair("orders:1") }))
	}},
	"ReadWrite": {"reentrant_renew|read|write|readwrite|all", func(r *ruledUser) error {
		return errors.Join(
			r.useLock(func(c *lock.Client) ruledLock { return c.ReadWrite("orders:1").Write() }),
			r.useReaders())
	}},
	"FasterMulti": {"fastermulti", func(r *ruledUser) error {
		return r.useLock(func(c *lock.Client) ruledLock { return c.FasterMulti("orders:1", "1", "2") })
	}},
	"Plain": {"plain", func(r *ruledUser) error {
		return r.useLock(func(c *lock.Client) ruledLock { return c.Plain("orders:1") })
	}},
	"Semaphore":       {"semaphore|all_line|all_quit", (*ruledUser).useSemaphore},
	"PermitSemaphore": {"permits|semaphore_set|all_line|all_quit", (*ruledUser).usePermits},
	"CountDownLatch":  {"latch", (*ruledUser).useLatch},
}

// A user with just the rules of a row in OPERATIONS.md can do everything with its kinds, and is refused nothing.
func TestServerRulesOfKinds(t *testing.T) {
	t.Parallel()
	common, rows := rulesOfOperations(t)
	redistest.Run(t, func(t *testing.T, srv *redistest.Server) {
		common := rulesFor(srv, common)
		srv = redistest.Start(t, redistest.Options{Binary: srv.Binary(), Users: []redistest.User{{Name: "app", Password: "secret", Rules: common}}})
		for kind, row := range rulesOfKinds {
			r := newRuledUser(t, srv, common+" "+rulesFor(srv, rows[kind]))
			r.hold = 500 * time.Millisecond // a client then listens for forced unlocks
			if err := row.use(r); err != nil {
				t.Errorf("%s: %v", kind, err)
			}
			r.close()
			for entry := range srv.Do("ACL", "LOG").All() {
				if !srv.AtLeast(7, 0) && strings.Contains(fmt.Sprint(entry), `"object" "client"`) {
					continue // CLIENT SETINFO, which no rule can name
				}
				t.Errorf("%s: the server refused %s", kind, entry)
			}
		}
	})
}

// Without any one of the keys and channels of a row, something is refused.
func TestServerRulesAreNeeded(t *testing.T) {
	t.Parallel()
	common, rows := rulesOfOperations(t)
	redistest.Run(t, func(t *testing.T, srv *redistest.Server) {
		if !srv.AtLeast(7, 0) {
			return
		}
		srv = redistest.Start(t, redistest.Options{Binary: srv.Binary(), Users: []redistest.User{{Name: "app", Password: "secret", Rules: common}}})
		for kind, row := range rulesOfKinds {
			rules := strings.Fields(rows[kind])
			for i, rule := range rules {
				if rule[0] == '+' || rule == "&lockwire_forced" { // the latter is used by holds that last
					continue
				}
				r := newRuledUser(t, srv, common+" "+strings.Join(slices.Delete(slices.Clone(rules), i, i+1), " "))
				r.patience = time.Second
				_ = row.use(r)
				r.close()
				if srv.Do("ACL", "LOG").Len() == 0 {
					t.Errorf("%s does not need %s", kind, rule)
				}
			}
		}
	})
}

// A user with the rules of OPERATIONS.md for Watch can watch the locks of all kinds, and is refused nothing. Without any one of the
// channels Watch ends with an error that names the channel.
func TestServerRulesOfWatch(t *testing.T) {
	t.Parallel()
	common, rows := rulesOfOperations(t)
	block := blockOfOperations(t, "`Client.Watch`")
	rules := strings.Fields(block)
	redistest.Run(t, func(t *testing.T, srv *redistest.Server) {
		if !srv.AtLeast(7, 0) {
			return
		}
		common := rulesFor(srv, common)
		srv = redistest.Start(t, redistest.Options{Binary: srv.Binary(), Users: []redistest.User{{Name: "app", Password: "secret", Rules: common}}})
		srv.Do("CONFIG", "SET", "notify-keyspace-events", "KA")
		for kind, take := range locksOfKinds {
			r := newRuledUser(t, srv, strings.Join([]string{common, rows[kind], block}, " "))
			expect := watchInTurn(t, r.b, "orders:*")
			expect("watching")
			lease, err := take(r.a).TryLock(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			expect("acquired orders:1 " + lease.Owner())
			mustUnlock(t, lease)
			expect("released orders:1 " + lease.Owner())
			r.close()
			for entry := range srv.Do("ACL", "LOG").All() {
				t.Errorf("%s: the server refused %s", kind, entry)
			}
		}
		for i, rule := range rules {
			if rule[0] != '&' {
				continue
			}
			r := newRuledUser(t, srv, common+" "+strings.Join(slices.Delete(slices.Clone(rules), i, i+1), " "))
			for ev, err := range r.b.Watch(t.Context(), "orders:*") {
				if err == nil || !strings.Contains(err.Error(), "NOPERM") || !strings.Contains(err.Error(), rule[1:]) {
					t.Errorf("without %s: %+v, %v", rule, ev, err)
				}
				break
			}
			r.close()
		}
	})
}

// A user with the rules of OPERATIONS.md for Inspect can inspect the locks of all kinds and take them from their owners, and is refused nothing.
func TestServerRulesOfInspect(t *testing.T) {
	t.Parallel()
	common, rows := rulesOfOperations(t)
	block := blockOfOperations(t, "`Client.Inspect`")
	redistest.Run(t, func(t *testing.T, srv *redistest.Server) {
		if !srv.AtLeast(6, 2) {
			return // a user cannot have the right to a part of CLIENT
		}
		common := rulesFor(srv, common)
		srv = redistest.Start(t, redistest.Options{Binary: srv.Binary(), Users: []redistest.User{{Name: "app", Password: "secret", Rules: common}}})
		for kind, take := range locksOfKinds {
			r := newRuledUser(t, srv, strings.Join([]string{common, rows[kind], block}, " "))
			lease, err := take(r.a).TryLock(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if seen, err := r.b.Inspect(t.Context(), "orders:1"); err != nil || !seen.Info.Locked || seen.ClientsErr != nil {
				t.Errorf("%s: Inspect() = %+v, %v", kind, seen, err)
			}
			if kind != "FasterMulti" { // refused for this kind
				if ok, err := r.b.ForceUnlockOwner(t.Context(), "orders:1", lease.Owner()); err != nil || !ok {
					t.Errorf("%s: ForceUnlockOwner() = %v, %v", kind, ok, err)
				}
			}
			r.close()
			for entry := range srv.Do("ACL", "LOG").All() {
				t.Errorf("%s: the server refused %s", kind, entry)
			}
		}
	})
}

// locksOfKinds has a lock of each row of the table of rules in OPERATIONS.md.
var locksOfKinds = map[string]func(c *lock.Client) ruledLock{
	"Reentrant, NonReentrant, Spin": func(c *lock.Client) ruledLock { return c.Reentrant("orders:1") },
	"Fenced":                        func(c *lock.Client) ruledLock { return c.Fenced("orders:1") },
	"Fair, NonReentrantFair":        func(c *lock.Client) ruledLock { return c.Fair("orders:1") },
	"ReadWrite":                     func(c *lock.Client) ruledLock { return c.ReadWrite("orders:1").Write() },
	"FasterMulti":                   func(c *lock.Client) ruledLock { return c.FasterMulti("orders:1", "1", "2") },
	"Plain":                         func(c *lock.Client) ruledLock { return c.Plain("orders:1") },
}

// The commands of a row are those of its scripts.
func TestRulesAreOfScripts(t *testing.T) {
	common, rows := rulesOfOperations(t)
	call := regexp.MustCompile(`p?call\('([a-z]+)'`)
	files, err := filepath.Glob("internal/kinds/lua/*.lua")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d scripts, %v", len(files), err)
	}
	for kind, row := range rulesOfKinds {
		scripts := regexp.MustCompile("^(" + row.scripts + ")(_.*)?\\.lua$")
		var want []string
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, found := range call.FindAllStringSubmatch(string(text), -1) {
				if rule := "+" + found[1]; scripts.MatchString(filepath.Base(file)) && !slices.Contains(strings.Fields(common), rule) && rule != "+pubsub" {
					want = append(want, rule)
				}
			}
		}
		slices.Sort(want)
		want = slices.Compact(want)
		var got []string
		for rule := range strings.FieldsSeq(rows[kind]) {
			if rule[0] == '+' {
				got = append(got, rule)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("OPERATIONS.md, %s: the commands are\n%s, want\n%s", kind, strings.Join(got, " "), strings.Join(want, " "))
		}
	}
	if len(rows) != len(rulesOfKinds) {
		t.Errorf("OPERATIONS.md has the rules of %d kinds, want %d", len(rows), len(rulesOfKinds))
	}
}

// rulesOfOperations returns the rules for all users in OPERATIONS.md, and those for each kind.
func rulesOfOperations(t *testing.T) (common string, rows map[string]string) {
	t.Helper()
	text, err := os.ReadFile("../OPERATIONS.md")
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(text), "\n```acl\n")
	common, after, ok := strings.Cut(after, "```")
	_, after, table := strings.Cut(after, "\n| kind | keys and channels | commands |\n|---|---|---|\n")
	if !ok || !table {
		t.Fatal("OPERATIONS.md has no rules")
	}
	after, _, _ = strings.Cut(after, "\n\n")
	rows = make(map[string]string)
	for line := range strings.Lines(after) {
		cells := strings.Split(strings.Trim(line, "| \n"), "|")
		kind := strings.ReplaceAll(strings.TrimSpace(cells[0]), "`", "")
		rows[kind] = strings.Join(strings.Fields(strings.ReplaceAll(strings.Join(cells[1:], " "), "`", " ")), " ")
	}
	return strings.Join(strings.Fields(common), " "), rows
}

// blockOfOperations returns the rules in OPERATIONS.md for something.
func blockOfOperations(t *testing.T, something string) string {
	t.Helper()
	text, err := os.ReadFile("../OPERATIONS.md")
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(text), "\nRules for "+something)
	_, after, _ = strings.Cut(after, "\n```acl\n")
	block, _, ok := strings.Cut(after, "```")
	if !ok {
		t.Fatalf("OPERATIONS.md has no rules for %s", something)
	}
	return block
}

// rulesFor returns rules as OPERATIONS.md says for the server's version.
func rulesFor(srv *redistest.Server, rules string) string {
	switch {
	case srv.AtLeast(7, 2):
		return rules + " +client|setinfo"
	case srv.AtLeast(6, 2):
		return rules
	}
	return strings.Join(slices.DeleteFunc(strings.Fields(rules), func(rule string) bool { return rule[0] == '&' }), " ")
}

// ruledUser is two clients of the user app.
type ruledUser struct {
	t        *testing.T
	a, b     *lock.Client
	patience time.Duration // with a use
	hold     time.Duration // how long locks are held
	closers  []func() error
}

// newRuledUser gives the user app these rules and opens two clients of the user.
func newRuledUser(t *testing.T, srv *redistest.Server, rules string) *ruledUser {
	t.Helper()
	args := []any{"ACL", "SETUSER", "app", "reset", "on", ">secret"}
	for rule := range strings.FieldsSeq(rules) {
		args = append(args, rule)
	}
	srv.Do("FLUSHALL")
	srv.Do(args...)
	srv.Do("ACL", "LOG", "RESET")
	r := &ruledUser{t: t, patience: redistest.Patience}
	open := func() *lock.Client {
		cfg := srv.Config()
		cfg.Username, cfg.Password = "app", "secret"
		pool, err := conn.Open(t.Context(), cfg)
		if err != nil {
			t.Fatalf("%v, with the rules %s", err, rules)
		}
		c, err := lock.New(pool, lock.Config{RenewEvery: 20 * time.Millisecond, Logger: new(lines), PreferWriters: true})
		if err != nil {
			t.Fatal(err)
		}
		r.closers = append(r.closers, c.Close, pool.Close)
		return c
	}
	r.a, r.b = open(), open()
	return r
}

func (r *ruledUser) close() {
	for _, fn := range r.closers {
		_ = fn()
	}
}

// ruledLock is a kind of lock.
type ruledLock interface {
	Lock(ctx context.Context, opts ...lock.Option) (*lock.Lease, error)
	TryLock(ctx context.Context, opts ...lock.Option) (*lock.Lease, error)
	Info(ctx context.Context) (lock.Info, error)
	ForceUnlock(ctx context.Context) (bool, error)
}

// useLock has one client hold a lock until it was renewed, while a caller of the other waits for the lock and one gives up. Then
// the lock is freed by force.
func (r *ruledUser) useLock(of func(c *lock.Client) ruledLock) error {
	ctx, cancel := context.WithTimeout(r.t.Context(), r.patience)
	defer cancel()
	held, err := of(r.a).Lock(ctx)
	if err != nil {
		return fmt.Errorf("Lock: %w", err)
	}
	got := make(chan error, 1)
	go func() {
		lease, err := of(r.b).Lock(ctx)
		if err == nil {
			err = lease.Unlock(ctx)
		}
		got <- err
	}()
	for r.b.Stats().Waiting == 0 && ctx.Err() == nil && len(got) == 0 {
		runtime.Gosched()
	}
	err = r.renewed(ctx, held)
	if _, failed := of(r.b).Info(ctx); failed != nil {
		err = errors.Join(err, fmt.Errorf("Info: %w", failed))
	}
	if err := errors.Join(err, held.Unlock(ctx), <-got); err != nil {
		return err
	}
	forced, err := of(r.a).Lock(ctx)
	if err != nil {
		return fmt.Errorf("Lock once more: %w", err)
	}
	short, stop := context.WithTimeout(ctx, 20*time.Millisecond)
	defer stop()
	if _, err := of(r.b).Lock(short); err == nil {
		return errors.New("two have the lock")
	}
	if ok, err := of(r.b).ForceUnlock(ctx); err != nil || !ok {
		return fmt.Errorf("ForceUnlock: %v, %w", ok, err)
	}
	_ = forced.Unlock(ctx)
	return nil
}

// renewed returns when the lease was renewed for long enough.
func (r *ruledUser) renewed(ctx context.Context, l *lock.Lease) error {
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	for end := l.ValidUntil().Add(r.hold); !l.ValidUntil().After(end); {
		select {
		case <-look.C:
		case <-l.Lost():
			return fmt.Errorf("renewal: %w", l.Err())
		case <-ctx.Done():
			return fmt.Errorf("renewal: %w", ctx.Err())
		}
	}
	return nil
}

// useReaders has a reader with two holds, of which one was a write hold, and a second reader.
func (r *ruledUser) useReaders() error {
	ctx, cancel := context.WithTimeout(r.t.Context(), r.patience)
	defer cancel()
	a, b := r.a.ReadWrite("orders:2"), r.b.ReadWrite("orders:2")
	owner := lock.As(r.a.NewOwner())
	write, err := a.Write().Lock(ctx, owner)
	if err != nil {
		return fmt.Errorf("write: %w", err)
	}
	first, err := write.Downgrade(ctx)
	if err != nil {
		return fmt.Errorf("Downgrade: %w", err)
	}
	second, err := a.Read().Lock(ctx, owner)
	if err != nil {
		return fmt.Errorf("second hold: %w", err)
	}
	other, err := b.Read().Lock(ctx)
	if err != nil {
		return fmt.Errorf("other reader: %w", err)
	}
	_, info := b.Read().Info(ctx)
	err = errors.Join(info, r.renewed(ctx, second), r.renewed(ctx, other),
		second.Unlock(ctx), first.Unlock(ctx), other.Unlock(ctx))
	if err != nil {
		return err
	}
	forced, err := a.Read().Lock(ctx)
	if err != nil {
		return err
	}
	_, err = b.Read().ForceUnlock(ctx)
	_ = forced.Unlock(ctx)
	return err
}

// taken has take wait until give has given.
func (r *ruledUser) taken(ctx context.Context, take func(ctx context.Context) error, give func(ctx context.Context) error) error {
	got := make(chan error, 1)
	go func() { got <- take(ctx) }()
	for r.b.Stats().Waiting == 0 && ctx.Err() == nil && len(got) == 0 {
		runtime.Gosched()
	}
	return errors.Join(give(ctx), <-got)
}

func (r *ruledUser) useSemaphore() error {
	ctx, cancel := context.WithTimeout(r.t.Context(), r.patience)
	defer cancel()
	a, b := r.a.Semaphore("orders:1"), r.b.Semaphore("orders:1")
	if _, err := a.TrySetPermits(ctx, 1); err != nil {
		return err
	}
	if err := a.Acquire(ctx, 1); err != nil {
		return err
	}
	err := r.taken(ctx, func(ctx context.Context) error { return b.Acquire(ctx, 1) }, func(ctx context.Context) error { return a.Release(ctx, 1) })
	_, available := a.Available(ctx)
	_, info := a.Info(ctx)
	_, drain := a.DrainPermits(ctx)
	return errors.Join(err, available, info, drain, a.AddPermits(ctx, 2))
}

func (r *ruledUser) usePermits() error {
	ctx, cancel := context.WithTimeout(r.t.Context(), r.patience)
	defer cancel()
	a, b := r.a.PermitSemaphore("orders:1"), r.b.PermitSemaphore("orders:1")
	if _, err := a.TrySetPermits(ctx, 1); err != nil {
		return err
	}
	held, err := a.Acquire(ctx)
	if err != nil {
		return err
	}
	if err := r.renewed(ctx, held); err != nil {
		return err
	}
	err = r.taken(ctx, func(ctx context.Context) error {
		lease, err := b.Acquire(ctx)
		if err == nil {
			err = lease.Unlock(ctx)
		}
		return err
	}, held.Unlock)
	_, info := a.Info(ctx)
	_, available := a.Available(ctx)
	_, released := a.ReleaseAll(ctx)
	return errors.Join(err, info, available, released, a.AddPermits(ctx, 1), a.SetPermits(ctx, 3))
}

func (r *ruledUser) useLatch() error {
	ctx, cancel := context.WithTimeout(r.t.Context(), r.patience)
	defer cancel()
	a, b := r.a.CountDownLatch("orders:1"), r.b.CountDownLatch("orders:1")
	if _, err := a.TrySetCount(ctx, 1); err != nil {
		return err
	}
	err := r.taken(ctx, b.Wait, a.CountDown)
	_, count := a.Count(ctx)
	_, again := a.TrySetCount(ctx, 1)
	_, deleted := a.Delete(ctx)
	return errors.Join(err, count, again, deleted)
}

// A user with just the rules that README.md names can use each kind.
func TestServerRulesOfUsers(t *testing.T) {
	redistest.Run(t, func(t *testing.T, srv *redistest.Server) {
		if !srv.AtLeast(6, 2) {
			return // there are no rules for channels
		}
		as := rightsServer(t, srv, rulesOfReadme(t))
		a, log := as("app")
		b, _ := as("app")
		handOver(t, a, b, "orders:1")
		ctx := t.Context()
		for name, l := range map[string]interface {
			Lock(ctx context.Context, opts ...lock.Option) (*lock.Lease, error)
		}{
			"fair": a.Fair("orders:2"), "fenced": a.Fenced("orders:3"), "spin": a.Spin("orders:4", lock.Backoff{}), "plain": a.Plain("orders:5"),
			"read": a.ReadWrite("orders:6").Read(), "write": a.ReadWrite("orders:7").Write(),
		} {
			lease, err := l.Lock(ctx)
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			if err := lease.Unlock(ctx); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		mustUnlock(t, mustLock(t, a, "orders:8", lock.As(a.NewOwner())))
		mustUnlock(t, mustLock(t, a, "orders:kept", lock.AtLeast(time.Second)))
		mustLock(t, a, "orders:9")
		if forced, err := b.Reentrant("orders:9").ForceUnlock(ctx); err != nil || !forced {
			t.Errorf("ForceUnlock() = %v, %v", forced, err)
		}
		useSynchronizers(t, a)
		if got := log.with("missing"); len(got) != 0 {
			t.Errorf("logged %q", got)
		}
	})
}

// rulesOfReadme are the rules that README.md names, for locks whose names begin with "orders".
func rulesOfReadme(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, after, ok := strings.Cut(string(text), "`~orders")
	rules, _, end := strings.Cut(after, "`")
	if !ok || !end {
		t.Fatal("README.md names no rules")
	}
	return "~orders" + rules
}

func useSynchronizers(t *testing.T, c *lock.Client) {
	t.Helper()
	ctx := t.Context()
	s, p, l := c.Semaphore("orders:10"), c.PermitSemaphore("orders:11"), c.CountDownLatch("orders:12")
	_, err := s.TrySetPermits(ctx, 1)
	_, failed := p.TrySetPermits(ctx, 1)
	_, unset := l.TrySetCount(ctx, 1)
	if err := errors.Join(err, failed, unset, s.Acquire(ctx, 1), s.Release(ctx, 1)); err != nil {
		t.Error(err)
	}
	lease, err := p.Acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(lease.Unlock(ctx), l.CountDown(ctx), l.Wait(ctx)); err != nil {
		t.Error(err)
	}
}
