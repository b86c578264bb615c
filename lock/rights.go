package lock

import (
	_ "embed"
	"errors"
	"strings"
	"sync"

	"github.com/lockwire/lockwire/resp"
	"github.com/lockwire/lockwire/script"
)

// A user who may not subscribe to the channels of locks, or not publish on them, which is so by default since Redis 7.0, has locks that
// work and waiters that are woken by nobody. The server says so to the waiter, but to the holder only if it is asked: a release goes on
// when it cannot publish.

//go:embed all_publish.lua
var allPublish string

var publishScript = &lazy[*script.Script]{make: func() *script.Script { return script.New(allPublish) }}

// rights notes about which channels the Logger has been told.
type rights struct {
	mu         sync.Mutex
	asked      map[string]bool // by rule: whether publishing is allowed
	subscribed map[string]bool // by rule: that subscribing is not
}

// first reports whether rule is new to set, and puts it there.
func (r *rights) first(set *map[string]bool, rule string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if (*set)[rule] {
		return false
	}
	if *set == nil {
		*set = make(map[string]bool)
	}
	(*set)[rule] = true
	return true
}

// rule is the rule of an ACL that allows the channels of t and of all locks that have the same prefix.
func (t *target) rule() string {
	end := strings.IndexAny(t.channel, ":{")
	if t.channel[end] == ':' {
		end++
	}
	return "&" + t.channel[:end] + "*"
}

// checkPublishing finds out, once for each prefix, whether the user may wake the waiters of t, if there is a Logger to be told. Nobody waits
// for that.
func (c *Client) checkPublishing(t *target) {
	if c.cfg.Logger == nil || t.kind.silent {
		return
	}
	rule := t.rule()
	if !c.rights.first(&c.rights.asked, rule) {
		return
	}
	c.background(func() {
		v, err := publishScript.get().Run(c.life, c.server, []string{t.name, t.channel}, c.publishing(t))
		if err != nil || v.IsNull() {
			return
		}
		if may, err := v.Bool(); err == nil && !may {
			c.warn("the user may not publish on the channels of locks: waiters are not woken by releases, and look now and then",
				"missing", "ACL rule "+rule)
		}
	})
}

// noteRefusal tells the Logger, once for each prefix, if err says that the user may not subscribe to the channel of t.
func (c *Client) noteRefusal(t *target, err error) {
	if errors.Is(err, resp.ErrNoPerm) && c.rights.first(&c.rights.subscribed, t.rule()) {
		c.warn("the user may not subscribe to the channels of locks: waiters are not woken, and look now and then",
			"missing", "ACL rule "+t.rule(), "error", err)
	}
}
