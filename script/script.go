// Package script runs Lua scripts on a Redis server by digest.
//
// A Script is sent as EVALSHA, which costs 40 bytes instead of its source. A server that does not know the digest says
// NOSCRIPT and has run nothing, so the script is sent again with its source: scripts survive a restart, a failover and
// SCRIPT FLUSH, and run exactly once. What is remembered of the scripts a server has decides about nothing but speed.
//
// A script must not return an error of its own that begins with NOSCRIPT: it would be taken for the server's. The same
// goes for BUSY, CLUSTERDOWN, LOADING, MASTERDOWN, NOREPLICAS, READONLY and TRYAGAIN, by which a server says that it has
// executed nothing: a conn.Pool would run the script again.
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

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/resp"
)

// Script is the source of a Lua script and its digest. It is made once, usually as a package variable, and may be run by
// any number of goroutines on any number of servers.
type Script struct {
	source string // constant after New
	once   sync.Once
	digest string // set by once
	known  servers
}

// New returns the script with the source src. It sends nothing, computes nothing, and does not check the source: a script
// that does not compile gets the server's error when it runs.
func New(src string) *Script { return &Script{source: src} }

// Digest returns the SHA-1 of the source in lower case hexadecimal: the name of the script in EVALSHA, MONITOR and
// SLOWLOG. The first call computes it.
func (s *Script) Digest() string {
	s.once.Do(s.sum)
	return s.digest
}

func (s *Script) sum() {
	// SHA-1 is the name that the protocol gives a script; nothing is kept safe by it.
	fips140.WithoutEnforcement(func() {
		sum := sha1.Sum([]byte(s.source))
		s.digest = hex.EncodeToString(sum[:])
	})
}

// Source returns the source as it was given to New.
func (s *Script) Source() string { return s.source }

// Run runs the script on d with keys as KEYS and args as ARGV, and returns what the script returned; an error reply is a
// Go error, as from d.Send. The arguments may be what resp.Cmd takes. All commands sent carry keys[0] as their routing
// key, if there is a key.
//
// A NOSCRIPT reply is followed by the script's source on the same Doer and never reaches the caller. It takes nothing
// from the retry budget of the Doer. Any other error is the Doer's: with conn.ErrUncertain the script may have run, and
// may still run.
func (s *Script) Run(ctx context.Context, d conn.Doer, keys []string, args ...any) (resp.Value, error) {
	return s.run(ctx, d, command("EVALSHA", s.Digest(), keys, args), "EVAL")
}

// RunRO is Run for a script that does not write, by EVALSHA_RO: the server refuses its writes, and a replica may serve
// it. Servers before Redis 7.0 do not have that command; on those it is Run, and nothing refuses a write. That a server is
// one of those is remembered until it answers NOSCRIPT, as it does when it has been replaced.
func (s *Script) RunRO(ctx context.Context, d conn.Doer, keys []string, args ...any) (resp.Value, error) {
	if s.known.lacksReadOnly(d) {
		v, err := send(ctx, d, command("EVALSHA", s.Digest(), keys, args))
		if !noScript(err) {
			return v, err
		}
		s.known.setLacksReadOnly(d, false)
	}
	v, err := s.run(ctx, d, command("EVALSHA_RO", s.Digest(), keys, args), "EVAL_RO")
	if !lacksReadOnly(err) {
		return v, err
	}
	s.known.setLacksReadOnly(d, true)
	return s.run(ctx, d, command("EVALSHA", s.Digest(), keys, args), "EVAL")
}

// run sends cmd, which names the script by digest, and eval with the source when the server does not know it.
func (s *Script) run(ctx context.Context, d conn.Doer, cmd resp.Command, eval string) (resp.Value, error) {
	v, err := send(ctx, d, cmd)
	if !noScript(err) {
		return v, err
	}
	if s.known.forgot(d) > 1 {
		// Since Redis 7.4 scripts that came by EVAL are evicted; those of SCRIPT LOAD stay. The reply to SCRIPT LOAD does
		// not matter: whatever it is, EVAL below needs no loaded script.
		replies, err := d.SendBatch(ctx, []resp.Command{s.load(cmd), cmd})
		if err != nil {
			return resp.Value{}, err
		}
		switch v := replies[1]; {
		case v.Err() == nil:
			return v, nil
		case !forgotten(v):
			return resp.Value{}, v.Err()
		}
	}
	return d.Send(ctx, s.withSource(cmd, eval))
}

// send sends cmd, if its arguments can be sent.
func send(ctx context.Context, d conn.Doer, cmd resp.Command) (resp.Value, error) {
	if err := cmd.Err(); err != nil {
		return resp.Value{}, err
	}
	return d.Send(ctx, cmd)
}

// load returns SCRIPT LOAD for the node that cmd goes to.
func (s *Script) load(cmd resp.Command) resp.Command {
	return routed(resp.Cmd("SCRIPT", "LOAD", s.source), cmd)
}

// withSource returns cmd with the command eval and the source in the place of the digest.
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

func forgotten(v resp.Value) bool { return noScript(v.Err()) }

// noScript reports whether err is the server's answer that it does not know the script.
func noScript(err error) bool {
	reply, ok := answer(err)
	return ok && errors.Is(reply, resp.ErrNoScript)
}

// lacksReadOnly reports whether err is the server's answer that it does not know EVALSHA_RO. A script may return an error
// that speaks of some other command.
func lacksReadOnly(err error) bool {
	reply, ok := answer(err)
	return ok && strings.HasPrefix(string(reply), "ERR unknown command") &&
		strings.Contains(strings.ToUpper(string(reply)), "EVALSHA_RO")
}

// answer returns the error reply that err is. One that is only the cause of a failed connection answers nothing: the
// script may run yet.
func answer(err error) (resp.Error, bool) {
	if err == nil || errors.Is(err, conn.ErrUncertain) || errors.Is(err, conn.ErrNotSent) {
		return "", false
	}
	return errors.AsType[resp.Error](err)
}

// command encodes a call of a script. The words stay on the stack unless there are many keys, and args do in any case.
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
