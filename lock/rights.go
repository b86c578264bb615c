package lock

import (
	"errors"
	"strings"
	"sync"

	"github.com/lockwire/lockwire/lock/internal/kinds"
	"github.com/lockwire/lockwire/resp"
)

// Since Redis 7.0 a new user may by default neither subscribe to channels nor publish on them. Locks of such a user work, but
// their waiters are never woken. The server reports a refused subscription. A release without the right to publish
// succeeds silently, so the client asks the server about the right.

// rights records the channels already checked or logged.
type rights struct {
	mu         sync.Mutex
	asked      map[string]bool // rules with a checked right to publish
	subscribed map[string]bool // rules with a logged refusal to subscribe
}

// first adds rule to set and reports whether rule is new.
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

// rule returns the ACL rule that allows the channels of t and of all locks with the same prefix.
func (t *target) rule() string {
	end := strings.IndexAny(t.channel, ":{")
	if t.channel[end] == ':' {
		end++
	}
	return "&" + t.channel[:end] + "*"
}

// checkPublishing checks in the background, once per prefix, the user's right to publish on the channels of t, and logs a
// missing right. Without a Logger checkPublishing does nothing.
func (c *Client) checkPublishing(t *target) {
	if c.cfg.Logger == nil || t.kind.silent {
		return
	}
	rule := t.rule()
	if !c.rights.first(&c.rights.asked, rule) {
		return
	}
	c.background(func() {
		v, err := kinds.Publish().Run(c.life, c.server, []string{t.name, t.channel}, c.publishing(t))
		if err != nil || v.IsNull() {
			return
		}
		if may, err := v.Bool(); err == nil && !may {
			c.warn("the user may not publish on the channels of locks: waiters are not woken by releases, and look now and then",
				"missing", "ACL rule "+rule)
		}
	})
}

// noteRefusal logs, once per prefix, an err caused by a missing right to subscribe to the channel of t.
func (c *Client) noteRefusal(t *target, err error) {
	if errors.Is(err, resp.ErrNoPerm) && c.rights.first(&c.rights.subscribed, t.rule()) {
		c.warn("the user may not subscribe to the channels of locks: waiters are not woken, and look now and then",
			"missing", "ACL rule "+t.rule(), "error", err)
	}
}
