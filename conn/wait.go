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
	return len(cmds) > 1 && isWait(&cmds[len(cmds)-1])
}

func isWait(cmd *resp.Command) bool {
	name := cmd.Name()
	return strings.EqualFold(name, "wait") || strings.EqualFold(name, "waitaof")
}

// waitTime returns the time limit in a WAIT, or 0 without one.
func waitTime(cmd *resp.Command) time.Duration {
	last := ""
	for arg := range cmd.Args() {
		last = arg
	}
	ms, err := strconv.ParseInt(last, 10, 32)
	if !isWait(cmd) || err != nil || ms < 0 {
		return 0
	}
	return time.Duration(ms) * time.Millisecond
}

// waitLimit returns the time limit for the answer to a blocking command: a known time for WAIT, and never for other
// commands.
func waitLimit(l *pipeline.Link, cmd *resp.Command) time.Duration {
	if d := waitTime(cmd); d > 0 {
		return l.LimitIn(d)
	}
	return pipeline.Never
}
