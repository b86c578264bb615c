package resp

import (
	"strconv"
	"strings"
)

// Error is the text of an error reply without the leading type byte: "WRONGTYPE Operation against a
// key holding the wrong kind of value".
//
// An Error of one word matches every error reply with that prefix:
//
//	if errors.Is(err, resp.ErrNoScript) { ... }
type Error string

// Prefixes of error replies that matter to a client, for errors.Is. A program can define more in
// the same way: resp.Error("BUSYGROUP").
const (
	ErrAsk         = Error("ASK")         // the slot is being moved: send only this command to the named node
	ErrBusy        = Error("BUSY")        // a script has been running for too long
	ErrBusyGroup   = Error("BUSYGROUP")   // the consumer group exists
	ErrBusyKey     = Error("BUSYKEY")     // RESTORE: the key exists
	ErrClusterDown = Error("CLUSTERDOWN") // the cluster does not serve the slot at present
	ErrCrossSlot   = Error("CROSSSLOT")   // the keys belong to different hash slots
	ErrExecAbort   = Error("EXECABORT")   // a command of the transaction was refused
	ErrGeneral     = Error("ERR")         // the generic prefix
	ErrLoading     = Error("LOADING")     // the server is reading its data from disk
	ErrMasterDown  = Error("MASTERDOWN")  // the replica has lost its master
	ErrMisconf     = Error("MISCONF")     // writes are refused because saving to disk fails
	ErrMoved       = Error("MOVED")       // another node serves the slot
	ErrNoAuth      = Error("NOAUTH")      // authentication is required
	ErrNoPerm      = Error("NOPERM")      // the user lacks a permission
	ErrNoProto     = Error("NOPROTO")     // HELLO: unsupported protocol version
	ErrNoReplicas  = Error("NOREPLICAS")  // too few replicas for a write
	ErrNoScript    = Error("NOSCRIPT")    // EVALSHA: the server does not have the script
	ErrOOM         = Error("OOM")         // the server has reached its memory limit
	ErrReadOnly    = Error("READONLY")    // a write on a replica
	ErrTryAgain    = Error("TRYAGAIN")    // some keys of the command have moved to another node already
	ErrUnblocked   = Error("UNBLOCKED")   // CLIENT UNBLOCK ended a blocking command
	ErrWrongPass   = Error("WRONGPASS")   // wrong user name or password
	ErrWrongType   = Error("WRONGTYPE")   // the key holds another type
)

// Error returns the text.
func (e Error) Error() string { return string(e) }

// Prefix returns the first word of the text, by convention the class of the error. It is empty if
// the text is empty or begins with a space.
func (e Error) Prefix() string {
	word, _, _ := strings.Cut(string(e), " ")
	return word
}

// Is reports whether target is an Error equal to the prefix of e. It serves errors.Is.
func (e Error) Is(target error) bool {
	t, ok := target.(Error)
	return ok && t != "" && e.Prefix() == string(t)
}

// Class returns the prefix of the original error. Class and Prefix differ only for a command that
// failed inside a script on a server up to version 6.2, where a text with the prefix ERR surrounds
// the original error:
//
//	ERR Error running script (call to f_…): @user_script:1: @user_script: 1: -READONLY You can't…
//
// Here Class returns READONLY. Part of the script may have run before the failure, so the class
// alone does not make a repetition safe.
func (e Error) Class() string {
	const mark = "@user_script:"
	if !strings.HasPrefix(string(e), "ERR Error running script") {
		return e.Prefix()
	}
	_, rest, ok := strings.Cut(string(e), mark)
	for ok {
		rest = strings.TrimLeft(rest, " 0123456789")
		if !strings.HasPrefix(rest, ": ") {
			return e.Prefix()
		}
		rest, ok = strings.CutPrefix(rest[2:], mark)
	}
	word := Error(strings.TrimPrefix(rest, "-")).Prefix()
	if len(word) < 2 || strings.Trim(word, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != "" { // does not look like a prefix
		return e.Prefix()
	}
	return word
}

// Redirect is the target of a MOVED or ASK reply.
type Redirect struct {
	Slot int // hash slot, 0 to 16383

	// Host is a name or an IP address; an IPv6 address has no brackets. It is empty for the host of
	// the replying node, and "?" if the server does not know the host name: a client must not dial
	// "?".
	Host string

	Port int // 1 to 65535
}

// Redirect parses a MOVED or ASK reply. ok is false for any other error, and if the slot or the
// address is invalid.
func (e Error) Redirect() (r Redirect, ok bool) {
	prefix, rest, _ := strings.Cut(string(e), " ")
	if prefix != string(ErrMoved) && prefix != string(ErrAsk) {
		return Redirect{}, false
	}
	slot, addr, ok := strings.Cut(rest, " ")
	colon := strings.LastIndexByte(addr, ':')
	if !ok || colon < 0 || strings.Contains(addr, " ") {
		return Redirect{}, false
	}
	r.Host = addr[:colon]
	if n := len(r.Host); n > 2 && r.Host[0] == '[' && r.Host[n-1] == ']' {
		r.Host = r.Host[1 : n-1]
	}
	var valid bool
	r.Slot, ok = decimal(slot, 0, 16383)
	r.Port, valid = decimal(addr[colon+1:], 1, 65535)
	if !ok || !valid {
		return Redirect{}, false
	}
	return r, true
}

// decimal parses s. ok is false if s is not a number between lo and hi.
func decimal(s string, lo, hi uint64) (int, bool) {
	n, err := strconv.ParseUint(s, 10, 32)
	return int(n), err == nil && n >= lo && n <= hi
}

// SyntaxError reports input that is not RESP. It is fatal to the connection, because the beginning
// of the next value is unknown.
type SyntaxError struct {
	// Offset is the position of the error in the stream: the beginning of the invalid line, or the
	// offending position in a string.
	Offset int64

	// Reason describes the error without quoting the input.
	Reason string
}

// Error returns the reason and the offset.
func (e *SyntaxError) Error() string {
	return "resp: not RESP: " + e.Reason + " at offset " + strconv.FormatInt(e.Offset, 10)
}

// LimitError reports a reply that exceeds one of the [Limits]. It is as fatal to the connection as
// a SyntaxError.
type LimitError struct {
	Limit  string // "bulk", "line", "depth", "elements", "attributes" or "total"
	Max    int    // the limit
	Offset int64  // as in SyntaxError
}

// Error returns the limit and the offset.
func (e *LimitError) Error() string {
	return "resp: reply exceeds the limit of " + strconv.Itoa(e.Max) + " (" + e.Limit +
		") at offset " + strconv.FormatInt(e.Offset, 10)
}

// KindError reports a value that cannot be converted to the requested type.
type KindError struct {
	Kind Kind   // the value's kind
	Want string // the requested type: "an integer"
}

// Error names the kind and the requested type, never the value's content.
func (e *KindError) Error() string { return "resp: " + e.Kind.String() + " is not " + e.Want }
