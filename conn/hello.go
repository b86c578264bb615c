package conn

import (
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"strings"
	"sync"

	"github.com/lockwire/lockwire/conn/internal/pipeline"
	"github.com/lockwire/lockwire/internal/netfail"
	"github.com/lockwire/lockwire/resp"
)

var (
	errNotMaster   = errors.New("the server is not a master")
	errEarlyPushes = errors.New("too many pushes before the end of the handshake")
)

// step is one command of a handshake.
type step struct {
	cmd      resp.Command
	optional bool // ignore an error reply
	role     bool // the reply must be the role of a master
}

// handshake introduces the client on one connection. The server answers each command with one reply; pushes in
// between do not count as replies.
type handshake struct {
	*dialRun
	s         *pipeline.Session
	name      string // of the connection
	role      string // from the reply to HELLO
	pushBytes int    // size of s.Pushes
	received  int    // number of replies
	greeted   bool   // the server answered HELLO
}

// negotiate introduces the client and returns the RESP version agreed on. It writes once, or twice if the server refuses
// RESP3. After an error the connection is unusable.
//
// Any refusal of HELLO leads to RESP2, whatever its text, with two exceptions: a refusal of the credentials, which
// negotiate does not send twice, and a temporary refusal such as LOADING.
func (h *handshake) negotiate() (proto int, err error) {
	if !h.hello {
		return 2, h.introduce()
	}
	steps := h.steps()
	if err := h.write(steps); err != nil {
		return 0, err
	}
	hello, err := h.read()
	if err != nil {
		return 0, err
	}
	h.greeted = true
	err = h.refusal(hello)
	if netfail.Denied(err) || netfail.Reply(err) != netfail.Final {
		return 0, fmt.Errorf("HELLO: %w", err)
	}
	if err == nil {
		if proto, err = h.agreed(hello); err == nil {
			return proto, h.check(steps[1:])
		}
	}
	if h.cfg.Protocol == 3 {
		return 0, fmt.Errorf("HELLO: %w (the server does not support RESP3, and Protocol requires it)", err)
	}
	h.hello = false
	for range len(steps) - 1 { // the other replies no longer matter: the commands ran before AUTH
		if _, err := h.read(); err != nil {
			return 2, err
		}
	}
	return 2, h.introduce()
}

// fallback returns the variant without the commands that made the server close the connection: without the identity,
// and without HELLO unless it was answered or is required.
func (h *handshake) fallback() variant {
	return variant{hello: h.hello && (h.greeted || h.cfg.Protocol == 3)}
}

func (h *handshake) introduce() error {
	steps := h.steps()
	if err := h.write(steps); err != nil {
		return err
	}
	return h.check(steps)
}

// agreed returns the RESP version in the reply to HELLO. A proxy may have chosen another version than the requested
// one.
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
	return 0, fmt.Errorf("unexpected reply of kind %v, without a protocol version", hello.Kind())
}

// steps returns the commands of a handshake, beginning with HELLO if h.hello is set. Without HELLO:
//
//   - Servers before Redis 6 only know AUTH with one argument.
//   - Without credentials, PING finds out whether the server requires authentication.
//
// A refusal of the names added by Pool.Introduce is ignored.
func (h *handshake) steps() []step {
	var steps []step
	required := func(args ...any) { steps = append(steps, step{cmd: resp.Cmd(args...)}) }
	optional := func(args ...any) { steps = append(steps, step{cmd: resp.Cmd(args...), optional: true}) }
	named := h.identity && h.cfg.ClientName != ""
	switch {
	case h.hello:
		hello := []any{"HELLO", 3}
		if h.authenticates() {
			hello = append(hello, "AUTH", h.user, h.password)
		}
		if named {
			hello = append(hello, "SETNAME", h.cfg.ClientName)
		}
		required(hello...)
	case !h.authenticates():
		optional("PING")
	case h.user == "default":
		required("AUTH", h.password)
	default:
		required("AUTH", h.user, h.password)
	}
	if named && !h.hello {
		required("CLIENT", "SETNAME", h.cfg.ClientName)
	}
	if h.cfg.DB != 0 {
		required("SELECT", h.cfg.DB)
	}
	if h.identity {
		optional("CLIENT", "SETINFO", "LIB-NAME", "lockwire")
		optional("CLIENT", "SETINFO", "LIB-VER", libraryVersion())
	}
	if h.name = h.cfg.ClientName; h.cfg.name != nil {
		h.name = h.cfg.name()
	}
	if h.identity && h.name != h.cfg.ClientName {
		optional("CLIENT", "SETNAME", h.name)
	}
	for _, cmd := range h.cfg.Extra {
		steps = append(steps, step{cmd: cmd})
	}
	if h.master {
		steps = append(steps, step{cmd: resp.Cmd("ROLE"), role: true})
	}
	return steps
}

