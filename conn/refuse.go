package conn

import (
	"bytes"
	"errors"
	"strings"

	"github.com/lockwire/lockwire/internal/netfail"
	"github.com/lockwire/lockwire/resp"
)

// rule is the effect of a command on the connection that carries it.
type rule uint8

const (
	plain      rule = iota
	blocks          // the reply may take any time
	blocksWith      // blocks with the argument BLOCK
	client          // CLIENT: depends on the subcommand
	script          // SCRIPT: depends on the subcommand
	watches         // WATCH
	unwatches       // UNWATCH
	begins          // MULTI
	ends            // EXEC, DISCARD
	asks            // ASKING: applies to the next command
	selects         // changes the database
	introduces      // changes user, name, protocol or mode of the connection
	resets          // undoes the handshake
	quits           // ends the connection
	unanswered      // ends the mode of one reply per command
)

// ruleOf returns the rule of a command by its name in any case. Some names have a rule that depends on the arguments:
// see byArguments.
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

// ruleOfLower is like ruleOf, for a lower-case name.
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

// byArguments returns the rule of the encoded command b, given the rule r of its name.
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

// streamRule returns the rule of XREAD or XREADGROUP with these arguments.
func streamRule(arguments []byte) rule {
	if _, ok := behindBlock(arguments); ok {
		return blocks
	}
	return plain
}

// behindBlock returns the arguments behind BLOCK, and whether BLOCK is there. A group or a consumer may have that name.
func behindBlock(arguments []byte) (rest []byte, ok bool) {
	names := 0 // number of next words that are a group or a consumer
	for len(arguments) > 0 {
		var w []byte
		w, arguments = cutWord(arguments)
		switch {
		case names > 0:
			names--
		case bytes.EqualFold(w, []byte("GROUP")):
			names = 2
		case bytes.EqualFold(w, []byte("BLOCK")):
			return arguments, true
		case bytes.EqualFold(w, []byte("STREAMS")):
			return nil, false
		}
	}
	return nil, false
}

// scriptRule returns the rule of SCRIPT with these arguments. SCRIPT DEBUG switches to a protocol of its own.
func scriptRule(arguments []byte) rule {
	if len(arguments) == 0 {
		return plain
	}
	if sub, _ := cutWord(arguments); bytes.EqualFold(sub, []byte("DEBUG")) {
		return unanswered
	}
	return plain
}

// clientRule returns the rule of CLIENT with these arguments.
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

// carrier is the kind of connection for a command.
type carrier uint8

const (
	shared      carrier = iota // a shared connection
	sharedBatch                // a shared connection, within a batch
	exclusive                  // an exclusive connection
	transaction                // between MULTI and EXEC
)

var (
	errInTx      = errors.New("it is not allowed inside a transaction")
	errWatch     = errors.New("it concerns one connection, and this connection is shared: use With")
	errMulti     = errors.New("on a shared connection, use Tx for a transaction; or use With")
	errAsking    = errors.New("on a shared connection, send it in a batch in front of its command")
	errOpenMulti = errors.New("a MULTI is open on this connection")
)

// refusals are the reasons why a shared connection does not carry a command, by the rule of the command.
var refusals = [...]error{
	blocks:     errors.New("it would hold up all callers of a shared connection: use Block or With"),
	watches:    errWatch,
	unwatches:  errWatch,
	begins:     errMulti,
	ends:       errMulti,
	asks:       errAsking,
	selects:    errors.New("it would change the database for all callers: set Config.DB, or use With"),
	introduces: errors.New("it would change the connection for all callers: set the field of Config, or Extra"),
	resets:     errors.New("it would undo the handshake, for all callers"),
	quits:      errors.New("use Close"),
	unanswered: errors.New("it has no reply like other commands: use package pubsub, or a Stream"),
}

// refuse returns the reason why a command with rule r must not be sent on c, or nil.
func (r rule) refuse(c carrier) error {
	switch {
	case r == unanswered:
		return refusals[r]
	case r == plain, c == exclusive, c == sharedBatch && r == asks, c == transaction && r == blocks: // blocks does not block there
		return nil
	case c == transaction:
		return errInTx
	}
	return refusals[r]
}

// refuseAny returns the index of the first command that must not be sent on c, and the reason; or 0 and nil.
func refuseAny(cmds []resp.Command, c carrier) (int, error) {
	for i := range cmds {
		if err := cmds[i].Err(); err != nil {
			return i, err
		}
		r := ruleOfCommand(&cmds[i])
		if r == asks && i == len(cmds)-1 && c == sharedBatch {
			return i, errAsking
		}
		if r == blocks && c == sharedBatch && i == len(cmds)-1 && endsInWait(cmds) {
			continue // SendBatch sends such a batch over an exclusive connection
		}
		if err := r.refuse(c); err != nil {
			return i, err
		}
	}
	return 0, nil
}

// afterLine returns an encoded command without its first line, the number of arguments.
func afterLine(b []byte) []byte {
	return b[bytes.IndexByte(b, '\n')+1:]
}

// cutWord splits off the first argument of b, the arguments of a command encoded by package resp.
func cutWord(b []byte) (word, rest []byte) {
	n, i := 0, 1
	for ; b[i] != '\r'; i++ {
		n = n*10 + int(b[i]-'0')
	}
	return b[i+2 : i+2+n], b[i+2+n+2:]
}

// nameOf returns a copy of the name of an encoded command, for errors and traces.
func nameOf(b []byte) string {
	word, _ := cutWord(afterLine(b))
	return netfail.Op(string(word))
}
