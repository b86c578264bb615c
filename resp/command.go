package resp

import (
	"errors"
	"iter"
	"strconv"
)

// Command is a command with its arguments, encoded once. A Command is immutable: it may be copied,
// sent repeatedly and used by many goroutines at once.
//
// The zero Command has no arguments, and its Err returns an error.
type Command struct {
	wire  string // the encoding; empty on an error
	key   string // the routing key, or the text of the error
	argc  int32
	keyed bool
}

// Cmd encodes a command: its name, then its arguments. Each is a string, []byte, bool (1 or 0),
// integer or floating-point number, or has one of these as its underlying type. A slice of these
// stands for its elements, each an argument of its own, and an empty slice for none. Cmd keeps
// nothing of args.
//
// Any other type is an error, which Err returns and sending the command reports. time.Duration and
// time.Time are errors too, because commands differ in the unit they expect.
func Cmd(args ...any) Command { return CmdStrings(nil, args...) }

// CmdStrings is Cmd for a command that begins with a slice of strings, such as the keys of a
// script. words come first, then args.
func CmdStrings(words []string, args ...any) Command {
	var scratch [512]byte
	n, size, err := measure(words, args)
	switch {
	case err != nil:
		return Command{key: err.Error()}
	case size > len(scratch):
		wire, err := appendWords(make([]byte, 0, size), n, words, args)
		return newCommand(ownText(wire), n, err)
	}
	wire, err := appendWords(scratch[:0], n, words, args)
	return newCommand(string(wire), n, err)
}

// newCommand returns the encoded command wire of n words, or the command that reports err.
func newCommand(wire string, n int, err error) Command {
	if err != nil {
		return Command{key: err.Error()}
	}
	return Command{wire: wire, argc: int32(n)}
}

// Err returns the reason why the command cannot be sent, or nil.
func (c Command) Err() error {
	switch {
	case c.wire != "":
		return nil
	case c.key == "":
		return errNoArgs
	}
	return errors.New(c.key)
}

// On returns the command with key as its routing key, by which a client chooses the connection or
// the cluster node. Both commands share the encoding.
func (c Command) On(key string) Command {
	if c.wire != "" {
		c.key, c.keyed = key, true
	}
	return c
}

// Key returns the routing key. ok is false if On has not set a key.
func (c Command) Key() (key string, ok bool) {
	if !c.keyed {
		return "", false
	}
	return c.key, true
}

// Len returns the number of arguments including the name, or 0 if Err returns an error.
func (c Command) Len() int { return int(c.argc) }

// Name returns the first argument. It does not allocate.
func (c Command) Name() string { return c.Arg(0) }

// Arg returns argument i as sent; argument 0 is the name. Out of range, Arg returns "". Arg does
// not allocate, but walks over all earlier arguments: to visit every argument use Args.
func (c Command) Arg(i int) string {
	if i < 0 || i >= int(c.argc) {
		return ""
	}
	_, rest := cutHeader(c.wire)
	for {
		n, body := cutHeader(rest)
		if i == 0 {
			return body[:n]
		}
		rest = body[n+2:]
		i--
	}
}

// Args returns the arguments as sent, in order, the name first. The sequence is empty if Err
// returns an error.
func (c Command) Args() iter.Seq[string] {
	return func(yield func(string) bool) {
		if c.argc == 0 {
			return
		}
		_, rest := cutHeader(c.wire)
		for range c.argc {
			n, body := cutHeader(rest)
			if !yield(body[:n]) {
				return
			}
			rest = body[n+2:]
		}
	}
}

// cutHeader returns the number in the header at the beginning of s, and the text after the header.
// s was encoded by this package, so cutHeader does not check it.
func cutHeader(s string) (n int, rest string) {
	i := 1
	for ; s[i] != '\r'; i++ {
		n = n*10 + int(s[i]-'0')
	}
	return n, s[i+2:]
}

// Size returns the number of bytes that AppendTo appends.
func (c Command) Size() int { return len(c.wire) }

// Encoded returns the encoded command, as AppendTo appends it, or "" if Err returns an error.
func (c Command) Encoded() string { return c.wire }

// AppendTo appends the encoded command to dst, or nothing if Err returns an error.
func (c Command) AppendTo(dst []byte) []byte { return append(dst, c.wire...) }

// String returns the command's name and the number of its arguments. It leaves out the arguments,
// which may contain passwords.
func (c Command) String() string {
	if err := c.Err(); err != nil {
		return "command (" + err.Error() + ")"
	}
	return c.Name() + " (" + strconv.Itoa(c.Len()-1) + " arguments)"
}
