package resp

import (
	"iter"
	"strconv"
)

// Command is a command with its arguments, encoded once. It is immutable: it may be
// copied, sent again and used by many goroutines at once.
//
// The zero Command has no arguments, and Err says so.
type Command struct {
	wire  string // the encoding; empty if there is an error
	key   string // the routing key, or the text of the error
	argc  int32
	keyed bool
}

// Cmd encodes a command: its name and its arguments, each a string, []byte,
// bool (1 or 0), integer or floating-point number, or of a type whose underlying
// type is one of these. Nothing of args is kept.
//
// Anything else is refused, a time.Duration among it: which unit the command
// wants only the caller knows. The error is in Err, and whoever is given the
// command to send returns it.
func Cmd(args ...any) Command {
	var scratch [256]byte
	wire, err := AppendCommand(scratch[:0], args...)
	if err != nil {
		return Command{key: err.Error()}
	}
	return Command{wire: string(wire), argc: int32(len(args))}
}

// CmdStrings is Cmd for a command that begins with strings at hand in a slice, such
// as the keys of a script; the words come first, then args.
func CmdStrings(words []string, args ...any) Command {
	var scratch [512]byte
	wire := scratch[:0]
	if len(words) > 16 { // many are long together
		size := 16
		for _, w := range words {
			size += len(w) + 16
		}
		wire = make([]byte, 0, size)
	}
	wire = appendHeader(wire, '*', len(words)+len(args))
	for _, w := range words {
		wire = appendString(wire, w)
	}
	wire, err := appendArgs(wire, len(words), args)
	switch {
	case err != nil:
		return Command{key: err.Error()}
	case len(words)+len(args) == 0:
		return Command{}
	}
	return Command{wire: string(wire), argc: int32(len(words) + len(args))}
}

// commandError is the error of an argument that cannot be sent.
type commandError string

func (e commandError) Error() string { return string(e) }

// Err returns why the command cannot be sent, and nil if it can.
func (c Command) Err() error {
	switch {
	case c.wire != "":
		return nil
	case c.key == "":
		return errNoArgs
	}
	return commandError(c.key)
}

// On returns the command with key as its routing key: the key by which the
// connection or the node it is sent to is chosen. The encoding is shared.
func (c Command) On(key string) Command {
	if c.wire != "" {
		c.key, c.keyed = key, true
	}
	return c
}

// Key returns the routing key; ok is false if On has not set one.
func (c Command) Key() (key string, ok bool) {
	if !c.keyed {
		return "", false
	}
	return c.key, true
}

// Len returns the number of arguments, the name included, and 0 if there is an error.
func (c Command) Len() int { return int(c.argc) }

// Name returns the first argument as it was given, without an allocation.
func (c Command) Name() string { return c.Arg(0) }

// Arg returns argument i as it was sent, the name being argument 0, or "" if there
// is none, without an allocation. It finds it by walking over those before it: for
// all of them take Args.
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

// Args returns the arguments in order as they were sent, the name first; none, if
// there is an error.
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

// cutHeader returns the number in the header at the beginning of s, which this
// package has encoded, and what follows it.
func cutHeader(s string) (n int, rest string) {
	i := 1
	for ; s[i] != '\r'; i++ {
		n = n*10 + int(s[i]-'0')
	}
	return n, s[i+2:]
}

// Size returns the number of bytes that AppendTo appends.
func (c Command) Size() int { return len(c.wire) }

// AppendTo appends the encoded command to dst; nothing, if there is an error.
func (c Command) AppendTo(dst []byte) []byte { return append(dst, c.wire...) }

// String returns the name of the command and the number of its arguments, but not
// the arguments: passwords are among them.
func (c Command) String() string {
	if err := c.Err(); err != nil {
		return "command (" + err.Error() + ")"
	}
	return c.Name() + " (" + strconv.Itoa(c.Len()-1) + " arguments)"
}
