package conn

import (
	"bytes"
	"strconv"
	"strings"
	"time"

	"github.com/lockwire/lockwire/conn/internal/pipeline"
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
// see ruleOfEncoded.
func ruleOf(name []byte) rule {
	const longest = len("punsubscribe")
	if len(name) < len("auth") || len(name) > longest {
		return plain
	}
	var lower [longest]byte
	for i := range name {
		lower[i] = name[i] | 0x20
	}
	switch string(lower[:len(name)]) {
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

func ruleOfEncoded(b []byte) rule {
	name, arguments := cutWord(afterLine(b))
	r := ruleOf(name)
	switch r {
	case blocksWith:
		if _, ok := afterBlock(arguments); ok {
			return blocks
		}
		return plain
	case script:
		if bytes.EqualFold(firstWord(arguments), []byte("DEBUG")) { // switches to a protocol of its own
			return unanswered
		}
		return plain
	case client:
		switch strings.ToUpper(string(firstWord(arguments))) {
		case "REPLY":
			return unanswered
		case "SETNAME", "SETINFO", "TRACKING", "CACHING", "NO-EVICT", "NO-TOUCH", "CAPA", "IMPORT-SOURCE":
			return introduces
		}
		return plain
	}
	return r
}

// ruleOfCommand returns the rule of cmd, whose Err is nil.
func ruleOfCommand(cmd *resp.Command) rule { return ruleOfEncoded(viewOf(cmd.Encoded())) }

// afterBlock returns the arguments after the option BLOCK of XREAD or XREADGROUP; ok is false without the option. A group
// or a consumer called BLOCK is no option.
func afterBlock(arguments []byte) (rest []byte, ok bool) {
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

func isWait(name string) bool {
	return strings.EqualFold(name, "wait") || strings.EqualFold(name, "waitaof")
}

// blockTime returns the timeout in an encoded blocking command. It returns Never without a timeout, and for a timeout that
// the server will refuse.
func blockTime(encoded []byte) time.Duration {
	name, rest := cutWord(afterLine(encoded))
	unit, text := time.Second, lastWord(rest)
	switch strings.ToLower(string(name)) {
	case "wait", "waitaof":
		unit = time.Millisecond
	case "xread", "xreadgroup":
		rest, _ = afterBlock(rest)
		unit, text = time.Millisecond, firstWord(rest)
	case "blmpop", "bzmpop":
		text = firstWord(rest)
	}
	n, err := strconv.ParseFloat(string(text), 64)
	if d := n * float64(unit); err == nil && d >= 1 && d < float64(longestBlock) {
		return time.Duration(d)
	}
	return pipeline.Never
}

// longestBlock is the timeout from which blockTime returns Never.
const longestBlock = 10 * 365 * 24 * time.Hour

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

// firstWord returns the first argument, or nil without one.
func firstWord(arguments []byte) (word []byte) {
	if len(arguments) > 0 {
		word, _ = cutWord(arguments)
	}
	return word
}

// lastWord returns the last argument, or nil without one.
func lastWord(arguments []byte) (word []byte) {
	for len(arguments) > 0 {
		word, arguments = cutWord(arguments)
	}
	return word
}
