package conn

import (
	"errors"
	"fmt"
	"io"
	"net"
	"runtime/debug"
	"strings"

	"github.com/lockwire/lockwire/internal/netfail"
	"github.com/lockwire/lockwire/resp"
)

// maxEarlyPushes bounds what a server can make the handshake set aside.
const maxEarlyPushes = 1024

// step is one command of a handshake.
type step struct {
	cmd      resp.Command
	optional bool // an error in reply does no harm
	role     bool // the reply must say that the server is a master
}

// handshake introduces the client on one connection. Every command written is one reply to read; pushes in between
// are none.
type handshake struct {
	nc             net.Conn
	r              *resp.Reader
	cfg            *Config
	master         bool // the server must say that it is one
	user, password string
	manner
	role     string // as HELLO says it
	pushes   []resp.Value
	received int  // replies
	greeted  bool // HELLO was answered
}

// run introduces the client in one write, two where the server does not agree to RESP3, and returns the protocol agreed
// on. The connection is of no more use after an error.
//
// Any refusal of HELLO leads to RESP2, in whatever words a server or a proxy says it; but not one of the client's credentials,
// which are not shown twice, nor one that passes by itself.
func (h *handshake) run() (proto int, err error) {
	if !h.hello {
		return 2, h.introduce(h.steps2())
	}
	steps := h.steps3()
	if err := h.write(steps); err != nil {
		return 0, err
	}
	hello, err := h.read()
	if err != nil {
		return 0, err
	}
	h.greeted = true
	err = hello.Err()
	if netfail.Denied(err) || netfail.Reply(err) != netfail.Final {
		return 0, fmt.Errorf("HELLO: %w", err)
	}
	if err == nil {
		if proto, err = h.agreed(hello); err == nil {
			return proto, h.check(steps[1:])
		}
	}
	if h.cfg.Protocol == 3 {
		return 0, fmt.Errorf("HELLO: %w (the server does not agree to RESP3, and Protocol asks for no other)", err)
	}
	h.hello = false
	return 2, h.startOver(len(steps) - 1)
}

// plainer returns the manner to try when the server has hung up: without what it may not have understood.
func (h *handshake) plainer() manner {
	return manner{hello: h.hello && (h.greeted || h.cfg.Protocol == 3)}
}

// startOver introduces the client in RESP2 after a refused HELLO, of whose write due replies are still to come.
// What they say no longer matters: without HELLO they ran before AUTH.
func (h *handshake) startOver(due int) error {
	for range due {
		if _, err := h.read(); err != nil {
			return err
		}
	}
	return h.introduce(h.steps2())
}

func (h *handshake) introduce(steps []step) error {
	if err := h.write(steps); err != nil {
		return err
	}
	return h.check(steps)
}

// agreed reads the protocol from the reply to HELLO, which a proxy may have chosen otherwise than asked.
func (h *handshake) agreed(hello resp.Value) (proto int, err error) {
	pairs, _ := hello.Pairs()
	for name, value := range pairs {
		switch s, _ := name.Text(); s {
		case "role":
			h.role, _ = value.Text()
		case "proto":
			if n, err := value.Int(); err == nil && (n == 3 || n == 2 && h.cfg.Protocol == 0) {
				proto = int(n)
			}
		}
	}
	if proto != 0 {
		return proto, nil
	}
	return 0, fmt.Errorf("the reply is of kind %v, and names no protocol", hello.Kind())
}

// steps3 are the commands of a handshake in RESP3.
func (h *handshake) steps3() []step {
	hello := []any{"HELLO", 3}
	if h.authenticates() {
		hello = append(hello, "AUTH", h.userOrDefault(), h.password)
	}
	if h.identity && h.cfg.ClientName != "" {
		hello = append(hello, "SETNAME", h.cfg.ClientName)
	}
	return h.appendCommon([]step{{cmd: resp.Cmd(hello...)}})
}

// steps2 are the commands of a handshake in RESP2. Servers before Redis 6 know only the AUTH with one argument. Who has
// nothing to say for himself asks by PING whether he is let in, as HELLO would have told.
func (h *handshake) steps2() []step {
	var steps []step
	switch {
	case !h.authenticates():
		steps = append(steps, step{cmd: resp.Cmd("PING"), optional: true})
	case h.userOrDefault() == "default":
		steps = append(steps, step{cmd: resp.Cmd("AUTH", h.password)})
	default:
		steps = append(steps, step{cmd: resp.Cmd("AUTH", h.user, h.password)})
	}
	if h.identity && h.cfg.ClientName != "" {
		steps = append(steps, step{cmd: resp.Cmd("CLIENT", "SETNAME", h.cfg.ClientName)})
	}
	return h.appendCommon(steps)
}

