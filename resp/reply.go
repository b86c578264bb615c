package resp

import "math"

const (
	// smallText is the length of the longest string that shares memory with the reply's other
	// strings.
	smallText = 4 << 10
	textBits  = 13 // bits of item.num for a length up to smallText

	// maxScratch limits the memory, in bytes, that a Reader keeps from a reply for the next.
	maxScratch = 64 << 10

	itemBytes = 16 // size of an item, and of a span

	// allocAhead bounds the memory allocated for a long string: 128 times the bytes received, or
	// maxBuffer if more.
	allocAhead = 128
)

// item is a value of an unfinished reply. An item holds no pointer: reply.text or reply.longTexts
// holds its text, and a span locates its elements.
type item struct {
	num     uint64 // as in Value; for a text: offset and length, or the index in longTexts
	span    int32  // 1 + index in reply.spans; 0 for none
	kind    Kind
	long    bool // the text is in reply.longTexts
	hasText bool // a double with its original text
}

// text returns the text of an item, which must not be long. all is the text of the reply.
func (it *item) text(all string) string {
	at := it.num >> textBits
	return all[at : at+it.num&(1<<textBits-1)]
}

// span locates the elements and attributes of an item in reply.done.
type span struct{ elems, numElems, attrs, numAttrs int32 }

// frame is an unfinished aggregate, attribute or streamed string. The elements of a streamed string
// are its chunks.
type frame struct {
	kind      Kind
	chunks    bool // a streamed string
	num       int  // values so far, keys and values counted separately; bytes of a streamed string
	want      int  // total number of values; negative if streamed
	start     int  // index of its first item in reply.items, or of its first byte in reply.text
	attrs     int  // pairs of attributes read before the next value
	attrsFrom int  // with attrs: index in reply.items of the first attribute
}

// reply is the state of the unfinished reply. items is a stack; a complete aggregate moves its
// items to done, where they are contiguous. When the reply is complete, its texts, its values and
// its nodes take one allocation each.
type reply struct {
	frames   []frame // from the outermost to the innermost; empty between replies
	mark     byte    // the first type byte
	skipping bool    // the reply is discarded
	elements int     // values announced so far
	end      int64   // the limit of the reply, as an offset in the stream

	items     []item
	done      []item
	spans     []span
	text      []byte
	longTexts []string // strings longer than smallText
	body      body
}

// body is a string longer than the buffered bytes.
type body struct {
	active bool
	chunk  bool // a chunk of a streamed string
	kind   Kind
	size   int
	left   int // bytes not yet consumed
	text   []byte
}

// top returns the innermost frame. The pointer is valid until the next frame is added.
func (p *reply) top() *frame { return &p.frames[len(p.frames)-1] }

// add adds a complete value to the innermost frame, and closes every frame completed by it.
func (p *reply) add(it item) {
	p.push(it)
	p.closeComplete()
}

// push adds a complete value to the innermost frame.
func (p *reply) push(it item) {
	f := p.top()
	if !p.skipping {
		if f.attrs > 0 {
			p.attach(&it, f.attrsFrom)
		}
		p.items = append(p.items, it)
	}
	f.attrs = 0
	f.num++
	if f.want < 0 && !it.kind.isAggregate() { // readAggregate has counted an aggregate
		p.elements++
	}
}

// closeComplete closes the innermost frame if it is complete, then the next outer frame, and so on.
func (p *reply) closeComplete() {
	for f := p.top(); f.num == f.want; f = p.top() {
		switch f.kind {
		case root:
			p.frames = p.frames[:0]
			return
		case attribute: // the items stay in place until push attaches them to the next value
			p.frames = p.frames[:len(p.frames)-1]
			return
		}
		p.push(p.close())
	}
}

// attach makes the items from index first on the attributes of it, and moves them to done.
func (p *reply) attach(it *item, first int) {
	if first == len(p.items) {
		return
	}
	if it.span == 0 {
		p.spans = append(p.spans, span{})
		it.span = int32(len(p.spans))
	}
	s := &p.spans[it.span-1]
	s.attrs, s.numAttrs = int32(len(p.done)), int32(len(p.items)-first)
	p.done = append(p.done, p.items[first:]...)
	p.items = p.items[:first]
}

