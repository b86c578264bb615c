package lock

import (
	"context"
	"errors"

	"github.com/lockwire/lockwire/lock/internal/remote"
)

// Check asks the server whether the lock is still held. The request changes nothing on the server. Check returns:
//
//   - nil if the lock is held
//   - the result of Err if the lease is over; a [*LostError] matches [ErrWrongType] too if the key holds another type
//   - any other error if the server could not be asked
func (l *Lease) Check(ctx context.Context) error {
	if err := l.Err(); err != nil {
		return err
	}
	if l.group != nil {
		return l.group.check(ctx)
	}
	t := l.target
	answers, _ := renewals{l.client}.ask(remote.Patient(ctx), []*Lease{l}, checkOnly)
	outcome, err := answers[0].Outcome, answers[0].Err
	switch {
	case err != nil:
		return l.client.refused(t.name, err)
	case outcome < 0:
		l.denied(Taken, l.strange(ctx))
	case outcome == 0 && t.kind.permits: // the lease of a permit is not stored under the name of the lock
		l.denied(Forced, l.strange(ctx))
	case outcome == 0:
		l.denied(Forced, nil)
	}
	return l.Err()
}

// strange looks at the key of a lost lock. It returns [ErrWrongType] if the key does not hold a lock of its kind, else nil.
func (l *Lease) strange(ctx context.Context) error {
	if _, err := l.target.info(ctx, l.client.scripts); errors.Is(err, ErrWrongType) {
		return err
	}
	return nil
}
