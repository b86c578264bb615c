package resp

import (
	"iter"
	"math"
	"strconv"
	"strings"
)

// Kind is the type of a [Value].
type Kind uint8

// The kinds of values. A streamed string or aggregate has the kind of its plain
// counterpart; a null is Null in each of its three forms.
const (
	Null           Kind = iota // _ $-1 *-1
	SimpleString               // +
	SimpleError                // -
	Integer                    // :
	BulkString                 // $
	Array                      // *
	Boolean                    // #
	Double                     // ,
	BigNumber                  // (
	BlobError                  // !
	VerbatimString             // =
	Map                        // %
	Set                        // ~
	Push                       // >

	// The rest occur only while a reply is being read.
	attribute // |
	root      // what holds a top-level value
)

var kindNames = [...]string{
	"null", "simple string", "simple error", "integer", "bulk string", "array", "boolean", "double",
	"big number", "blob error", "verbatim string", "map", "set", "push", "attribute", "root",
}

// String returns the name of the kind as the protocol has it: "bulk string".
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return "kind " + strconv.Itoa(int(k))
}

// isText reports whether values of kind k have a text.
func (k Kind) isText() bool {
	const texts = 1<<SimpleString | 1<<SimpleError | 1<<BulkString | 1<<BigNumber | 1<<BlobError | 1<<VerbatimString
	return texts>>k&1 != 0
}

// isNumber reports whether values of kind k are told by their number.
func (k Kind) isNumber() bool { return k == Integer || k == Boolean || k == Double }

// Value is one reply, or an element of one. It owns its memory, is immutable and
// may be copied and shared. The zero Value is a null.
//
// The small strings of a reply share one piece of memory, so that keeping one
// keeps all; strings.Clone parts them. Strings over 4 KiB always stand alone.
type Value struct {
	num  uint64 // integer, bits of a double, 0 or 1 for a boolean; of all others the kind
	str  string // text; that of a verbatim string with format and colon in front, that of a double if it is spelled unlike ours
	node *node  // nil if num is the kind and there are neither elements nor attributes
}

// node is what few values have. It says of what kind the value is, in place of a field of its own: a Value of four words
// takes a fifth less memory, and fits into registers.
type node struct {
	kind  Kind
	elems []Value // keys and values in turn, if of a map
	attrs []Value // keys and values in turn
}

// bare are the nodes of values that need theirs for nothing but the kind.
var bare = [...]node{Integer: {kind: Integer}, Boolean: {kind: Boolean}, Double: {kind: Double}}

// Kind returns the type of v.
func (v Value) Kind() Kind {
	if v.node == nil {
		return Kind(v.num)
	}
	return v.node.kind
}

// IsNull reports whether v is a null.
func (v Value) IsNull() bool { return v.Kind() == Null }

// Err returns the [Error] if v is an error reply, and nil if it is not.
//
// The text ends where the server begins to repeat the arguments of a command it
// does not know, as there may be a password among them.
func (v Value) Err() error {
	if k := v.Kind(); k != SimpleError && k != BlobError {
		return nil
	}
	text, _, _ := strings.Cut(v.str, ", with args beginning with")
	return Error(text)
}

// Text returns v as a string: the text of any string without the format of a
// verbatim one, or a number in decimal, a boolean being 1 or 0. A double is written
// as the server has written it, but inf, -inf and nan in one way each. For an error
// reply Text returns the error, for a null or an aggregate a [*KindError].
func (v Value) Text() (string, error) {
	switch v.Kind() {
	case SimpleString, BulkString, BigNumber:
		return v.str, nil
	case VerbatimString:
		return v.str[formatLen:], nil
	case Integer, Boolean:
		return strconv.FormatInt(int64(v.num), 10), nil
	case Double:
		if v.str != "" {
			return v.str, nil
		}
		return string(appendFloat(nil, v.double(), 64)), nil
	}
	return "", v.isNot("a string")
}

// Append appends what Text returns to dst, without an allocation of its own. On
// an error it returns dst as it was.
func (v Value) Append(dst []byte) ([]byte, error) {
	switch k := v.Kind(); {
	case k == Double && v.str == "":
		return appendFloat(dst, v.double(), 64), nil
	case k == Integer || k == Boolean:
		return strconv.AppendInt(dst, int64(v.num), 10), nil
	}
	s, err := v.Text()
	return append(dst, s...), err
}

// double returns the number that v, a Double, is.
func (v Value) double() float64 { return math.Float64frombits(v.num) }

// Int returns v as an integer. A string, a big number or a double will do if it is
// exactly an integer of 64 bits, also if it is written with a point or an exponent
// ("1e+17"), and a boolean is 1 or 0. Anything else is a [*KindError], an error
// reply the error.
func (v Value) Int() (int64, error) {
	switch v.Kind() {
	case Integer, Boolean:
		return int64(v.num), nil
	case SimpleString, BulkString, BigNumber, VerbatimString, Double:
		s, _ := v.Text()
		if n, err := strconv.ParseInt(s, 10, 64); err == nil {
			return n, nil
		}
		f, ok := parseDouble([]byte(s))
		if ok && f == math.Trunc(f) && f >= -1<<63 && f < 1<<63 {
			return int64(f), nil
		}
	}
	return 0, v.isNot("an integer")
}

