package fakeredis

import (
	"bufio"
	"bytes"
	"io"
	"strconv"
	"strings"
)

const (
	maxArgs = 1 << 20
	maxBulk = 64 << 20
	maxLine = 64 << 10
)

// protocolError is the server's reply to bytes that are no request, before the close of the connection.
type protocolError string

func (e protocolError) Error() string { return string(e) }

// readRequest reads a command: an array of bulk strings, or a line of words. An empty command has no arguments.
func readRequest(r *bufio.Reader) ([]string, error) {
	line, err := readLine(r)
	if err != nil {
		return nil, err
	}
	if !strings.HasPrefix(line, "*") {
		return strings.Fields(line), nil
	}
	n, err := strconv.Atoi(line[1:])
	if err != nil || n > maxArgs {
		return nil, protocolError("ERR Protocol error: invalid multibulk length")
	}
	args := make([]string, 0, max(0, min(n, 64)))
	for range n {
		arg, err := readBulk(r)
		if err != nil {
			return nil, err
		}
		args = append(args, arg)
	}
	return args, nil
}

func readBulk(r *bufio.Reader) (string, error) {
	line, err := readLine(r)
	if err != nil {
		return "", err
	}
	if !strings.HasPrefix(line, "$") {
		return "", protocolError("ERR Protocol error: expected '$', got '" + (line + " ")[:1] + "'")
	}
	n, err := strconv.Atoi(line[1:])
	if err != nil || n < 0 || n > maxBulk {
		return "", protocolError("ERR Protocol error: invalid bulk length")
	}
	if n <= r.Size() {
		part, err := r.Peek(n)
		if err != nil {
			return "", err
		}
		text := string(part)
		_, err = r.Discard(n + 2)
		return text, err
	}
	var b strings.Builder
	if _, err := io.CopyN(&b, r, int64(n)); err != nil {
		return "", err
	}
	_, err = r.Discard(2)
	return b.String(), err
}

func readLine(r *bufio.Reader) (string, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		if err == nil && len(line) == 0 {
			return string(bytes.TrimRight(part, "\r\n")), nil
		}
		line = append(line, part...)
		if len(line) > maxLine {
			return "", protocolError("ERR Protocol error: too big inline request")
		}
		if err == nil {
			return strings.TrimRight(string(line), "\r\n"), nil
		}
		if err != bufio.ErrBufferFull {
			return "", err
		}
	}
}
