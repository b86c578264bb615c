package conn

import (
	"bytes"
	"errors"
	"strings"

	"github.com/lockwire/lockwire/resp"
)

// rule is what is special about a command for the connection that carries it.
type rule uint8

const (
	plain      rule = iota
	blocks          // the connection may stand still until the server answers
	blocksWith      // blocks, given the argument BLOCK
	client          // CLIENT, which depends on its subcommand
	script          // SCRIPT, likewise
	watches         // WATCH
	unwatches       // UNWATCH
	begins          // MULTI
	ends            // EXEC, DISCARD
	asks            // ASKING: changes what the next command does
	selects         // changes the database
	introduces      // changes user, name, protocol or mode of the connection
	resets          // undoes the handshake
	quits           // ends the connection
	unanswered      // from then on there is no longer one reply for each command
)

// ruleOf returns the rule of a command by its name, in capital letters or small ones.
func ruleOf[T string | []byte](name T) rule {
	const longest = len("punsubscribe")
	if len(name) < len("auth") || len(name) > longest {
		return plain
	}
	var lower [longest]byte
	for i := range len(name) {
		lower[i] = name[i] | 0x20
	}
	return ruleOfLower(lower[:len(name)])
}

// ruleOfLower is ruleOf for a name in small letters.
func ruleOfLower(name []byte) rule {
	switch string(name) {
	case "blpop", "brpop", "blmove", "blmpop", "brpoplpush", "bzpopmin", "bzpopmax", "bzmpop", "wait", "waitaof":
		return blocks
	case "xread", "xreadgroup":
		return blocksWith
	case "client":
		return client
	case "script":
		return script
	case "watch":
		return watches
	case "unwatch":
		return unwatches
	case "multi":
		return begins
	case "exec", "discard":
		return ends
	case "asking":
		return asks
	case "select":
		return selects
	case "auth", "hello", "readonly", "readwrite":
		return introduces
	case "reset":
		return resets
	case "quit":
		return quits
	case "subscribe", "psubscribe", "ssubscribe", "unsubscribe", "punsubscribe", "sunsubscribe",
		"monitor", "sync", "psync", "replconf":
		return unanswered
	}
	return plain
}

// byArguments returns the rule of the encoded command b, whose name has the rule r.
func (r rule) byArguments(b []byte) rule {
	_, rest := cutWord(afterLine(b))
	switch r {
	case client:
		return clientRule(rest)
	case script:
		return scriptRule(rest)
	case blocksWith:
		return streamRule(rest)
	}
	return r
}

// streamRule returns the rule of an XREAD or XREADGROUP with these arguments.
func streamRule(arguments []byte) rule {
	names := 0 // how many words are names of a group or a consumer
	for len(arguments) > 0 {
		var w []byte
		w, arguments = cutWord(arguments)
		switch {
		case names > 0:
			names--
		case bytes.EqualFold(w, []byte("GROUP")):
			names = 2
		case bytes.EqualFold(w, []byte("BLOCK")):
			return blocks
		case bytes.EqualFold(w, []byte("STREAMS")):
			return plain
		}
	}
	return plain
}

// scriptRule returns the rule of a SCRIPT with these arguments. Its debugger has a protocol of its own.
func scriptRule(arguments []byte) rule {
	if len(arguments) == 0 {
		return plain
	}
	if sub, _ := cutWord(arguments); bytes.EqualFold(sub, []byte("DEBUG")) {
		return unanswered
	}
	return plain
}

// clientRule returns the rule of a CLIENT with these arguments.
func clientRule(arguments []byte) rule {
	if len(arguments) == 0 {
		return plain
	}
	sub, _ := cutWord(arguments)
	switch strings.ToUpper(string(sub)) {
	case "REPLY":
		return unanswered
	case "SETNAME", "SETINFO", "TRACKING", "CACHING", "NO-EVICT", "NO-TOUCH", "CAPA", "IMPORT-SOURCE":
		return introduces
	}
	return plain
}

// ruleOfEncoded returns the rule of an encoded command.
func ruleOfEncoded(b []byte) rule {
	name, _ := cutWord(afterLine(b))
	if r := ruleOf(name); r != plain {
		return r.byArguments(b)
	}
	return plain
}

