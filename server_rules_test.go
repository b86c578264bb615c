package lockwire_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/lockwire/lockwire"
	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/redistest"
	"github.com/lockwire/lockwire/lock"
	"github.com/lockwire/lockwire/lock/leader"
)

// A user of the locks of a cluster with just the rules in OPERATIONS.md is refused nothing.
func TestServerRulesInACluster(t *testing.T) {
	s := redistest.StartCluster(t, redistest.Options{Users: []redistest.User{{Name: "app", Password: "secret"}}})
	setRules(s.Nodes(), "for all users", "in a cluster", "`Fenced`")
	a := openLocks(t, "redis-cluster://app:secret@"+strings.Join(s.Addrs(), ","), lockwire.Config{})
	b := openLocks(t, "redis-cluster://app:secret@"+strings.Join(s.Addrs(), ","), lockwire.Config{})
	passOn(t, a, b)
	wantNoRefusal(t, s.Nodes())
}

// The same under Sentinel, with a user of the sentinels.
func TestServerRulesUnderSentinel(t *testing.T) {
	s := redistest.StartSentinels(t, redistest.Options{Users: []redistest.User{{Name: "app", Password: "secret"}}})
	if !s.Servers()[0].AtLeast(6, 2) {
		return // such sentinels have no users
	}
	setRules(s.Servers(), "for all users", "under Sentinel", "`Fenced`")
	setRules(s.Sentinels(), "at the sentinels")
	sentinel := s.Config().Sentinel
	cfg := lockwire.Config{Conn: func(cfg *conn.Config) { cfg.Sentinel.Username, cfg.Sentinel.Password = "app", "secret" }}
	url := "redis-sentinel://app:secret@" + strings.Join(sentinel.Addrs, ",") + "/" + sentinel.Master
	passOn(t, openLocks(t, url, cfg), openLocks(t, url, cfg))
	wantNoRefusal(t, append(s.Servers(), s.Sentinels()...))
}

// The same for a leader, at a single server.
func TestServerRulesOfLeaders(t *testing.T) {
	redistest.Run(t, func(t *testing.T, srv *redistest.Server) {
		if !srv.AtLeast(7, 0) {
			return // see the rules of the kinds
		}
		srv = redistest.Start(t, redistest.Options{Binary: srv.Binary(), Users: []redistest.User{{Name: "app", Password: "secret"}}})
		url := strings.Replace(srv.URL(), "redis://", "redis://app:secret@", 1)
		ctx, cancel := context.WithTimeout(t.Context(), redistest.Patience)
		defer cancel()

		setRules([]*redistest.Server{srv}, "for all users", "for leaders", "`Fenced`")
		c := openLocks(t, url, lockwire.Config{})
		err := leader.Run(ctx, c.Client, "orders:1", leader.Config{}, func(ctx context.Context) error {
			_, err := leader.Observe(ctx, c.Client, "orders:1")
			return err
		})
		if err != nil {
			t.Errorf("Run() = %v", err)
		}
		wantNoRefusal(t, []*redistest.Server{srv})
	})
}

// The same for a Redlock of three servers that have just started and write each grant to disk, and for a Multi of two locks with one name.
// Without any one of their rules something is refused.
func TestServerRulesOfRedlockAndMulti(t *testing.T) {
	redistest.Run(t, func(t *testing.T, srv *redistest.Server) {
		if !srv.AtLeast(7, 0) {
			return // see the rules of the kinds
		}
		var servers []*redistest.Server
		for range 3 {
			servers = append(servers, redistest.Start(t, redistest.Options{
				Binary: srv.Binary(), Users: []redistest.User{{Name: "app", Password: "secret"}}, Args: []string{"--appendonly", "yes", "--appendfsync", "always"},
			}))
		}
		for kind, of := range map[string]func(a, b, c lock.Member) (lockable, error){
			"Redlock": func(a, b, c lock.Member) (lockable, error) { return lock.NewRedlock(lock.RedlockConfig{}, a, b, c) },
			"Multi":   func(a, b, _ lock.Member) (lockable, error) { return lock.NewMulti(a, b) },
		} {
			rules := rulesInText(kind)
			for leftOut := -1; leftOut < len(rules); leftOut++ {
				setRules(servers, "for all users", "`Reentrant`, `NonReentrant`, `Spin`")
				for i, rule := range rules {
					for _, s := range servers {
						if i != leftOut {
							s.Do("ACL", "SETUSER", "app", rule)
						}
					}
				}
				// With so long a lease no server has been up for long enough, however slow this machine is.
				name := fmt.Sprint("orders:", kind, leftOut)
				var jobs []lock.Member
				for _, s := range servers {
					url := strings.Replace(s.URL(), "redis://", "redis://app:secret@", 1)
					jobs = append(jobs, openLocks(t, url, lockwire.Config{Lock: lock.Config{Lease: time.Hour}}).Reentrant(name))
				}
				ctx, cancel := context.WithTimeout(t.Context(), redistest.Patience)
				all, err := of(jobs[0], jobs[1], jobs[2])
				if err != nil {
					t.Fatal(err)
				}
				lease, err := all.TryLock(ctx)
				if err == nil {
					err = lease.Unlock(ctx)
				}
				cancel()
				refused := 0
				for _, s := range servers {
					refused += s.Do("ACL", "LOG").Len()
				}
				if leftOut < 0 && (err != nil || refused > 0) {
					t.Errorf("%s with %s: %v, %d commands were refused", kind, rules, err, refused)
				} else if leftOut >= 0 && refused == 0 {
					t.Errorf("%s does not need %s", kind, rules[leftOut])
				}
			}
		}
	})
}

