package resp

import (
	"bytes"
	"strconv"
)

// step reads one header with its text, or the rest of a string, and adds the result to the reply.
// After an error of the source, calling step again continues without loss.
func (r *Reader) step() error {
	if r.body.active {
		return r.readBody()
	}
	f := r.top()
	// readRun reads no streamed aggregate, no value behind attributes, and not the first element of a push, a string.
	if f.want > 0 && f.attrs == 0 && (f.num > 0 || f.kind != Push) && r.readRun(f) {
		r.closeComplete()
		return nil
	}
	if err := r.need(1); err != nil {
		return err
	}
	mark := r.buf[r.r]
	switch {
	case f.chunks && mark != ';':
		return r.syntax(0, "a streamed string has something else than chunks")
	case f.kind == Push && f.num == 0 && kindOf(mark) != SimpleString && kindOf(mark) != BulkString && mark != '=' && mark != '|':
		return r.syntax(0, "a push does not begin with a string")
	case f.want < 0 && !f.chunks && mark != '.' && r.elements >= r.lim.Elements:
		return r.exceeds("elements", r.lim.Elements)
	}
	switch mark {
	case '+', '-', '(', ',', ':', '#', '_':
		return r.readLine(mark)
	case '$', '!', '=':
		return r.readText(mark)
	case '*', '%', '~', '>', '|':
		return r.readAggregate(mark)
	case ';':
		return r.readChunk()
	case '.':
		return r.readEnd()
	}
	return r.unknown(mark)
}

// readRun reads consecutive elements of f that are short, completely buffered and of the most
// common types. It reports whether it read any. readRun exists only for speed: step reads the same
// elements.
func (r *Reader) readRun(f *frame) bool {
	b := r.buf[r.r:r.w]
	if left := r.end - r.offset(); int64(len(b)) > left {
		b = b[:left]
	}
	size, num := len(b), f.num
	small := min(smallText, r.lim.Bulk)
	for num < f.want && len(b) > 0 {
		var it item
		from, to, next := 0, 0, 0 // the text b[from:to], and the index after the element
		switch b[0] {
		case '$':
			if from, to, next = shortBulk(b, small); next == 0 {
				next = shortNull(b)
				break
			}
			it = item{kind: BulkString, num: uint64(len(r.text))<<textBits | uint64(to-from)}
		case ':':
			var n int
			n, next = shortNumber(b)
			it = item{kind: Integer, num: uint64(n)}
		case '_':
			next = shortNull(b)
		}
		if next == 0 {
			break
		}
		if !r.skipping {
			r.text = append(r.text, b[from:to]...)
			r.items = append(r.items, it)
		}
		b = b[next:]
		num++
	}
	if num == f.num {
		return false
	}
	r.r += size - len(b)
	f.num = num
	return true
}

// readLine reads a value that is a line: a number, a boolean, a null, or a text without a length.
func (r *Reader) readLine(mark byte) error {
	most, limit := maxNumber, ""
	switch mark {
	case '+', '-', '(':
		most, limit = r.lim.Line, "line"
	case ',':
		most = maxDouble
	}
	line, err := r.line(most, limit)
	if err != nil {
		return err
	}
	it, f, valid := item{kind: kindOf(mark)}, 0.0, true
	switch mark {
	case ':':
		n, err := strconv.ParseInt(string(line), 10, 64)
		it.num, valid = uint64(n), err == nil
	case '#':
		valid = string(line) == "t" || string(line) == "f"
		if string(line) == "t" {
			it.num = 1
		}
	case '_':
		valid = len(line) == 0
	case '(':
		valid = parseBigNumber(line)
	case ',':
		f, valid = parseDouble(line)
	}
	if !valid {
		return r.syntax(0, "malformed "+it.kind.String())
	}
	r.r += len(line) + 3
	switch mark {
	case '+', '-', '(':
		r.addText(it.kind, line)
	case ',':
		r.addDouble(f, line)
	default:
		r.add(it)
	}
	return nil
}

