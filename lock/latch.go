package lock

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/lockwire/lockwire/lock/internal/kinds"
	"github.com/lockwire/lockwire/lock/internal/remote"
	"github.com/lockwire/lockwire/resp"
)

var latchKind = &kinds.Lazy[*kind]{Make: func() *kind {
	return &kind{
		Kind:       kinds.CountDown.Get(),
		owner:      func(int) string { return "" },
		afterGrant: wakeAll,
	}
}}

// CountDownLatch is Redisson's RCountDownLatch (getCountDownLatch): a count on the server, and callers waiting for the count
// to reach 0. A missing count is 0. A CountDownLatch is immutable, and many goroutines may share it.
//
// Unlike other kinds, a latch must not have braces in its name: Redisson would put its channel in another hash slot than
// its key.
type CountDownLatch struct{ handle Handle }

// CountDownLatch returns the latch with the given name. The name is the latch's key on the server. An invalid name is
// reported by the first method that uses it, not here.
func (c *Client) CountDownLatch(name string) *CountDownLatch {
	l := &CountDownLatch{c.handle(latchKind.Get(), name)}
	l.handle.err = c.about(name, checkCountdown(name))
	return l
}

// Name returns the latch's name.
func (l *CountDownLatch) Name() string { return l.handle.Name() }

// TrySetCount sets the count to n, at least 1, and reports false if the latch already has a count. TrySetCount waits for the
// server's confirmation until ctx ends, at most 10 s; then it returns [ErrUncertain] and goes on in the background.
// The call reports true even if its request had to be sent twice.
func (l *CountDownLatch) TrySetCount(ctx context.Context, n int) (bool, error) {
	set, err := l.handle.setCount(ctx, "set", n, 1)
	return set == 1, err
}

// CountDown lowers the count by 1 and wakes all waiters when the count reaches 0. CountDown does nothing if the count is 0.
//
// CountDown works under a cancelled context too, and waits at most 10 s for the server's confirmation. Then it returns
// [ErrUncertain] and repeats the request in the background. The server counts repeats of a request only once.
func (l *CountDownLatch) CountDown(ctx context.Context) error {
	_, err := l.handle.change(ctx, "down", true)
	return err
}

// Count returns the count; 0 if the latch has no count.
func (l *CountDownLatch) Count(ctx context.Context) (int, error) {
	if l.handle.err != nil {
		return 0, l.handle.err
	}
	c := l.handle.client
	v, err := c.server.Send(remote.Patient(ctx), resp.Cmd("GET", l.Name()).On(l.Name()))
	if err != nil {
		return 0, c.failed(l.Name(), err)
	}
	if v.IsNull() {
		return 0, nil
	}
	text, err := v.Text()
	n, bad := strconv.Atoi(text)
	if err = errors.Join(err, bad); err != nil {
		return 0, c.about(l.Name(), fmt.Errorf("%w: not a count", ErrWrongType))
	}
	return max(0, n), nil
}

// Wait blocks until the count is 0 or ctx ends. Wait returns nil for a count of 0, and also if the latch was never set, was
// deleted or has expired. Wait may miss a count that is 0 only for a moment and is then set again.
//
// If ctx ends first, the error matches ctx.Err, the cause and [ErrNotAcquired]; if the server never answered, the
// error has the failure instead of ErrNotAcquired. Wait tolerates an unreachable server for as long as [Handle.Lock] does;
// then it returns the error.
func (l *CountDownLatch) Wait(ctx context.Context) error {
	_, err := l.handle.Lock(ctx)
	return err
}

// Delete deletes the latch and reports false if the latch does not exist. Delete wakes all waiters, as a count of 0 does;
// with Redisson's delete, waiters would wait for ever. Delete waits for the confirmation like TrySetCount.
func (l *CountDownLatch) Delete(ctx context.Context) (bool, error) {
	deleted, err := l.handle.change(ctx, "delete", false)
	return deleted == 1, err
}
