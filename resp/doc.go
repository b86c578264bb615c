// Package resp turns bytes into values and back: the Redis serialization
// protocol in both its versions, RESP2 and RESP3, every type of it.
//
// A [Reader] reads one whole [Value] at a time from an io.Reader. Nothing looks
// at a value before all of it has been read, so converting it to what the
// caller wants can fail without the stream going out of step:
//
//	r := resp.NewReader(nc, resp.Limits{})
//	v, err := r.Read()
//	if err != nil {
//		return err // the connection is of no further use
//	}
//	if err := v.Err(); err != nil {
//		return err // the server's error reply; the connection is fine
//	}
//	n, err := v.Int()
//
// An error reply inside an array is a value like any other. A null is a value
// too, found by [Value.IsNull]. Conversions give the same answer whichever
// version of the protocol the server speaks: a map of RESP3 and the flat array
// that RESP2 has instead are walked alike by [Value.Pairs], and a double is read
// from the string that RESP2 makes of it.
//
// Commands go the other way: [AppendCommand] encodes one at the end of a buffer
// and [Cmd] makes a [Command], encoded once, that may be sent many times.
//
// A Reader believes nothing it reads. What is not RESP is a [*SyntaxError], what
// is too large a [*LimitError], memory is taken only for bytes that have
// arrived, and no input panics. The package knows no network, no clock and no
// goroutine. A Reader belongs to one goroutine at a time; values and commands
// are immutable and may be shared.
package resp
