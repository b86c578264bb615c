// Package resp encodes and decodes the Redis serialization protocol: every type of RESP2 and RESP3.
//
// A [Reader] reads whole values from an io.Reader. A [Value] is complete when Read returns, so a
// failed conversion never leaves the stream out of step:
//
//	r := resp.NewReader(nc, resp.Limits{})
//	v, err := r.Read()
//	if err != nil {
//		return err // the connection is unusable
//	}
//	if err := v.Err(); err != nil {
//		return err // the server's error reply; the connection is fine
//	}
//	n, err := v.Int()
//
// A null is a value ([Value.IsNull]), and so is an error reply inside an array. Conversions give
// the same result in both versions of the protocol: [Value.Pairs] walks a RESP3 map and the flat
// array of RESP2 alike, and [Value.Float] accepts a RESP3 double and the string that RESP2 sends.
//
// [As] converts a whole reply to a type of the program, [Maybe] if the key may be missing, and
// [Fields] does the reverse for a command.
//
// [AppendCommand] encodes a command at the end of a buffer. [Cmd] makes a [Command], encoded once
// and sent as often as needed.
//
// A Reader does not trust its peer:
//
//   - Invalid input returns a [*SyntaxError], an oversized reply a [*LimitError]. No input panics.
//   - Memory grows with the bytes received, not with the lengths announced.
//
// The package uses no network, no clock and no goroutine. A Reader belongs to one goroutine at a
// time; values and commands are immutable and safe to share.
package resp
