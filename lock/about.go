package lock

import (
	"errors"
	"fmt"
	"strings"

	"github.com/lockwire/lockwire/resp"
)

// about is an error about a lock, named in its text.
type about struct {
	subject string
	err     error
}

func (e *about) Error() string { return e.subject + strings.TrimPrefix(e.err.Error(), "lock: ") }
func (e *about) Unwrap() error { return e.err }

// about names the lock in an error; nil stays nil. A node of a cluster that sends a client of a single server elsewhere is named
// too.
func (c *Client) about(name string, err error) error {
	if err == nil {
		return nil
	}
	if _, spread := c.server.(Spread); !spread && errors.Is(err, resp.ErrMoved) {
		err = fmt.Errorf("%w: the server is a node of a cluster, for cluster.Open or redis-cluster://", err)
	}
	return &about{subject(name, c.log.Shown(name)), err}
}

// refused is the error of a script or command about a lock.
func (c *Client) refused(name string, err error) error { return c.about(name, serverError(err)) }

// unnamed returns the error within one that names the lock.
func unnamed(err error) error {
	if e, ok := err.(*about); ok {
		return e.err
	}
	return err
}
