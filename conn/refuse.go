package conn

import (
	"bytes"
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/lockwire/lockwire/conn/internal/pipeline"
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

// refuseAny returns the error for the caller if a command must not be sent on c, to the server at addr. waits: a shared batch
// has WAIT or WAITAOF behind other commands. WAIT delays all commands behind it and counts the writes before it on the same
// connection. SendBatch therefore sends such a batch undivided over an exclusive connection.
func refuseAny(addr string, cmds []resp.Command, c carrier) (waits bool, _ error) {
	for i := range cmds {
		r, err := plain, cmds[i].Err()
		if err == nil {
			r = ruleOfCommand(&cmds[i])
			err = r.refuse(c)
		}
		switch {
		case r == asks && i == len(cmds)-1 && c == sharedBatch:
			err = errAsking
		case r == blocks && i > 0 && c == sharedBatch && isWait(cmds[i].Name()):
			waits = true
			continue
		}
		if err != nil {
			return false, refusal(addr, request{Commands: cmds[i:]}, refused{err, i + 1})
		}
	}
	return waits, nil
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

// ErrRefused: the client refused to send a command, because the command cannot be encoded or is not allowed on this
// kind of connection. Sending the command again gives the same error. Such an error also matches ErrNotSent.
var ErrRefused = errors.New("refused by the client")

// refused is the reason of a refusal. Its text is the text of the reason.
type refused struct {
	error
	number int // number of the refused command in its batch, from 1; 0 outside of a batch
}

func (e refused) Is(target error) bool { return target == ErrRefused }
func (e refused) Unwrap() error        { return e.error }

// CheckBatch returns the error with which SendBatch of a Pool would refuse cmds, or nil. Callers that split a batch
// among several pools use CheckBatch to send either all commands or none.
func CheckBatch(cmds []resp.Command) error {
	_, err := refuseAny("", cmds, sharedBatch)
	return err
}

func refusal(addr string, q request, err error) error {
	op := "command" // the name of a command that cannot be encoded
	if len(q.Encoded) > 0 || len(q.Commands) > 0 && q.Commands[0].Err() == nil {
		op = q.name()
	}
	r, ok := err.(refused)
	if !ok {
		r = refused{error: err}
	}
	return &Error{Op: op, Addr: addr, Err: r}
}

func isWait(name string) bool {
	return strings.EqualFold(name, "wait") || strings.EqualFold(name, "waitaof")
}

// setWait sets q.Wait to the sum of the timeouts in the blocking commands of q, and q.Blocks if there are any. WAIT and
// WAITAOF with a timeout, in a batch, do not set q.Blocks: the connection soon becomes free by itself.
func (q *request) setWait() {
	note := func(encoded []byte) {
		if ruleOfEncoded(encoded) != blocks {
			return
		}
		d := blockTime(encoded)
		if len(q.Commands) < 2 || d == pipeline.Never || !isWait(nameOf(encoded)) {
			q.Blocks = true
		}
		if q.Wait += d; q.Wait < d || d == pipeline.Never {
			q.Wait = pipeline.Never
		}
	}
	if len(q.Commands) == 0 {
		note(q.Encoded)
	}
	for i := range q.Commands {
		note(viewOf(q.Commands[i].Encoded()))
	}
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

// request is one encoded command, or a list of commands to encode.
type request pipeline.Request

// name returns a copy of the first command's name, for errors and traces.
func (q request) name() string {
	switch {
	case len(q.Commands) > 0:
		return netfail.Op(q.Commands[0].Name())
	case len(q.Encoded) > 0:
		return nameOf(q.Encoded)
	}
	return "dial"
}

func (q request) failure(l *pipeline.Link, sent bool, err error) error {
	return &Error{Op: q.name(), Addr: l.Addr, Sent: sent, Err: err}
}

// do sends q, without the text x, over l and returns the reply. An error reply is an error.
func (q request) do(ctx context.Context, l *pipeline.Link, x pipeline.Text) (resp.Value, error) {
	v, sent, err := l.Do(ctx, pipeline.Request(q), x)
	if err != nil {
		return resp.Value{}, q.failure(l, sent, err)
	}
	if err := v.Err(); err != nil {
		return resp.Value{}, err
	}
	return v, nil
}

// doBatch sends the commands of q over l in order, without other commands in between, and returns the replies. With an
// *Error, doBatch returns the replies received so far.
func (q request) doBatch(ctx context.Context, l *pipeline.Link) ([]resp.Value, error) {
	values, sent, err := l.DoBatch(ctx, pipeline.Request(q))
	if err != nil {
		return values, q.failure(l, sent, err)
	}
	return values, nil
}
