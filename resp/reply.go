package resp

import (
	"math"
	"strings"
)

const (
	// smallText is the longest string that shares its memory with others.
	smallText = 4 << 10
	textBits  = 13 // of an item, enough for smallText

	// maxScratch is the most memory, in bytes, that is kept from one reply to the next.
	maxScratch = 64 << 10

	itemBytes = 16 // of an item and of a span

	// believed is how many times longer than its beginning a string may be for its memory to be made at once.
	believed = 64
)

// item is a value while the reply it belongs to is being read. It holds no
// pointer: its text is in reply.text or reply.texts, its elements are a span.
type item struct {
	num     uint64 // as in Value; of a text, its place and length, or its index if alone
	span    int32  // 1 + index in reply.spans, 0 for none
	kind    Kind
	alone   bool // the text is one of reply.texts
	spelled bool // a double with a text
}

// span says which of the items in reply.done are elements and attributes of one item.
type span struct{ elems, numElems, attrs, numAttrs int32 }

// frame is an aggregate of which not all elements have been read. An attribute is a
// frame too, and so is a streamed string, whose elements are its chunks.
type frame struct {
	kind   Kind
	chunks bool // a streamed string
	num    int  // values so far, keys and values of a map each; bytes of a streamed string
	want   int  // values in all; negative if streamed
	first  int  // where its items begin in reply.items, or its bytes in reply.text
	attrs  int  // pairs of attributes that wait for the next value
	at     int  // where the items of those begin
}

// reply is the state of the reply being read. Items are collected on a stack; those
// of an aggregate move to done, so that they stand together, when it is whole.
// When the reply is, its texts, its values and its nodes take one allocation each.
type reply struct {
	frames   []frame // from the outermost to the innermost; empty between replies
	mark     byte    // the first byte
	skipping bool    // nothing is kept
	elements int     // values announced so far
	end      int64   // offset in the stream that the reply may not pass

	items []item
	done  []item
	spans []span
	text  []byte
	texts []string // those too long to share memory
	body  body
}

// body is a string that is longer than what is buffered.
type body struct {
	active bool
	chunk  bool // of a streamed string
	kind   Kind
	size   int
	left   int // bytes of it not yet consumed
	text   strings.Builder
}

// top returns the innermost frame. It is valid until a frame is added.
func (p *reply) top() *frame { return &p.frames[len(p.frames)-1] }

// add adds a whole value to the innermost frame and closes each that is whole by that.
func (p *reply) add(it item) {
	p.push(it)
	p.settle()
}

// push adds a whole value to the innermost frame.
func (p *reply) push(it item) {
	f := p.top()
	if !p.skipping {
		if f.attrs > 0 {
			p.attach(&it, f.at)
		}
		p.items = append(p.items, it)
	}
	f.attrs = 0
	f.num++
	if f.want < 0 {
		p.elements++
	}
}

// settle closes the innermost frame if it is whole, and then that around it.
func (p *reply) settle() {
	for f := p.top(); f.num == f.want; f = p.top() {
		switch f.kind {
		case root:
			p.frames = p.frames[:0]
			return
		case attribute: // its items wait where they are
			p.frames = p.frames[:len(p.frames)-1]
			return
		}
		p.push(p.close())
	}
}

// attach moves the items from index at on to done as the attributes of it.
func (p *reply) attach(it *item, at int) {
	if at == len(p.items) {
		return
	}
	if it.span == 0 {
		p.spans = append(p.spans, span{})
		it.span = int32(len(p.spans))
	}
	s := &p.spans[it.span-1]
	s.attrs, s.numAttrs = int32(len(p.done)), int32(len(p.items)-at)
	p.done = append(p.done, p.items[at:]...)
	p.items = p.items[:at]
}

// close removes the innermost frame, an aggregate that is whole, and returns its item.
func (p *reply) close() item {
	f := *p.top()
	p.frames = p.frames[:len(p.frames)-1]
	it := item{kind: f.kind}
	if p.skipping || f.num == 0 {
		return it
	}
	p.spans = append(p.spans, span{elems: int32(len(p.done)), numElems: int32(f.num)})
	it.span = int32(len(p.spans))
	if f.first == 0 && len(p.done) == 0 {
		p.items, p.done = p.done, p.items
		return it
	}
	p.done = append(p.done, p.items[f.first:]...)
	p.items = p.items[:f.first]
	return it
}

