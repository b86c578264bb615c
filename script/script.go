// Package script runs Lua scripts on a Redis server by digest.
//
// Run sends EVALSHA with the digest, 40 bytes in place of the source. A server without the script
// replies NOSCRIPT and has run nothing; Run then sends the source. Scripts therefore survive a
// restart, a failover and SCRIPT FLUSH, and run exactly once.
//
// A script must not return an error of its own with the prefix NOSCRIPT: Run would mistake the
// error for the server's. The same holds for BUSY, CLUSTERDOWN, LOADING, MASTERDOWN, NOREPLICAS,
// READONLY and TRYAGAIN. With these prefixes a server reports that nothing was executed, and a
// conn.Pool sends the script again.
package script

import (
	"context"
	"crypto/fips140"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/resp"
)

// Script is the source of a Lua script with its digest, usually a package variable. Any number of
// goroutines may run a Script, on any number of servers.
type Script struct {
	name   string // constant after New, like source
	source string
	once   sync.Once
	digest string // set by once

	missed atomic.Bool // some server has replied NOSCRIPT
}

// New returns a script with the source src. It neither sends nor checks src: if the script does not
// compile, Run returns the server's error.
func New(src string) *Script { return Named("", src) }

// Named is New for a script that has a name in traces: see conn.Trace.
func Named(name, src string) *Script { return &Script{name: name, source: src} }

// Name returns the name given to Named, or "".
func (s *Script) Name() string { return s.name }

// Digest returns the SHA-1 of the source in lower case hexadecimal: the script's name in EVALSHA,
// MONITOR and SLOWLOG. The first call computes the digest.
func (s *Script) Digest() string {
	s.once.Do(s.sum)
	return s.digest
}

func (s *Script) sum() {
	// The protocol names scripts by SHA-1; security does not depend on the hash.
	fips140.WithoutEnforcement(func() {
		sum := sha1.Sum([]byte(s.source))
		s.digest = hex.EncodeToString(sum[:])
	})
}

// Source returns the source as passed to New.
func (s *Script) Source() string { return s.source }

// Run runs the script on d with KEYS and ARGV, and returns the script's result. An error reply is
// returned as the error, as from d.Send. The types of args are listed at resp.Cmd. keys[0], if any,
// is the routing key of all commands sent.
//
// After a NOSCRIPT reply, Run sends the source on the same Doer. The second command does not count
// as a retry of the Doer. Any other error is the Doer's: after conn.ErrUncertain the script may
// have run, or may still run.
func (s *Script) Run(ctx context.Context, d conn.Doer, keys []string, args ...any) (resp.Value, error) {
	ctx, call := s.start(ctx, d, "EVALSHA")
	v, err := s.run(ctx, d, command("EVALSHA", s.Digest(), keys, args), "EVAL")
	call.End(ctx, err)
	return v, err
}

// start begins a call for the Trace of d: whatever the run sends is one call.
func (s *Script) start(ctx context.Context, d conn.Doer, command string) (context.Context, *conn.Call) {
	return conn.StartCall(ctx, d, conn.CommandStart{Name: command, Script: s.name, Count: 1})
}

// RunRO is Run for a script that does not write, sent as EVALSHA_RO. The server refuses writes of
// the script, and a replica may run the script.
//
// Before Redis 7.0 servers do not have EVALSHA_RO. There RunRO goes on as Run does, one round trip later, and nothing
// refuses a write.
func (s *Script) RunRO(ctx context.Context, d conn.Doer, keys []string, args ...any) (resp.Value, error) {
	ctx, call := s.start(ctx, d, "EVALSHA_RO")
	v, err := s.run(ctx, d, command("EVALSHA_RO", s.Digest(), keys, args), "EVAL_RO")
	if lacksReadOnly(err) {
		v, err = s.run(ctx, d, command("EVALSHA", s.Digest(), keys, args), "EVAL")
	}
	call.End(ctx, err)
	return v, err
}

// run sends cmd, which names the script by digest. After NOSCRIPT it sends the command eval with
// the source.
func (s *Script) run(ctx context.Context, d conn.Doer, cmd resp.Command, eval string) (resp.Value, error) {
	if err := cmd.Err(); err != nil { // of an argument
		return resp.Value{}, err
	}
	v, err := d.Send(ctx, cmd)
	if !noScript(err) {
		return v, err
	}
	if s.noteMissing() {
		// The reply to SCRIPT LOAD does not matter: if cmd still gets NOSCRIPT, the EVAL below works.
		replies, err := d.SendBatch(ctx, []resp.Command{s.load(cmd), cmd})
		switch v, err := conn.Outcome(replies, err, 1); {
		case err != nil:
			return resp.Value{}, err
		case v.Err() == nil:
			return v, nil
		case !isNoScript(v):
			return resp.Value{}, v.Err()
		}
	}
	return d.Send(ctx, s.withSource(cmd, eval))
}

// noteMissing notes a NOSCRIPT reply, and reports whether there was one before: then SCRIPT LOAD is worth its bytes. Since
// Redis 7.4 servers evict scripts sent by EVAL, but not those sent by SCRIPT LOAD.
func (s *Script) noteMissing() bool { return s.missed.Swap(true) }

// load returns SCRIPT LOAD with the routing key of cmd.
func (s *Script) load(cmd resp.Command) resp.Command {
	return routed(resp.Cmd("SCRIPT", "LOAD", s.source), cmd)
}

// withSource returns cmd with the command eval and the source in place of the digest.
func (s *Script) withSource(cmd resp.Command, eval string) resp.Command {
	words := slices.AppendSeq(make([]string, 0, cmd.Len()), cmd.Args())
	words[0], words[1] = eval, s.source
	return routed(resp.CmdStrings(words), cmd)
}

func routed(cmd, like resp.Command) resp.Command {
	if key, ok := like.Key(); ok {
		return cmd.On(key)
	}
	return cmd
}

func isNoScript(v resp.Value) bool { return noScript(v.Err()) }

// noScript reports whether err is the reply of a server that does not have the script.
func noScript(err error) bool {
	reply, ok := errorReply(err)
	return ok && errors.Is(reply, resp.ErrNoScript)
}

// lacksReadOnly reports whether err is the reply of a server that does not have EVALSHA_RO. A
// script may itself return an error about another unknown command.
func lacksReadOnly(err error) bool {
	reply, ok := errorReply(err)
	return ok && strings.HasPrefix(string(reply), "ERR unknown command") &&
		strings.Contains(strings.ToUpper(string(reply)), "EVALSHA_RO")
}

// errorReply returns the error reply in err. A failed connection can wrap an error reply as its
// cause; such an error is no reply to the command, because the script may still run.
func errorReply(err error) (resp.Error, bool) {
	if err == nil || errors.Is(err, conn.ErrUncertain) || errors.Is(err, conn.ErrNotSent) {
		return "", false
	}
	return errors.AsType[resp.Error](err)
}

// command encodes a call of a script. args do not escape to the heap.
func command(name, script string, keys []string, args []any) resp.Command {
	var buf [16]string
	words := append(buf[:0], name, script, strconv.Itoa(len(keys)))
	words = append(words, keys...)
	cmd := resp.CmdStrings(words, args...)
	if len(keys) > 0 {
		return cmd.On(keys[0])
	}
	return cmd
}