// close removes the innermost frame, a complete aggregate, and returns its item.
func (p *reply) close() item {
	f := *p.top()
	p.frames = p.frames[:len(p.frames)-1]
	it := item{kind: f.kind}
	if p.skipping || f.num == 0 {
		return it
	}
	p.spans = append(p.spans, span{elems: int32(len(p.done)), numElems: int32(f.num)})
	it.span = int32(len(p.spans))
	if f.start == 0 && len(p.done) == 0 { // all items: swap in place of a copy
		p.items, p.done = p.done, p.items
		return it
	}
	p.done = append(p.done, p.items[f.start:]...)
	p.items = p.items[:f.start]
	return it
}

func (p *reply) addText(kind Kind, s []byte) {
	it := item{kind: kind}
	switch {
	case p.skipping:
	case len(s) > smallText:
		it.num, it.long = uint64(len(p.longTexts)), true
		p.longTexts = append(p.longTexts, string(s))
	default:
		it.num = uint64(len(p.text))<<textBits | uint64(len(s))
		p.text = append(p.text, s...)
	}
	p.add(it)
}

// addDouble adds a double to the innermost frame. It keeps the text if the text differs from
// appendFloat's. Infinities and NaNs have many spellings; their text is never kept.
func (p *reply) addDouble(f float64, line []byte) {
	it := item{kind: Double, num: math.Float64bits(f)}
	var buf [32]byte
	if !p.skipping && !math.IsInf(f, 0) && !math.IsNaN(f) && string(appendFloat(buf[:0], f, 64)) != string(line) {
		it.num = uint64(len(p.text))<<textBits | uint64(len(line))
		it.hasText = true
		p.text = append(p.text, line...)
	}
	p.add(it)
}

func (p *reply) value() Value {
	var nodes []node
	text := string(p.text)
	values := make([]Value, len(p.done))
	if len(p.spans) > 0 {
		nodes = make([]node, len(p.spans))
	}
	for i := range p.done {
		p.fillValue(&values[i], &p.done[i], text, nodes)
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
	p.fillValue(&v, &p.items[0], text, nodes)
	return v
}

// fillValue converts it to v, which must be zero.
func (p *reply) fillValue(v *Value, it *item, text string, nodes []node) {
	v.num = uint64(it.kind)
	if it.span != 0 {
		v.node = &nodes[it.span-1]
		v.node.kind = it.kind
	}
	switch {
	case it.hasText:
		v.str = it.text(text)
		f, _ := parseDouble([]byte(v.str))
		v.num = math.Float64bits(f)
		if v.node == nil {
			v.node = &kindNodes[Double]
		}
	case it.kind.isNumber():
		v.num = it.num
		if v.node == nil {
			v.node = &kindNodes[it.kind]
		}
	case it.long:
		v.str = p.longTexts[it.num]
	default: // empty without a text
		v.str = it.text(text)
	}
}

// reset discards the reply, and releases its memory if larger than maxScratch.
func (p *reply) reset() {
	p.frames = p.frames[:0]
	p.skipping = false
	p.discard()
	if cap(p.text)+itemBytes*(cap(p.items)+cap(p.done)+cap(p.spans)+cap(p.longTexts)+4*cap(p.frames)) > maxScratch {
		*p = reply{}
	}
}

// discard drops the items of the reply. The position inside the reply stays.
func (p *reply) discard() {
	p.items, p.done, p.spans, p.text = p.items[:0], p.done[:0], p.spans[:0], p.text[:0]
	clear(p.longTexts)
	p.longTexts = p.longTexts[:0]
	p.body.text = nil
}

// addBody adds the next bytes of the body.
func (p *reply) addBody(s []byte) {
	b := &p.body
	b.left -= len(s)
	switch {
	case p.skipping:
	case b.chunk:
		p.text = append(p.text, s...)
	default:
		b.grow(len(s))
		b.text = append(b.text, s...)
	}
}

// grow makes room for n more bytes: for the whole string if that is at most allocAhead times the bytes received, or
// maxBuffer. A longer string first gets a sixteenth of its announced size or less, so that little is copied later.
func (b *body) grow(n int) {
	have := len(b.text) + n
	if have <= cap(b.text) {
		return
	}
	size, most := b.size, max(maxBuffer, allocAhead*have)
	if size > most {
		size = min(max(have, b.size/16), most)
	}
	b.text = append(make([]byte, 0, size), b.text...)
}