func (h *handshake) appendCommon(steps []step) []step {
	if h.cfg.DB != 0 {
		steps = append(steps, step{cmd: resp.Cmd("SELECT", h.cfg.DB)})
	}
	if h.identity {
		steps = append(steps,
			step{cmd: resp.Cmd("CLIENT", "SETINFO", "LIB-NAME", "lockwire"), optional: true},
			step{cmd: resp.Cmd("CLIENT", "SETINFO", "LIB-VER", libraryVersion()), optional: true})
	}
	for _, cmd := range h.cfg.Extra {
		steps = append(steps, step{cmd: cmd})
	}
	if h.master {
		steps = append(steps, step{cmd: resp.Cmd("ROLE"), role: true})
	}
	return steps
}

// authenticates reports whether there is anything to prove. To be "default" without a password is no more than not to
// authenticate, which servers refuse to take for an AUTH.
func (h *handshake) authenticates() bool {
	return h.password != "" || h.userOrDefault() != "default"
}

func (h *handshake) userOrDefault() string {
	if h.user == "" {
		return "default"
	}
	return h.user
}

// write sends all steps at once. A server that turns a client away says so before it reads and closes: when the
// write fails its reason may be there to read all the same, and tells more than the error of the write.
func (h *handshake) write(steps []step) error {
	var b []byte
	for _, s := range steps {
		b = s.cmd.AppendTo(b)
	}
	_, err := h.nc.Write(b)
	if err == nil {
		return nil
	}
	v, readErr := h.read()
	switch {
	case readErr == nil && v.Err() != nil:
		return v.Err()
	case netfail.Alert(readErr):
		return readErr
	}
	return err
}

// check reads the reply to each step and returns the first error that matters. Not to be let in at all always does;
// an optional step may be the only one to tell.
func (h *handshake) check(steps []step) error {
	for _, s := range steps {
		v, err := h.read()
		if err != nil {
			return err
		}
		err = v.Err()
		switch {
		case s.role:
			err = h.checkRole(v)
		case s.optional && !errors.Is(err, resp.ErrNoAuth):
			err = nil
		}
		if err != nil {
			return fmt.Errorf("%s: %w", printable(s.cmd.Name()), err)
		}
	}
	return nil
}

// checkRole takes the reply to ROLE. A user who may not ask has been told the role by HELLO, in RESP3.
func (h *handshake) checkRole(v resp.Value) error {
	role, _ := v.At(0).Text()
	if err := v.Err(); err != nil {
		if !errors.Is(err, resp.ErrNoPerm) || h.role == "" {
			return err
		}
		role = h.role
	}
	if role != "master" {
		return errNotMaster
	}
	return nil
}

// read returns the next reply, with pushes that come first set aside.
func (h *handshake) read() (resp.Value, error) {
	for {
		v, err := h.r.Read()
		if err != nil {
			return resp.Value{}, h.explain(err)
		}
		if v.Kind() != resp.Push {
			h.received++
			return v, nil
		}
		if len(h.pushes) == maxEarlyPushes {
			return resp.Value{}, fmt.Errorf("more than %d pushes before its end", maxEarlyPushes)
		}
		h.pushes = append(h.pushes, v)
	}
}

// explain adds the likely cause where a first reply that is none points to TLS on the server's side alone.
func (h *handshake) explain(err error) error {
	syntax, garbled := errors.AsType[*resp.SyntaxError](err)
	switch {
	case h.cfg.TLS != nil || h.received > 0:
	case garbled && syntax.Offset == 0:
		return fmt.Errorf("%w (the server may expect TLS)", err)
	case errors.Is(err, io.EOF), isReset(err):
		return fmt.Errorf("closed by the server without a reply, as one that expects TLS may do: %w", err)
	}
	return err
}

// libraryVersion is the version of this module in the program that runs.
func libraryVersion() string {
	const path = "github.com/lockwire/lockwire"
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "devel"
	}
	for _, m := range append(info.Deps, &info.Main) {
		if m.Path == path && strings.HasPrefix(m.Version, "v") {
			return m.Version
		}
	}
	return "devel"
}