// addText adds a string to the innermost frame.
func (p *reply) addText(kind Kind, s []byte) {
	it := item{kind: kind}
	switch {
	case p.skipping:
	case len(s) > smallText:
		it.num, it.alone = uint64(len(p.texts)), true
		p.texts = append(p.texts, string(s))
	default:
		it.num = uint64(len(p.text))<<textBits | uint64(len(s))
		p.text = append(p.text, s...)
	}
	p.add(it)
}

// addDouble adds a double to the innermost frame, and its text if that is not the one that the number would be given. Of infinities and
// NaNs, which have many, it is never kept.
func (p *reply) addDouble(f float64, line []byte) {
	it := item{kind: Double, num: math.Float64bits(f)}
	var buf [32]byte
	if !p.skipping && !math.IsInf(f, 0) && !math.IsNaN(f) && string(appendFloat(buf[:0], f, 64)) != string(line) {
		it.num = uint64(len(p.text))<<textBits | uint64(len(line))
		it.spelled = true
		p.text = append(p.text, line...)
	}
	p.add(it)
}

// value returns the reply that has been read.
func (p *reply) value() Value {
	var nodes []node
	text := string(p.text)
	values := make([]Value, len(p.done))
	if len(p.spans) > 0 {
		nodes = make([]node, len(p.spans))
	}
	for i := range p.done {
		it, v := &p.done[i], &values[i]
		if it.kind == BulkString && it.span == 0 && !it.alone { // as set does, for speed
			at := it.num >> textBits
			v.num, v.str = uint64(BulkString), text[at:at+it.num&(1<<textBits-1)]
			continue
		}
		p.set(v, it, text, nodes)
	}
	for i, s := range p.spans {
		n := &nodes[i]
		if s.numElems > 0 {
			n.elems = values[s.elems : s.elems+s.numElems : s.elems+s.numElems]
		}
		if s.numAttrs > 0 {
			n.attrs = values[s.attrs : s.attrs+s.numAttrs : s.attrs+s.numAttrs]
		}
	}
	var v Value
	p.set(&v, &p.items[0], text, nodes)
	return v
}

// set makes of it the value v, which is zero.
func (p *reply) set(v *Value, it *item, text string, nodes []node) {
	v.num = uint64(it.kind)
	if it.span != 0 {
		v.node = &nodes[it.span-1]
		v.node.kind = it.kind
	}
	switch {
	case it.spelled:
		at := it.num >> textBits
		v.str = text[at : at+it.num&(1<<textBits-1)]
		f, _ := parseDouble([]byte(v.str))
		v.num = math.Float64bits(f)
		if v.node == nil {
			v.node = &bare[Double]
		}
	case it.kind.isNumber():
		v.num = it.num
		if v.node == nil {
			v.node = &bare[it.kind]
		}
	case !it.kind.isText():
	case it.alone:
		v.str = p.texts[it.num]
	default:
		at := it.num >> textBits
		v.str = text[at : at+it.num&(1<<textBits-1)]
	}
}

// reset forgets the reply, and its memory if that is much.
func (p *reply) reset() {
	p.frames = p.frames[:0]
	p.skipping = false
	p.discard()
	if cap(p.text)+itemBytes*(cap(p.items)+cap(p.done)+cap(p.spans)+cap(p.texts)+4*cap(p.frames)) > maxScratch {
		*p = reply{}
	}
}

// discard forgets the items of the reply, but not how much of it has been read.
func (p *reply) discard() {
	p.items, p.done, p.spans, p.text = p.items[:0], p.done[:0], p.spans[:0], p.text[:0]
	clear(p.texts)
	p.texts = p.texts[:0]
	p.body.text.Reset()
}

// write takes the next bytes of the body.
func (p *reply) write(s []byte) {
	b := &p.body
	b.left -= len(s)
	switch {
	case p.skipping:
	case b.chunk:
		p.text = append(p.text, s...)
	default:
		// A Builder would grow to more than the string needs. A size that the
		// peer has only announced is not believed beyond so many times what there is.
		if have := b.text.Len(); have+len(s) > b.text.Cap() {
			old := b.text.String()
			b.text.Reset()
			b.text.Grow(min(b.size, max(maxBuffer, believed*(have+len(s)))))
			b.text.WriteString(old)
		}
		b.text.Write(s)
	}
}
