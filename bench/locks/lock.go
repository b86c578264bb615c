package locks

import (
	"context"
	"fmt"
	"time"

	"github.com/lockwire/lockwire/bench/measure"
)

// background is what all calls are made under. It can end, as the contexts of servers do, but does not.
var background, _ = context.WithCancel(context.Background())

// Lease is how long the server keeps a lock whose holder has died, where a library lets one choose.
const Lease = 30 * time.Second

// Client is one library, connected.
type Client interface {
	// Locker returns the lock of this name for one goroutine.
	Locker(name string) (Locker, error)
	Close()
}

// Locker is one goroutine's lock.
type Locker interface {
	Lock() (Held, error) // waits as long as it takes
}

// Held is a lock that is held. Implementations are as large as a pointer, so that measuring allocates nothing.
type Held interface {
	Unlock() error
}

// Open connects. Callers says how many goroutines will use it.
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