// Float returns v as a floating-point number. A string will do if it is written as
// the protocol writes doubles, "inf" and "nan" among them; integers and big
// numbers are rounded where they must be. Anything else is a [*KindError], an
// error reply the error.
func (v Value) Float() (float64, error) {
	switch v.Kind() {
	case Integer, Boolean:
		return float64(int64(v.num)), nil
	case Double:
		return v.double(), nil
	case SimpleString, BulkString, BigNumber, VerbatimString:
		s, _ := v.Text()
		if f, ok := parseDouble([]byte(s)); ok {
			return f, nil
		}
	}
	return 0, v.isNot("a number")
}

// Bool returns v as a boolean. The numbers and strings 1 and 0 will do. Anything else
// is a [*KindError], an error reply the error.
func (v Value) Bool() (bool, error) {
	switch n, err := v.Int(); {
	case err != nil || n != 0 && n != 1:
		return false, v.isNot("a boolean")
	default:
		return n == 1, nil
	}
}

// isNot returns the error of a conversion that is not possible.
func (v Value) isNot(want string) error {
	if err := v.Err(); err != nil {
		return err
	}
	return &KindError{Kind: v.Kind(), Want: want}
}

// Format returns the format of a verbatim string, three bytes such as "txt" or
// "mkd", and "" for any other value.
func (v Value) Format() string {
	if v.Kind() != VerbatimString {
		return ""
	}
	return v.str[:formatLen-1]
}

// Len returns the number of elements of an aggregate, and 0 for any other
// value. Keys and values of a map count each, as they do in the array that
// RESP2 has for it.
func (v Value) Len() int { return len(v.elems()) }

// At returns the element at index i, counted from 0, or a null if there is none.
func (v Value) At(i int) Value {
	if e := v.elems(); uint(i) < uint(len(e)) {
		return e[i]
	}
	return Value{}
}

// All returns the elements of an aggregate in order. Like [Value.At], it
// takes the keys and values of a map in turn.
func (v Value) All() iter.Seq[Value] {
	return func(yield func(Value) bool) {
		for _, e := range v.elems() {
			if !yield(e) {
				return
			}
		}
	}
}

// Pairs returns the keys and values of a map in order. It takes each form in which
// servers send pairs, depending on command and version of the protocol: a map
// (HGETALL, XREAD), a flat array of keys and values (both, in RESP2), and an array
// of arrays of two (XREAD in RESP2, ZRANGE WITHSCORES in RESP3). An aggregate in
// which something is left over, or is a key in a flat array, is a [*KindError], as
// is anything but an aggregate, a null too; an error reply is the error. With an
// error there are no pairs.
func (v Value) Pairs() (iter.Seq2[Value, Value], error) {
	e := v.elems()
	switch k := v.Kind(); {
	case k == Map:
		return pairs(e), nil
	case k != Array && k != Set && k != Push:
		return noPairs, v.isNot("a list of pairs")
	case len(e) > 0 && e[0].Kind() == Array:
		for i := range e {
			if e[i].Kind() != Array || e[i].Len() != 2 {
				return noPairs, v.isNot("a list of pairs: not each element is an array of two")
			}
		}
		return nested(e), nil
	case len(e)%2 != 0:
		return noPairs, v.isNot("a list of pairs: the number of elements is odd")
	}
	for i := 0; i < len(e); i += 2 {
		if k := e[i].Kind(); k == Array || k == Map || k == Set {
			return noPairs, v.isNot("a list of pairs: there is a key that is an aggregate")
		}
	}
	return pairs(e), nil
}

// Attrs returns the keys and values of the attributes that stood before v, in order.
func (v Value) Attrs() iter.Seq2[Value, Value] { return pairs(v.attrs()) }

func pairs(e []Value) iter.Seq2[Value, Value] {
	return func(yield func(Value, Value) bool) {
		for i := 1; i < len(e); i += 2 {
			if !yield(e[i-1], e[i]) {
				return
			}
		}
	}
}

func noPairs(func(Value, Value) bool) {}

// nested is pairs for arrays of two.
func nested(e []Value) iter.Seq2[Value, Value] {
	return func(yield func(Value, Value) bool) {
		for i := range e {
			if !yield(e[i].At(0), e[i].At(1)) {
				return
			}
		}
	}
}

func (v Value) elems() []Value {
	if v.node == nil {
		return nil
	}
	return v.node.elems
}

func (v Value) attrs() []Value {
	if v.node == nil {
		return nil
	}
	return v.node.attrs
}

// Equal reports whether v and w are of one kind and hold the same, elements and
// attributes in the same order included. Doubles are equal if the numbers are. A NaN
// equals any other; 0 and -0 differ.
func (v Value) Equal(w Value) bool {
	switch {
	case v.Kind() != w.Kind():
		return false
	case v.Kind() == Double:
		if v.num != w.num && !(math.IsNaN(v.double()) && math.IsNaN(w.double())) {
			return false
		}
	case v.num != w.num || v.str != w.str:
		return false
	}
	return v.node == w.node || equal(v.elems(), w.elems()) && equal(v.attrs(), w.attrs())
}

func equal(a, b []Value) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if !a[i].Equal(b[i]) {
			return false
		}
	}
	return true
}
