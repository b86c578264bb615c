package lock

import (
	"context"

	"github.com/lockwire/lockwire/lock/internal/kinds"
	"github.com/lockwire/lockwire/resp"
)

var fencedKind = &kinds.Lazy[*kind]{Make: func() *kind {
	k := variant(kinds.Fenced.Get(), reentrantKind.Get())
	k.args, k.parse = fencedArgs, parseFenced
	return k
}}

// fencedArgs returns -1 for plain tokens, else the TokenLife in ms, and the token of the Owner's holds, 0 for none.
func fencedArgs(w wish) []any {
	if w.plainTokens {
		return []any{-1, w.token}
	}
	return []any{w.tokenLife.Milliseconds(), w.token}
}

// Fenced is Redisson's RFencedLock (getFencedLock): a [Reentrant] lock that gives each holder a fencing token, larger
// than all earlier tokens. A lock alone cannot stop a holder that was suspended for longer than its lease from
// continuing its work. The resource can: pass [Lease.Token] to the resource, and let the resource refuse a token
// smaller than the largest seen. See package fence.
//
// A new token is the last token plus 1, or the server's time in microseconds if larger. Tokens therefore keep growing
// after the server has lost the counter with its data, unless the new server's clock is behind by more than the time
// that has passed. Redisson's clients continue counting from there; see [Config.PlainTokens]. The counter is a key that the
// server keeps for ever, unless [Config.TokenLife] is set.
//
// The holds of an [Owner] share a token, drawn by the first Fenced hold.
type Fenced struct{ Handle }

// Fenced returns the lock with the given name. An invalid name is reported by the first method that uses the lock,
// not here.
func (c *Client) Fenced(name string) *Fenced { return &Fenced{c.handle(fencedKind.Get(), name)} }

// Token returns the last token issued, whether or not its holder still has the lock, and 0 if no token was issued.
func (f *Fenced) Token(ctx context.Context) (int64, error) {
	info, err := f.Info(ctx)
	return info.Token, err
}

func parseFenced(v resp.Value) (Info, error) {
	e := elements{of: v}
	token := e.number()
	info := e.holders()
	info.Token = token
	return e.done(info)
}
