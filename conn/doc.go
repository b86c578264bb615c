// Package conn is connections to a Redis or Valkey server: dialling, TLS and the handshake, one pipelined connection
// shared by many callers, and a pool of such connections.
//
//	cfg, err := conn.ParseURL("redis://:secret@db.example:6379/0")
//	if err != nil {
//		return err
//	}
//	pool, err := conn.Open(ctx, cfg)
//	if err != nil {
//		return err
//	}
//	defer pool.Close()
//	v, err := pool.Do(ctx, "SET", "greeting", "hello", "NX", "PX", 30_000)
//
// # Replies and errors
//
// A reply is a [resp.Value], a null among them. Do and Send return an error reply of the server as an error, in which
// errors.Is finds it by its prefix (resp.ErrWrongType, say); in the replies of a batch it is a value. Everything else
// that can go wrong is an [*Error], and it answers what a caller must decide: [ErrNotSent] is in it if the command
// certainly did not run, [ErrUncertain] if it was sent and its answer never came. [SafeToRetry] tells the two apart.
//
// What certainly did not run is repeated without asking, within [Retry]: what was not sent, and what the server says
// it did not execute. Nothing else is ever sent twice.
//
// # Contexts
//
// A ctx bounds every wait: for a connection, for the network, for the reply. It does not undo what has been sent: the
// command of a caller who has left may still run, its reply is read and dropped, and the connection lives on.
//
// # Concurrency
//
// A [Pool], a [Conn] and all but Read of a [Stream] may be used by many goroutines at once. Commands of one goroutine
// that it sends one after the other, having seen each reply, run in that order; commands sent at the same time run in
// any order, but where they bear the same routing key ([resp.Command.On]) they go the same way, in the order of the
// calls. Close joins whatever the package has started.
//
// # Without TLS
//
// A program that is built with the tag lockwire_notls does not have TLS in it, which makes it a third smaller. To ask for
// TLS is an error then, in a Config and in a URL.
//
// # What it does not do
//
// It knows neither Lua, nor channels, nor hash slots: the packages script, pubsub and cluster do. It keeps no
// addresses, but that of the master where sentinels name it: a name is resolved at every dial. It never puts a password, a key or an argument into an error or a log.
package conn
