// Package remote is a client's knowledge of its server, and its requests to the server. A file uses only files of the same row and of rows
// above:
//
//	the server   remote.go (where a key is), parts.go (work divided by servers), context.go
//	knowledge    clocks.go, identity.go (the process behind the address), headcount.go and replicas.go (its replicas), channels.go (how waiters
//	             are woken)
//	requests     call.go (a script), apart.go (while its slot migrates), acked.go (a script followed by WAIT)
//
// No file knows a lease, an owner or a waiter. Any number of goroutines may use a value of any type here, except a [Call] and
// an [AckedDoer], which belong to a single request.
package remote

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/netfail"
	"github.com/lockwire/lockwire/lock/internal/logs"
	"github.com/lockwire/lockwire/resp"
)

// Spread is what a client asks of a Server of several servers.
type Spread interface {
	// Route names the server of a key.
	Route(key string) string
	// Slot returns the hash slot of a key.
	Slot(key string) int
	// SuccessionOf returns other nodes' information about the server with the given id.
	SuccessionOf(ctx context.Context, id string, since time.Time) (conn.Succession, error)
}

// Failover is what a client asks of a Server with replicas.
type Failover interface {
	Succession(ctx context.Context, key string, since time.Time) (conn.Succession, error)
}

// Server is the server of a client. All fields are constant.
type Server struct {
	Doer     conn.Doer // carries every request
	Spread   Spread    // nil for a single server
	Failover Failover  // nil if no replica ever replaces a server
	Log      *logs.Log
}

// Route returns the server of name; "" with a single server.
func (s *Server) Route(name string) string {
	if s.Spread == nil {
		return ""
	}
	return s.Spread.Route(name)
}

// SlotOf returns the hash slot of name; 0 with a single server.
func (s *Server) SlotOf(name string) int {
	if s.Spread == nil {
		return 0
	}
	return s.Spread.Slot(name)
}

// Lock is a lock as its server sees it.
type Lock struct {
	Name     string
	KindName string // for the log
	Channel  string
	Line     string // the key of the line of waiting processes; "" for none
	Silent   bool   // no release is published
	Queued   bool   // each waiter has a channel of its own
	Readers  bool   // the lease of each reader is a key of its own
	Message  string // wakes the waiters on Channel
}

// rule returns the ACL rule that allows the channels of l and of all locks with the same prefix.
func (l *Lock) rule() string {
	end := strings.IndexAny(l.Channel, ":{")
	if l.Channel[end] == ':' {
		end++
	}
	return "&" + l.Channel[:end] + "*"
}

// maxKnown limits the servers remembered.
const maxKnown = 64

// TryAgain reports whether a server executed nothing because a migrating slot has its keys on two nodes.
func TryAgain(err error) bool { return errors.Is(err, resp.ErrTryAgain) && !Uncertain(err) }

// Asks reports whether a server executed nothing because the key has moved with a slot that migrates: another server has the key, and the same
// server has to be asked for the next one.
func Asks(err error) bool { return errors.Is(err, resp.ErrAsk) && !Uncertain(err) }

// Moved reports whether a server executed nothing because the slot is another server's.
func Moved(err error) bool { return errors.Is(err, resp.ErrMoved) && !Uncertain(err) }

// Uncertain reports whether the server may have run the request that returned err, or a part of its script.
func Uncertain(err error) bool {
	if errors.Is(err, conn.ErrUncertain) {
		return true
	}
	if reply, answered := errors.AsType[resp.Error](err); answered {
		return netfail.DeniedInside(reply)
	}
	return !conn.SafeToRetry(err)
}

// Final reports whether err, of a release or an undo, would be the same at every repeat. A server that is out of
// memory or has lost its replicas may accept a later repeat.
func Final(err error) bool {
	if Uncertain(err) {
		return false
	}
	reply, answered := errors.AsType[resp.Error](err)
	if !answered {
		return errors.Is(err, conn.ErrClosed)
	}
	return netfail.Denied(reply) || WrongType(reply)
}

// Hopeless reports whether a release or an undo that returned err is not to be repeated. A missing right, which is final for a
// question, may come back.
func Hopeless(err error) bool { return Final(err) && !Denied(err) }

// Denied reports whether a server executed nothing of a request because the user lacks a right.
func Denied(err error) bool { return netfail.Denied(err) && !netfail.DeniedInside(err) }

// WrongType reports whether reply is a WRONGTYPE error, in the wording of any server.
func WrongType(reply resp.Error) bool {
	return strings.Contains(string(reply), string(resp.ErrWrongType)+" ")
}