// lockable is a Redlock or a Multi.
type lockable interface {
	TryLock(ctx context.Context, opts ...lock.Option) (*lock.Lease, error)
}

// rulesInText returns the rules of a kind in the paragraph of OPERATIONS.md about kinds of several locks.
func rulesInText(kind string) (rules []string) {
	text, err := os.ReadFile("OPERATIONS.md")
	if err != nil {
		panic(err)
	}
	_, after, ok := strings.Cut(string(text), "\n`Redlock` also needs ")
	redlock, after, found := strings.Cut(after, ". `Multi` asks for ")
	multi, _, end := strings.Cut(after, "\n\n")
	if !ok || !found || !end {
		panic("OPERATIONS.md has no rules of Redlock and Multi")
	}
	part := map[string]string{"Redlock": redlock, "Multi": multi}[kind]
	for i, code := range strings.Split(part, "`") {
		if i%2 == 1 {
			rules = append(rules, strings.Fields(code)...)
		}
	}
	return rules
}

// setRules gives the user app of each server the rules of these parts of OPERATIONS.md.
func setRules(servers []*redistest.Server, parts ...string) {
	for _, s := range servers {
		args := []any{"ACL", "SETUSER", "app", "reset", "on", ">secret"}
		for _, part := range parts {
			for rule := range strings.FieldsSeq(rulesOf(part)) {
				args = append(args, rule)
			}
		}
		if s.AtLeast(7, 2) {
			args = append(args, "+client|setinfo")
		}
		s.Do(args...)
		s.Do("ACL", "LOG", "RESET")
	}
}

// rulesOf returns the rules of the first block behind part in OPERATIONS.md, or in the row of the table that begins with part.
func rulesOf(part string) string {
	text, err := os.ReadFile("OPERATIONS.md")
	if err != nil {
		panic(err)
	}
	for line := range strings.Lines(string(text)) {
		if row, ok := strings.CutPrefix(line, "| "+part+" | "); ok {
			return strings.NewReplacer("`", "", "|", "").Replace(row)
		}
	}
	_, after, _ := strings.Cut(string(text), "Rules "+part)
	_, after, _ = strings.Cut(after, "```acl\n")
	block, _, ok := strings.Cut(after, "```")
	if !ok {
		panic("OPERATIONS.md has no rules " + part)
	}
	return block
}

func openLocks(t *testing.T, url string, cfg lockwire.Config) *lockwire.Client {
	t.Helper()
	c, err := lockwire.Open(t.Context(), url, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// passOn has a caller of b wait for a lock of a, which releases it.
func passOn(t *testing.T, a, b *lockwire.Client) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), redistest.Patience)
	defer cancel()
	held, err := a.Fenced("orders:1").Lock(ctx)
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan error, 1)
	go func() {
		lease, err := b.Fenced("orders:1").Lock(ctx)
		if err == nil {
			err = lease.Unlock(ctx)
		}
		got <- err
	}()
	for b.Stats().Waiting == 0 && ctx.Err() == nil && len(got) == 0 {
		runtime.Gosched()
	}
	if err := errors.Join(held.Unlock(ctx), <-got); err != nil {
		t.Error(err)
	}
}

func wantNoRefusal(t *testing.T, servers []*redistest.Server) {
	t.Helper()
	for _, s := range servers {
		for entry := range s.Do("ACL", "LOG").All() {
			t.Errorf("%s refused %s", s.Addr(), entry)
		}
	}
}
