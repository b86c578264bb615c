package floor

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
)

// Reply is the part of a reply used by the floors.
type Reply struct {
	Kind byte  // the first byte of the reply; '_' for every kind of null
	N    int64 // the integer, or the length of a string or an array, whose elements were skipped
}

// Conn is a connection for a single goroutine.
type Conn struct {
	nc net.Conn
	br *bufio.Reader
}

// Dial connects, over TLS if secure is not nil.
func Dial(network, addr string, secure *tls.Config) (*Conn, error) {
	nc, err := net.Dial(network, addr)
	if err != nil {
		return nil, err
	}
	if secure != nil {
		nc = tls.Client(nc, secure)
	}
	return &Conn{nc: nc, br: bufio.NewReaderSize(nc, 32<<10)}, nil
}

// Close closes the connection.
func (c *Conn) Close() { c.nc.Close() }

// Do sends a request and reads its reply.
func (c *Conn) Do(request []byte) (Reply, error) {
	if _, err := c.nc.Write(request); err != nil {
		return Reply{}, err
	}
	return c.Read()
}

// DoAll sends n requests in a single write and reads their replies.
func (c *Conn) DoAll(requests []byte, n int) error {
	if _, err := c.nc.Write(requests); err != nil {
		return err
	}
	for range n {
		if _, err := c.Read(); err != nil {
			return err
		}
	}
	return nil
}

// Read reads a reply.
func (c *Conn) Read() (Reply, error) { return Read(c.br) }

// Read reads a reply and drops the content.
func Read(br *bufio.Reader) (Reply, error) {
	line, err := br.ReadSlice('\n')
	if err != nil {
		return Reply{}, err
	}
	if len(line) < 3 {
		return Reply{}, errors.New("floor: empty line")
	}
	r := Reply{Kind: line[0]}
	switch r.Kind {
	case '+', '#', ',':
		return r, nil
	case '-':
		return r, errors.New("floor: " + string(line[1:len(line)-2]))
	case ':':
		r.N, err = number(line)
		return r, err
	case '_':
		return r, nil
	}
	if r.N, err = number(line); err != nil {
		return r, err
	}
	if r.N < 0 {
		return Reply{Kind: '_'}, nil
	}
	return r, skip(br, r)
}

// skip passes over the content of a reply.
func skip(br *bufio.Reader, r Reply) error {
	switch r.Kind {
	case '$', '=':
		_, err := br.Discard(int(r.N) + 2)
		return err
	case '%':
		r.N *= 2
	case '*', '~', '>':
	default:
		return fmt.Errorf("floor: unknown kind of reply %q", r.Kind)
	}
	for range r.N {
		if _, err := Read(br); err != nil {
			return err
		}
	}
	return nil
}

func number(line []byte) (int64, error) {
	n, negative := int64(0), false
	for _, c := range line[1 : len(line)-2] {
		switch {
		case c == '-':
			negative = true
		case c < '0' || c > '9':
			return 0, errors.New("floor: not a number")
		default:
			n = n*10 + int64(c-'0')
		}
	}
	if negative {
		n = -n
	}
	return n, nil
}

// Message reads the next message of a subscribed connection in RESP2, and returns its channel and payload.
func (c *Conn) Message() (channel, payload string, err error) {
	for {
		var words [3]string
		line, err := c.br.ReadSlice('\n')
		if err != nil {
			return "", "", err
		}
		if string(line) != "*3\r\n" {
			return "", "", errors.New("floor: not a message")
		}
		for i := range words {
			if words[i], err = c.word(); err != nil {
				return "", "", err
			}
		}
		if words[0] == "message" {
			return words[1], words[2], nil
		}
	}
}

// word reads a bulk string, or an integer as its text.
func (c *Conn) word() (string, error) {
	line, err := c.br.ReadSlice('\n')
	if err != nil {
		return "", err
	}
	n, err := number(line)
	if err != nil || line[0] != '$' {
		return strconv.FormatInt(n, 10), err
	}
	text := make([]byte, n+2)
	_, err = io.ReadFull(c.br, text)
	return string(text[:n]), err
}

// Request encodes a command.
func Request(words ...string) []byte {
	b := fmt.Appendf(nil, "*%d\r\n", len(words))
	for _, w := range words {
		b = fmt.Appendf(b, "$%d\r\n%s\r\n", len(w), w)
	}
	return b
}