// authenticates reports whether the handshake sends credentials. The user "default" without a password is equivalent
// to no authentication, and servers refuse an AUTH for it.
func (h *handshake) authenticates() bool {
	return h.password != "" || h.user != "default"
}

// write sends all steps in one write. A server that rejects a client may reply and close before it reads. If the
// write fails, write therefore prefers the error reply to the error of the write.
func (h *handshake) write(steps []step) error {
	var b []byte
	for _, s := range steps {
		b = s.cmd.AppendTo(b)
	}
	_, err := h.s.Conn.Write(b)
	if err == nil {
		return nil
	}
	v, readErr := h.read()
	switch {
	case readErr == nil && v.Err() != nil:
		return h.refusal(v)
	case netfail.Alert(readErr):
		return readErr
	}
	return err
}

// check reads the reply to each step and returns the first error that matters. An optional step's error is ignored
// unless the server requires authentication.
func (h *handshake) check(steps []step) error {
	for _, s := range steps {
		v, err := h.read()
		if err != nil {
			return err
		}
		err = h.refusal(v)
		switch {
		case s.role:
			err = h.checkRole(v)
		case s.optional && !errors.Is(err, resp.ErrNoAuth):
			err = nil
		}
		if err != nil {
			return fmt.Errorf("%s: %w", netfail.Op(s.cmd.Name()), err)
		}
	}
	return nil
}

// checkRole checks the reply to ROLE. If the user has no permission for ROLE, the role in the reply to HELLO counts.
func (h *handshake) checkRole(v resp.Value) error {
	role, _ := v.At(0).Text()
	if err := h.refusal(v); err != nil {
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

// refusal returns the error of an error reply, or nil. If the server repeats the password, as proxies repeat a command
// that they do not know, refusal cuts the text off there. A password that is one of the words that tell what a refusal
// means stays: every server sends those words.
func (h *handshake) refusal(v resp.Value) error {
	text, ok := v.Err().(resp.Error)
	if !ok {
		return nil
	}
	prefix := len(text.Prefix())
	i := strings.Index(string(text[prefix:]), h.password)
	if h.password == "" || i < 0 {
		return text
	}
	short := text[:prefix+i] + "..."
	if netfail.Denied(short) != netfail.Denied(text) || netfail.Reply(short) != netfail.Reply(text) {
		return text
	}
	return short
}

// read returns the next reply, and appends the pushes in front of it to h.s.Pushes.
func (h *handshake) read() (resp.Value, error) {
	for {
		v, err := h.s.Reader.Read()
		if err != nil {
			return resp.Value{}, h.explain(err)
		}
		if v.Kind() != resp.Push {
			h.received++
			return v, nil
		}
		h.s.Pushes, h.pushBytes = append(h.s.Pushes, v), h.pushBytes+sizeOf(v)
		if tooMany(len(h.s.Pushes), h.pushBytes) {
			return resp.Value{}, errEarlyPushes
		}
	}
}

// explain adds the likely cause to an error of the first read if the server may expect TLS.
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

// libraryVersion returns the version of this module in the running program.
var libraryVersion = sync.OnceValue(func() string {
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
})
