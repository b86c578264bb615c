package conn

import (
	"context"

	"github.com/lockwire/lockwire/resp"
)

// Doer sends commands. Pool, Conn and cluster.Cluster implement Doer. Many goroutines may call the methods at once.
type Doer interface {
	// Send sends one command and returns its reply. An error reply is returned as a resp.Error; a null reply is a
	// value.
	Send(ctx context.Context, cmd resp.Command) (resp.Value, error)

	// SendBatch sends commands over one connection, in order and without commands of other callers in between, and
	// returns the replies in the same order. Error replies are values. If the connection fails, SendBatch returns the
	// error and the known replies of the first commands.
	SendBatch(ctx context.Context, cmds []resp.Command) ([]resp.Value, error)
}
