// Package pipeline carries the commands of many callers over a connection, and the replies back.
//
//	s := pipeline.NewSession(nc, nc, limits) // connect; then the handshake, on s.Conn and s.Reader
//	l := pipeline.New(s, pipeline.Config{Timeout: 5 * time.Second}, owner, &wg)
//	v, sent, err := l.Do(ctx, pipeline.Request{Encoded: b}, pipeline.Text{})
//	l.Fail(errClosed)
//	wg.Wait()
//
// The package knows bytes, replies and time. It knows no command except PING, no pool and no repetition: package conn
// dials, refuses commands, repeats them and decides how many Links there are.
//
// # Where to find what
//
//   - link.go: the Link and its front door: Do, DoBatch, Post, Drain.
//   - queue.go: the commands of a Link, from their encoding to their answer.
//   - fail.go: the end of a Link.
//   - write.go: a caller appends its command, and becomes the writer of all pending commands if nobody writes.
//   - backlog.go: when to hold commands back, because callers leave before the answers.
//   - large.go: a large argument is written from the caller's memory; see Text.
//   - read.go: the loop of the reader, which hands out replies in the order of the commands.
//   - deadlines.go, silence.go: the timer of a Link: overdue answers, PINGs, the silence of the server.
//   - session.go: the connection before a Link takes it over, and the source of bytes below the parser.
//   - beneath.go: the connection beneath TLS: received bytes not decrypted yet.
//   - socket_*.go: system calls on the kernel's socket: unread bytes, and writes without blocking.
//   - yield.go: when to let other goroutines run before a write or a read.
//   - poll_unix.go: when the reader polls, since the runtime of a busy process rarely does.
//
// # Ownership
//
// A Link has a reader, a timer, and a second writer if a caller must not block. The WaitGroup given to New counts these
// goroutines. All end soon after the first Fail, by the caller or by the Link itself. The Link then completes all calls
// and tells its Owner.
package pipeline