// ruleOfCommand returns the rule of cmd.
func ruleOfCommand(cmd *resp.Command) rule {
	if r := ruleOf(cmd.Name()); r != plain {
		return r.byArguments(cmd.AppendTo(nil))
	}
	return plain
}

// carrier is what a command is to be sent on.
type carrier uint8

const (
	shared      carrier = iota // a connection of all callers
	sharedBatch                // the same, with commands of the same caller in front of and behind it
	exclusive                  // a connection of one caller
	transaction                // between MULTI and EXEC
)

var (
	errBlocks     = errors.New("it would hold up all callers of a shared connection: use With")
	errInTx       = errors.New("it has no place inside of a transaction")
	errWatch      = errors.New("it concerns one connection, and this one is shared: use With")
	errMulti      = errors.New("a transaction on a shared connection is sent by Tx; or use With")
	errAsking     = errors.New("on a shared connection it is sent in a batch, in front of its command")
	errSelect     = errors.New("it would change the database for all callers: set Config.DB, or use With")
	errIntroduces = errors.New("it would change the connection for all callers: set the field of Config, or Extra")
	errReset      = errors.New("it would undo the handshake, for all callers")
	errQuit       = errors.New("use Close")
	errUnanswered = errors.New("it has no reply like other commands: use package pubsub, or a Stream")
	errOpenMulti  = errors.New("a MULTI is open on this connection")
)

// refuse returns why a command with this rule is not sent on c, and nil if it may be.
func (r rule) refuse(c carrier) error {
	switch {
	case r == plain:
		return nil
	case r == unanswered:
		return errUnanswered
	case c == exclusive:
		return nil
	case c == transaction:
		if r == blocks { // it does not, there
			return nil
		}
		return errInTx
	}
	switch r {
	case blocks:
		return errBlocks
	case watches, unwatches:
		return errWatch
	case begins, ends:
		return errMulti
	case asks:
		if c == sharedBatch {
			return nil
		}
		return errAsking
	case selects:
		return errSelect
	case introduces:
		return errIntroduces
	case resets:
		return errReset
	case quits:
		return errQuit
	}
	return nil
}

// refuseAny returns the index of the first of cmds that is not sent on c, and why.
func refuseAny(cmds []resp.Command, c carrier) (int, error) {
	for i := range cmds {
		if err := cmds[i].Err(); err != nil {
			return i, err
		}
		r := ruleOfCommand(&cmds[i])
		if r == asks && i == len(cmds)-1 && c == sharedBatch {
			return i, errAsking
		}
		if r == blocks && c == sharedBatch && i == len(cmds)-1 && waits(cmds) {
			continue // which is why it will not be shared
		}
		if err := r.refuse(c); err != nil {
			return i, err
		}
	}
	return 0, nil
}

// refusal returns the error of a command that is not sent because of err.
func refusal(addr string, q request, err error) error {
	op := "command" // which cannot be encoded
	if len(q.encoded) > 0 || len(q.cmds) > 0 && q.cmds[0].Err() == nil {
		op = q.name()
	}
	return &Error{Op: op, Addr: addr, Err: refused{err}}
}

// afterLine returns what follows the first line of an encoded command: its number of arguments.
func afterLine(b []byte) []byte {
	return b[bytes.IndexByte(b, '\n')+1:]
}

// cutWord returns the argument that b begins with, of a command encoded by package resp, and the rest.
func cutWord(b []byte) (word, rest []byte) {
	n, i := 0, 1
	for ; b[i] != '\r'; i++ {
		n = n*10 + int(b[i]-'0')
	}
	return b[i+2 : i+2+n], b[i+2+n+2:]
}

// nameOf returns the name of an encoded command for an error or a trace, in memory of its own.
func nameOf(b []byte) string {
	word, _ := cutWord(afterLine(b))
	return printable(string(word))
}

// printable returns a name as it is, if it looks like one, so that no argument gets into an error by a mistake.
func printable(name string) string {
	const longest = 40
	if name == "" || len(name) > longest {
		return "command"
	}
	for i := range len(name) {
		switch c := name[i] | 0x20; {
		case 'a' <= c && c <= 'z', '0' <= name[i] && name[i] <= '9', name[i] == '.', name[i] == '_', name[i] == '-':
		default:
			return "command"
		}
	}
	return name
}
