package lock

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strconv"

	"github.com/lockwire/lockwire/resp"
	"github.com/lockwire/lockwire/script"
)

//go:embed latch_acquire.lua
var countdownAcquire string

//go:embed latch_set.lua
var countdownSet string

//go:embed latch_down.lua
var countdownDown string

//go:embed latch_delete.lua
var countdownDelete string

var latchKind = &lazy[*kind]{make: newLatchKind}

func newLatchKind() *kind {
	return &kind{
		name:    "latch",
		channel: countdownChannel,
		owner:   func(*Client, request) string { return "" },
		others:  everybody,
		unowned: true,
		acquire: script.New(countdownAcquire),
		more: map[string]*script.Script{
			"set":    script.New(countdownSet),
			"down":   script.New(countdownDown),
			"delete": script.New(countdownDelete),
		},
	}
}

// CountDownLatch is Redisson's RCountDownLatch (getCountDownLatch): a count, and who waits until it is 0. Where there is no
// count, it is 0. A CountDownLatch never changes, and may be shared by any number of goroutines.
//
// Its name must have no braces, which those of all other kinds may: Redisson makes the name of the latch's channel from them in
// a way that a Redis cluster does not put up with.
type CountDownLatch struct{ handle Handle }

// CountDownLatch returns the latch of that name, which is its key on the server. What is wrong with a name is said by the
// first call that uses it.
func (c *Client) CountDownLatch(name string) *CountDownLatch {
	l := &CountDownLatch{c.handle(latchKind.get(), name)}
	l.handle.err = checkCountdown(name)
	return l
}

// Name returns the latch's name.
func (l *CountDownLatch) Name() string { return l.handle.Name() }

// TrySetCount sets the count to n, 1 at least, and reports false if there is one already. It waits for the server's confirmation
// for as long as ctx allows, and 10 s at most; then it returns [ErrUncertain] and goes on in the background. It reports true
// to the call that has set the count even when that had to be sent twice.
func (l *CountDownLatch) TrySetCount(ctx context.Context, n int) (bool, error) {
	if l.handle.err != nil {
		return false, l.handle.err
	}
	if err := checkCount("a count", n, 1); err != nil {
		return false, err
	}
	set, err := l.handle.client.change(ctx, l.handle.target, "set", false, n)
	return set == 1, err
}

// CountDown counts down by one, and releases all who wait if that makes the count 0. It does nothing if the count is 0.
//
// It works under a cancelled context too, and waits for the server's confirmation for 10 s at most. It returns
// [ErrUncertain] if there is none by then, and goes on repeating in the background: the server counts once, however often
// it is asked.
func (l *CountDownLatch) CountDown(ctx context.Context) error {
	if l.handle.err != nil {
		return l.handle.err
	}
	_, err := l.handle.client.change(ctx, l.handle.target, "down", true)
	return err
}

// Count returns the count; 0 where there is none.
func (l *CountDownLatch) Count(ctx context.Context) (int, error) {
	if l.handle.err != nil {
		return 0, l.handle.err
	}
	c := l.handle.client
	v, err := c.server.Send(c.patient(ctx), resp.Cmd("GET", l.Name()).On(l.Name()))
	if err != nil {
		return 0, serverError(err)
	}
	if v.IsNull() {
		return 0, nil
	}
	text, err := v.Text()
	n, bad := strconv.Atoi(text)
	if err = errors.Join(err, bad); err != nil {
		return 0, fmt.Errorf("%w: not a count", ErrWrongType)
	}
	return max(0, n), nil
}

// Wait waits for the count to be 0, for as long as ctx allows: it returns nil when that is so, also because nobody has set a
// count, or the latch was deleted or has expired. When ctx ends first, the error is its error and its cause together with
// [ErrNotAcquired], or, if the server has not answered once, what went wrong. While it waits it puts up with a server that
// cannot be reached for as long as the client's lease; after that it returns the error. A count that is 0 for no longer than
// a moment, and is set again, may be missed.
func (l *CountDownLatch) Wait(ctx context.Context) error {
	_, err := l.handle.Lock(ctx)
	return err
}

// Delete deletes the latch and reports false if there is none. It releases all who wait, as if the count were 0: with Redisson's
// delete they would wait for ever. How it waits is as in TrySetCount.
func (l *CountDownLatch) Delete(ctx context.Context) (bool, error) {
	if l.handle.err != nil {
		return false, l.handle.err
	}
	deleted, err := l.handle.client.change(ctx, l.handle.target, "delete", false)
	return deleted == 1, err
}
