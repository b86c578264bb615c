package lock

import (
	"context"
	_ "embed"
	"fmt"

	"github.com/lockwire/lockwire/resp"
	"github.com/lockwire/lockwire/script"
)

//go:embed fenced_acquire.lua
var fencedAcquire string

//go:embed fenced_handover.lua
var fencedHandover string

//go:embed fenced_info.lua
var fencedInfo string

var fencedKind = &lazy[*kind]{make: newFencedKind}

func newFencedKind() *kind {
	k := variant("fenced", reentrantKind.get())
	k.args, k.parse, k.token = fencedArgs, parseFenced, fencedToken
	k.acquire = script.New(fencedAcquire)
	k.info = script.New(fencedInfo)
	k.handover = script.New(fencedHandover)
	return k
}

func fencedToken(name string) string { return prefixName(tokenPrefix, name) }

func fencedArgs(c *Client, _ request) []any { return []any{c.cfg.PlainTokens} }

// Fenced is Redisson's RFencedLock (getFencedLock): a [Reentrant] lock whose every holder gets a fencing token, larger than
// all before it. A lock alone cannot keep a holder that was stopped for longer than its lease from going on with its work;
// the resource can, if it is given the token, [Lease.Token], and refuses one that is smaller than the largest it has seen.
// See package fence.
//
// A token is the last one and 1, or the server's time in microseconds if that is more. So tokens go on growing when the
// counter was lost together with the server's data, unless the clock of the server that takes over is behind by more than
// the time that passed. Redisson's clients count on from there; see [Config.PlainTokens].
type Fenced struct{ Handle }

// Fenced returns the lock of that name. What is wrong with a name is said by the first call that uses it.
func (c *Client) Fenced(name string) *Fenced { return &Fenced{c.handle(fencedKind.get(), name)} }

// Token returns the last token that was given out, whether or not its holder still has the lock, and 0 if there was none.
func (f *Fenced) Token(ctx context.Context) (int64, error) {
	info, err := f.Info(ctx)
	return info.Token, err
}

func parseFenced(v resp.Value) (Info, error) {
	token, err := v.At(0).Int()
	if err != nil {
		return Info{}, fmt.Errorf("lock: info: token: %w", err)
	}
	info, err := parseHolders(v, 1)
	info.Token = token
	return info, err
}
