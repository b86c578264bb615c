package locks

import (
	"context"
	"fmt"
	"time"

	"github.com/lockwire/lockwire/bench/measure"
)

// background is the context of all calls. It can end, like the contexts of servers, but does not.
var background, _ = context.WithCancel(context.Background())

// Lease is how long the server keeps a lock whose holder has died, where a library lets one choose.
const Lease = 30 * time.Second

// Client is a connected library.
type Client interface {
	// Locker returns the lock with a name for a single goroutine.
	Locker(name string) (Locker, error)
	Close()
}

// Locker is a goroutine's lock.
type Locker interface {
	Lock() (Held, error) // waits without a limit
}

// Held is a held lock. Implementations are as large as a pointer, so that measuring allocates nothing.
type Held interface {
	Unlock() error
}

// Open connects. callers is the number of goroutines that will use the client.
type Open func(env measure.Env, callers int) (Client, error)

// OwnNames measures Lock and Unlock of callers with a name each. An operation is a pair.
func OwnNames(open Open, callers int) measure.Work {
	return func(env measure.Env) (measure.Report, error) {
		client, err := open(env, callers)
		if err != nil {
			return measure.Report{}, err
		}
		defer client.Close()
		return measure.Callers(env, callers, 1, func(i int) (func() error, error) {
			l, err := client.Locker(fmt.Sprint("bench:lock:", i))
			if err != nil {
				return nil, err
			}
			return func() error {
				held, err := l.Lock()
				if err != nil {
					return err
				}
				return held.Unlock()
			}, nil
		})
	}
}