// readText reads a string with a length. If a long string is not completely buffered, readText
// reads only the header; readBody reads the rest.
func (r *Reader) readText(mark byte) error {
	n, header, err := r.header()
	switch f := r.top(); {
	case err != nil:
		return err
	case n == streamed && mark == '$':
		r.r += header
		r.frames = append(r.frames, frame{kind: BulkString, chunks: true, want: -1, start: len(r.text)})
		return nil
	case n == null && mark == '$' && f.kind == Push && f.num == 0:
		return r.syntax(0, "a push does not begin with a string")
	case n == null && mark == '$':
		r.r += header
		r.add(item{kind: Null})
		return nil
	case n < 0:
		return r.syntax(0, "malformed length")
	case mark == '=' && n < formatLen:
		return r.syntax(0, "a verbatim string is too short for its format")
	}
	if err := r.checkLength(header, n, r.lim.Bulk); err != nil {
		return err
	}
	kind, size := kindOf(mark), header+n+2
	ahead := min(size, header+smallText+2)
	if mark == '=' && ahead < size {
		ahead = header + formatLen
	}
	if err := r.need(ahead); err != nil {
		return err
	}
	if mark == '=' && r.buf[r.r+header+formatLen-1] != ':' {
		return r.syntax(header, "a verbatim string has no format")
	}
	if r.Buffered() < size {
		r.r += header
		r.body.active, r.body.chunk = true, false
		r.body.kind, r.body.size, r.body.left = kind, n, n
		return nil
	}
	s := r.buf[r.r+header:]
	if s[n] != '\r' || s[n+1] != '\n' {
		return r.syntax(header+n, "string without CR LF at its end")
	}
	r.r += size
	r.addText(kind, s[:n])
	return nil
}

// readBody reads the rest of a string, or of a chunk. Before it allocates, it waits for a part of the string large enough to
// trust the announced length (see allocAhead), unless the string is very long.
func (r *Reader) readBody() error {
	b := &r.body
	if !r.skipping && !b.chunk && len(b.text) == 0 {
		if err := r.need(min(b.size/allocAhead, minBuffer-1)); err != nil {
			return err
		}
	}
	for b.left > 0 {
		if r.r == r.w {
			if direct, err := r.fillBody(); err != nil {
				return err
			} else if direct {
				continue
			}
		}
		s := r.buf[r.r:min(r.w, r.r+b.left)]
		r.addBody(s)
		r.r += len(s)
	}
	if err := r.need(2); err != nil {
		return err
	}
	if r.buf[r.r] != '\r' || r.buf[r.r+1] != '\n' {
		return r.syntax(0, "string without CR LF at its end")
	}
	r.r += 2
	b.active = false
	if b.chunk {
		return nil
	}
	it := item{kind: b.kind, num: uint64(len(r.longTexts)), long: true}
	if !r.skipping {
		r.longTexts = append(r.longTexts, ownText(b.text))
		b.text = nil
	}
	r.add(it)
	return nil
}

// fillBody reads more of a string: directly into the string's memory if there is much to read and room for it, and
// otherwise into the buffer.
func (r *Reader) fillBody() (direct bool, err error) {
	b := &r.body
	if r.skipping || b.chunk || b.left < minBuffer {
		return false, r.fill()
	}
	b.grow(1)
	room := b.text[len(b.text):min(cap(b.text), b.size)]
	if len(room) < minBuffer {
		return false, r.fill()
	}
	n, err := r.readInto(room)
	b.text = b.text[:len(b.text)+n]
	b.left -= n
	return true, err
}

// readChunk reads the header of a chunk; readBody then reads its text. A chunk of length 0 ends the
// streamed string.
func (r *Reader) readChunk() error {
	f := r.top()
	if !f.chunks {
		return r.syntax(0, "a chunk outside of a streamed string")
	}
	n, header, err := r.header()
	switch {
	case err != nil:
		return err
	case n < 0:
		return r.syntax(0, "malformed length")
	case n == 0:
		r.r += header
		first := min(f.start, len(r.text)) // Skip has dropped the text
		s := r.text[first:]
		r.frames, r.text = r.frames[:len(r.frames)-1], r.text[:first]
		r.addText(BulkString, s)
		return nil
	}
	if err := r.checkLength(header, n, r.lim.Bulk-f.num); err != nil {
		return err
	}
	r.r += header
	f.num += n
	r.body.active, r.body.chunk, r.body.left = true, true, n
	return nil
}

