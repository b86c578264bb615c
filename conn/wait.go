package conn

import (
	"strconv"
	"strings"
	"time"

	"github.com/lockwire/lockwire/conn/internal/pipeline"
	"github.com/lockwire/lockwire/resp"
)

// endsInWait reports whether cmds are a batch that ends in WAIT or WAITAOF. WAIT delays all commands behind it and
// counts the writes before it on the same connection. SendBatch therefore sends such a batch undivided over an
// exclusive connection.
func endsInWait(cmds []resp.Command) bool {
	return len(cmds) > 1 && isWait(cmds[len(cmds)-1].Name())
}

func isWait(name string) bool {
	return strings.EqualFold(name, "wait") || strings.EqualFold(name, "waitaof")
}

// expect sets q.Wait: the server may keep back the answer as long as the timeouts in blocking commands together. expect
// sets q.Blocks if the connection must not outlive a caller that leaves. It may where a batch only waits for replicas,
// and not for ever.
func (q *request) expect() {
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
		if ruleOf(q.Commands[i].Name()) != plain {
			note(q.Commands[i].AppendTo(nil))
		}
	}
}

// blockTime returns the timeout in an encoded blocking command: Never without one, and for a timeout that the server
// will refuse.
func blockTime(encoded []byte) time.Duration {
	name, rest := cutWord(afterLine(encoded))
	unit, text := time.Second, []byte(nil)
	switch strings.ToLower(string(name)) {
	case "wait", "waitaof":
		unit, text = time.Millisecond, lastWord(rest)
	case "xread", "xreadgroup":
		rest, _ = behindBlock(rest)
		unit, text = time.Millisecond, firstWord(rest)
	case "blmpop", "bzmpop":
		text = firstWord(rest)
	default:
		text = lastWord(rest)
	}
	n, err := strconv.ParseFloat(string(text), 64)
	if d := n * float64(unit); err == nil && d >= 1 && d < float64(longestBlock) {
		return time.Duration(d)
	}
	return pipeline.Never
}

// longestBlock is the timeout from which a blocking command has none.
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
