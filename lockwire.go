package lockwire

import (
	"context"
	"errors"
	"strings"

	"github.com/lockwire/lockwire/cluster"
	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/lock"
)

// Config configures a [Client]. The zero Config is ready to use.
type Config struct {
	// Lock configures the locks.
	Lock lock.Config

	// Conn, if set, is called once with the settings given by the URL and may change them: a private authority for TLS,
	// Credentials, a Trace. In a cluster the settings are those of the connections to each node. Open refuses settings
	// that conn.Open or cluster.Open would refuse.
	Conn func(*conn.Config)

	// Logger receives the warnings of connections and locks, unless Lock or Conn sets another Logger. nil is silent.
	Logger conn.Logger
}

// Client has the locks of a server, of a server under Sentinel or of a cluster, and the connection to the server. Any
// number of goroutines may use a Client at once. Close a Client that is no longer needed.
type Client struct {
	*lock.Client
	server server
}

// server is a *conn.Pool or a *cluster.Cluster.
type server interface {
	lock.Server
	Close() error
}

// Open connects to the server or cluster at url:
//
//	redis://user:password@host:6379/0             one server
//	unix://user:password@/run/redis.sock?db=0     one server on this machine
//	redis-sentinel://host:26379,host:26379/master the master under Sentinel
//	redis-cluster://host:6379,host:6380           a cluster
//
// The schemes rediss, rediss-sentinel and rediss-cluster use TLS; valkey and valkeys may replace redis and rediss.
// [conn.ParseURL] and [cluster.ParseURL] describe the parameters. No error contains a password.
//
// Open returns when a connection is ready, or an error once the attempts are used up or ctx ends. The Client does not
// depend on ctx afterwards.
//
// A program for one kind of server can do without Open and use conn.Open or cluster.Open with lock.New; its binary is
// then smaller.
func Open(ctx context.Context, url string, cfg Config) (*Client, error) {
	if cfg.Lock.Logger == nil {
		cfg.Lock.Logger = cfg.Logger
	}
	s, err := open(ctx, url, cfg)
	if err != nil {
		return nil, err
	}
	locks, err := lock.New(s, cfg.Lock)
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return &Client{Client: locks, server: s}, nil
}

func open(ctx context.Context, url string, cfg Config) (server, error) {
	scheme, _, _ := strings.Cut(url, ":")
	if strings.HasSuffix(strings.ToLower(scheme), "-cluster") {
		settings, err := cluster.ParseURL(url)
		if err != nil {
			return nil, err
		}
		cfg.change(&settings.Node)
		c, err := cluster.Open(ctx, settings)
		if err != nil {
			return nil, err
		}
		return c, nil
	}
	settings, err := conn.ParseURL(url)
	if err != nil {
		return nil, err
	}
	cfg.change(&settings)
	pool, err := conn.Open(ctx, settings)
	if err != nil {
		return nil, err
	}
	return pool, nil
}

// change applies Logger and Conn to the settings from a URL.
func (cfg *Config) change(settings *conn.Config) {
	settings.Logger = cfg.Logger
	if cfg.Conn != nil {
		cfg.Conn(settings)
	}
}

// Server returns the connection to the server, for other commands and for package pubsub: a [*conn.Pool], or a
// [*cluster.Cluster]. The Client owns the connection and closes it.
func (c *Client) Server() lock.Server { return c.server }

// Close closes the locks as [lock.Client.Close] does, then the connection. An Unlock after Close fails, and its lock
// stays taken until the lease ends. Close may be called more than once and then returns the same error.
func (c *Client) Close() error {
	return errors.Join(c.Client.Close(), c.server.Close())
}

// CloseContext is Close with ctx in place of the limit of one second, as [lock.Client.CloseContext].
func (c *Client) CloseContext(ctx context.Context) error {
	return errors.Join(c.Client.CloseContext(ctx), c.server.Close())
}