// readAggregate reads the header of an aggregate or an attribute.
func (r *Reader) readAggregate(mark byte) error {
	f := r.top()
	if mark == '>' && f.kind != root {
		return r.syntax(0, "a push inside of another value")
	}
	n, header, err := r.header()
	if err != nil {
		return err
	}
	per, own := 1, 0 // values per element counted by n; values that no earlier header has counted
	if mark == '%' || mark == '|' {
		per = 2
	}
	if f.want < 0 && mark != '|' {
		own = 1
	}
	switch {
	case n == null && mark == '*':
		r.r += header
		r.add(item{kind: Null})
		return nil
	case n < 0 && (n == null || mark == '>' || mark == '|'):
		return r.syntax(0, "malformed length")
	case n == 0 && mark == '>':
		return r.syntax(0, "a push without elements")
	case n > max(0, r.lim.Elements-r.elements-own)/per:
		return r.exceeds("elements", r.lim.Elements)
	case len(r.frames) > r.lim.Depth:
		return r.exceeds("depth", r.lim.Depth)
	case mark == '|' && max(1, n) > r.lim.Attributes-f.attrs:
		return r.exceeds("attributes", r.lim.Attributes)
	}
	r.r += header
	r.elements += own + max(0, n*per)
	if mark == '|' {
		if f.attrs == 0 {
			f.attrsFrom = len(r.items)
		}
		f.attrs += max(1, n)
	}
	switch {
	case n != 0:
		r.frames = append(r.frames, frame{kind: kindOf(mark), want: n * per, start: len(r.items)})
	case mark != '|': // complete
		r.add(item{kind: kindOf(mark)})
	}
	return nil
}

func (r *Reader) readEnd() error {
	f := r.top()
	line, err := r.line(maxNumber, "")
	switch {
	case err != nil:
		return err
	case len(line) > 0:
		return r.syntax(0, "an end mark with something behind it")
	case f.want >= 0:
		return r.syntax(0, "an end mark outside of a streamed aggregate")
	case f.attrs > 0:
		return r.syntax(0, "attributes without a value")
	case f.kind == Map && f.num%2 != 0:
		return r.syntax(0, "a key without a value in a streamed map")
	}
	r.r += 3
	r.add(r.close())
	return nil
}

// line waits for the next line and returns it without the type byte, but does not consume it. The
// slice is valid until the next read. limit names the limit in a [LimitError]; if limit is "", a
// line longer than most is a syntax error.
func (r *Reader) line(most int, limit string) ([]byte, error) {
	if left := r.end - r.offset() - 3; left < int64(most) {
		most, limit = int(left), "total"
	}
	for done := 0; ; {
		b := r.buf[r.r:r.w]
		n := len(b) - 2 // the length of the line, at least
		newline := bytes.IndexByte(b[done:], '\n')
		if newline >= 0 {
			n = done + newline - 2
		}
		switch {
		case n > most && limit == "total":
			return nil, r.exceeds(limit, r.lim.Total)
		case n > most && limit == "line":
			return nil, r.exceeds(limit, r.lim.Line)
		case n > most:
			return nil, r.syntax(0, "number line too long")
		case newline < 0:
			done = len(b)
			if err := r.fill(); err != nil {
				return nil, err
			}
		case n < 0 || bytes.IndexByte(b[:n+2], '\r') != n+1:
			return nil, r.syntax(0, "CR or LF alone in a line")
		default:
			return b[1 : n+1], nil
		}
	}
}

// Results of header in place of a length.
const (
	null     = -1
	streamed = -2
)

// header waits for the next line, and returns the length in the line and the size of the line. It
// does not consume the line.
func (r *Reader) header() (n, size int, err error) {
	if n, size = shortNumber(r.buf[r.r:r.w]); size > 0 && int64(size) <= r.end-r.offset() {
		return n, size, nil
	}
	line, err := r.line(maxNumber, "")
	if err != nil {
		return 0, 0, err
	}
	size = len(line) + 3
	switch string(line) {
	case "-1":
		return null, size, nil
	case "?":
		return streamed, size, nil
	}
	n, ok := parseLength(line)
	if !ok {
		return 0, 0, r.syntax(0, "malformed length")
	}
	return n, size, nil
}

// checkLength returns an error if a string of n bytes, following its header, exceeds a limit.
func (r *Reader) checkLength(header, n, most int) error {
	switch {
	case n > most:
		return r.exceeds("bulk", r.lim.Bulk)
	case int64(n) > r.end-r.offset()-int64(header)-2:
		return r.exceeds("total", r.lim.Total)
	}
	return nil
}

func (r *Reader) exceeds(limit string, most int) error {
	return &LimitError{Limit: limit, Max: most, Offset: r.offset()}
}

// syntax returns a SyntaxError n bytes after the present offset.
func (r *Reader) syntax(n int, reason string) error {
	return &SyntaxError{Offset: r.offset() + int64(n), Reason: reason}
}

// unknown returns the error for an unknown type byte, with a hint if the peer seems to speak
// another protocol.
func (r *Reader) unknown(mark byte) error {
	switch mark {
	case 'H':
		return r.syntax(0, "unknown type byte 'H', as of an HTTP server,")
	case 0x15, 0x16: // TLS records: alert and handshake
		return r.syntax(0, "unknown type byte, as of a server that wants TLS,")
	}
	return r.syntax(0, "unknown type byte")
}
