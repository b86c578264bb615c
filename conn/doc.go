// Package conn connects to a Redis or Valkey server: dialing, TLS, the handshake, pipelined connections shared by many
// callers, and a pool of connections.
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
// A reply is a [resp.Value]; a null reply is a value, never an error. Do and Send return the server's error reply as an
// error, which errors.Is matches by prefix (resp.ErrWrongType, for example). In the replies of a batch an error reply is
// a value.
//
// For everyday tasks see the example Tasks:
//
//   - resp.As around a call converts the reply to a type of the program; resp.Maybe also reports a missing value.
//   - A [Queue] runs a batch and converts each of its replies.
//   - [Scan], [HScan], [XRange] and others are iterators. [Pool.Block] runs a blocking command.
//
// Every other failure is an [*Error] and tells the caller whether the command ran:
//
//   - [ErrNotSent]: the command did not run. No byte of the command was written.
//   - [ErrUncertain]: the command was sent and not answered. Whether the command ran is unknown.
//
// [SafeToRetry] tells the two cases apart. A Pool repeats a command within the limits of [Retry] if no byte was written,
// or if the server replied that the command was not executed. No other command is ever sent twice.
//
// # Contexts
//
// A ctx bounds every wait: for a connection, for the network, for the reply. The end of a ctx does not undo a command
// already sent. The command may still run; the package drops the reply and keeps the connection.
//
// # Concurrency
//
// Many goroutines may use a [Pool], a [Conn] and a [Stream] at once; only Read of a Stream is for one goroutine at a
// time. Commands run in order if the caller waits for each reply before sending the next command. Commands sent at the
// same time run in any order, except that a Pool sends all commands with the same routing key ([resp.Command.On]) over
// the same connection, in the order of the calls, until another connection takes its place: after a failure, and at
// Config.MaxAge. Close waits for every goroutine of the package to end.
//
// # Without TLS
//
// The build tag lockwire_notls leaves TLS out of the program, which makes a small program a third smaller. A Config or
// a URL with TLS is then an error.
//
// # Limits of the package
//
// Lua scripts, channels and hash slots belong to the packages script, pubsub and cluster. A host name is resolved at
// every dial; the only address remembered between dials is the address of the master named by sentinels. The package puts
// no password, key or argument into an error or a log. An error reply has the server's words, which may repeat an argument:
// only those of an unknown command are left out.
package conn
