package resp

import (
	"strconv"
	"strings"
)

// Error is the text of an error reply, as the server wrote it, without the sign
// in front: "WRONGTYPE Operation against a key holding the wrong kind of value".
//
// An Error of one word stands for every error reply that begins with that word:
//
//	if errors.Is(err, resp.ErrNoScript) { ... }
type Error string

// The prefixes of error replies that a client acts upon, for errors.Is. A
// program may write others in the same way: resp.Error("BUSYGROUP").
const (
	ErrAsk         = Error("ASK")         // this slot is being moved: ask the other node once
	ErrBusy        = Error("BUSY")        // a script has been running for too long
	ErrBusyGroup   = Error("BUSYGROUP")   // the consumer group exists
	ErrBusyKey     = Error("BUSYKEY")     // RESTORE: the key exists
	ErrClusterDown = Error("CLUSTERDOWN") // the cluster does not serve this slot now
	ErrCrossSlot   = Error("CROSSSLOT")   // the keys belong to different hash slots
	ErrExecAbort   = Error("EXECABORT")   // a command of the transaction was refused
	ErrGeneral     = Error("ERR")         // none of the others
	ErrLoading     = Error("LOADING")     // the server is reading its data from disk
	ErrMasterDown  = Error("MASTERDOWN")  // a replica without its master
	ErrMisconf     = Error("MISCONF")     // writes are stopped, as saving fails
	ErrMoved       = Error("MOVED")       // another node serves this slot
	ErrNoAuth      = Error("NOAUTH")      // no AUTH yet
	ErrNoPerm      = Error("NOPERM")      // the user may not do this
	ErrNoProto     = Error("NOPROTO")     // HELLO: this version is not known
	ErrNoReplicas  = Error("NOREPLICAS")  // too few replicas for a write
	ErrNoScript    = Error("NOSCRIPT")    // EVALSHA: the script is not known
	ErrOOM         = Error("OOM")         // the memory limit of the server
	ErrReadOnly    = Error("READONLY")    // a write on a replica
	ErrTryAgain    = Error("TRYAGAIN")    // the keys are being moved between nodes
	ErrUnblocked   = Error("UNBLOCKED")   // a blocking command was ended from outside
	ErrWrongPass   = Error("WRONGPASS")   // wrong user name or password
	ErrWrongType   = Error("WRONGTYPE")   // the key holds another type
)

// Error returns the text.
func (e Error) Error() string { return string(e) }

// Prefix returns the first word of the text, which by convention is the class
// of the error. It is empty only where the text is, or begins with a space.
func (e Error) Prefix() string {
	word, _, _ := strings.Cut(string(e), " ")
	return word
}

// Is tells errors.Is that target is the prefix of e.
func (e Error) Is(target error) bool {
	t, ok := target.(Error)
	return ok && t != "" && e.Prefix() == string(t)
}

// Class returns the prefix of the error that really happened. That is Prefix,
// except where a server up to version 6.2 reports that a command inside a script
// failed: it hides the class in the middle of a text that begins with ERR,
//
//	ERR Error running script (call to f_…): @user_script:1: @user_script: 1: -READONLY You can't…
//
// for which Class returns READONLY. A script may have run in part before
// it failed so; whoever repeats it decides by more than the class.
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
	if !isClass(word) {
		return e.Prefix()
	}
	return word
}

// isClass reports whether word looks like the prefix of an error reply: capital
// letters, at least two.
func isClass(word string) bool {
	for i := range len(word) {
		if word[i] < 'A' || word[i] > 'Z' {
			return false
		}
	}
	return len(word) >= 2
}

// Redirect is where a MOVED or ASK reply sends the client.
type Redirect struct {
	Slot int // hash slot, 0 to 16383

	// Host is a name or an IP address, an IPv6 one without brackets. It is empty
	// where the node that answered is meant, and "?" where the server does not
	// know the name to give; that must not be dialled.
	Host string

	Port int // 1 to 65535
}

// Redirect returns what a MOVED or ASK reply says. For any other error, and
// where slot or address make no sense, ok is false.
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
	if r.Slot, ok = decimal(slot, 0, 16383); !ok {
		return Redirect{}, false
	}
	if r.Port, ok = decimal(addr[colon+1:], 1, 65535); !ok {
		return Redirect{}, false
	}
	return r, true
}

// decimal returns the number that s is, if it is between lo and hi.
func decimal(s string, lo, hi uint64) (int, bool) {
	n, err := strconv.ParseUint(s, 10, 32)
	return int(n), err == nil && n >= lo && n <= hi
}

// SyntaxError says that what was read is not RESP. The connection it came from
// cannot be used any more: where the next value begins is not known.
type SyntaxError struct {
	// Offset is the number of bytes that the Reader had taken from the stream
	// before the line, or the end of a string, that is wrong.
	Offset int64

	// Reason says what is wrong, without quoting what was read.
	Reason string
}

// Error returns the reason and the offset.
func (e *SyntaxError) Error() string {
	return "resp: not RESP: " + e.Reason + " at offset " + strconv.FormatInt(e.Offset, 10)
}

// LimitError says that a reply exceeds one of the [Limits] of the Reader. It is
// as fatal to the connection as a SyntaxError.
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

// KindError says that a value cannot be converted to what was asked for.
type KindError struct {
	Kind Kind   // what the value is
	Want string // what it is not: "an integer"
}

// Error names both, and never the value's contents.
func (e *KindError) Error() string { return "resp: " + e.Kind.String() + " is not " + e.Want }
