package leader

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/lock"
	"github.com/lockwire/lockwire/resp"
	"github.com/lockwire/lockwire/script"
)

//go:embed leader_publish.lua
var publishSource string

//go:embed leader_withdraw.lua
var withdrawSource string

var publishScript, withdrawScript = script.New(publishSource), script.New(withdrawSource)

// Leader is the leader according to the server.
type Leader struct {
	Owner     string        // the owner of the lock: the id of the lock.Client, a colon, and a number
	Token     int64         // the fencing token of this term
	Remaining time.Duration // the remaining lease, between two renewals
	// Address and Since are published by the leader: Config.Address, and the beginning of its term by the
	// server's clock. Both are zero for an instant at the beginning of a term, and for a holder of the lock without
	// Run.
	Address string
	Since   time.Time
}

// Observe asks the server for the leader, and returns the zero Leader if nobody leads. The answer may be out of date when
// Observe returns; resources compare tokens to be certain.
func Observe(ctx context.Context, locks *lock.Client, name string) (Leader, error) {
	info, err := locks.Fenced(name).Info(ctx)
	if err != nil || !info.Locked || len(info.Holders) == 0 {
		return Leader{}, err
	}
	l := Leader{Owner: info.Holders[0].Owner, Token: info.Token, Remaining: info.Remaining}
	key := recordKey(name)
	v, err := locks.Server().Send(ctx, resp.Cmd("HMGET", key, "owner", "address", "since", "token").On(key))
	if err != nil {
		return Leader{}, fmt.Errorf("leader: %w", err)
	}
	owner, err1 := v.At(0).Text()
	address, err2 := v.At(1).Text()
	since, err3 := v.At(2).Int()
	if owner == l.Owner && errors.Join(err1, err2, err3) == nil { // else the record is missing, or of another term
		l.Address, l.Since = address, time.UnixMilli(since)
		token, _ := v.At(3).Int() // missing in the record of an older version
		l.Token = max(l.Token, token)
	}
	return l, nil
}

// Watch yields the present leader, and the leader after each change, until ctx ends or the caller breaks the loop. Watch
// asks the server once in every, 0 for a second, and misses changes in between. Watch yields the error of a failed question
// and continues; the next answer comes then in any case.
func Watch(ctx context.Context, locks *lock.Client, name string, every time.Duration) iter.Seq2[Leader, error] {
	if every <= 0 {
		every = time.Second
	}
	return func(yield func(Leader, error) bool) {
		tick := time.NewTicker(every)
		defer tick.Stop()
		var last Leader
		for known := false; ; {
			now, err := Observe(ctx, locks, name)
			switch {
			case ctx.Err() != nil:
				return
			case err != nil:
				if known = false; !yield(Leader{}, err) {
					return
				}
			case !known || now.Owner != last.Owner || now.Address != last.Address || !now.Since.Equal(last.Since):
				if !yield(now, nil) {
					return
				}
				known, last = true, now
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	}
}

// recordKey is the key of the leader's address, in the hash slot of the lock.
func recordKey(name string) string {
	if strings.Contains(name, "{") {
		return "lockwire_leader:" + name
	}
	return "lockwire_leader:{" + name + "}"
}

// publish writes the address, unless the lease has been lost, within the time most.
func (e *election) publish(ctx context.Context, lease *lock.Lease, most time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	keys := []string{recordKey(e.name), e.name}
	v, err := e.publishTo(context.WithValue(ctx, conn.NoTryAgain, true), keys, lease)
	if errors.Is(err, resp.ErrTryAgain) && !errors.Is(err, conn.ErrUncertain) { // the slot migrates
		v, err = e.publishTo(ctx, keys[:1], lease)
	}
	if err != nil {
		return fmt.Errorf("leader: publish: %w", err)
	}
	if held, _ := v.Bool(); !held {
		return lock.ErrLost
	}
	return nil
}

func (e *election) publishTo(ctx context.Context, keys []string, lease *lock.Lease) (resp.Value, error) {
	return publishScript.Run(ctx, e.locks.Server(), keys, lease.Owner(), e.cfg.Address, lease.Token())
}

// withdraw deletes the published record. After a failure, Observe ignores the record.
func (e *election) withdraw(ctx context.Context, lease *lock.Lease) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), withdrawWait)
	defer cancel()
	_, _ = withdrawScript.Run(ctx, e.locks.Server(), []string{recordKey(e.name)}, lease.Owner())
}
