package resp

import (
	"iter"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Kind is the type of a [Value].
type Kind uint8

// The kinds of values. Streamed strings and aggregates have the kind of their plain forms. All
// three forms of null have the kind Null.
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

	// Internal kinds: only an unfinished reply has them.
	attribute // |
	root      // the frame around a top-level value
)

var kindNames = [...]string{
	"null", "simple string", "simple error", "integer", "bulk string", "array", "boolean", "double",
	"big number", "blob error", "verbatim string", "map", "set", "push", "attribute", "root",
}

// typeBytes has the type byte of each kind.
const typeBytes = "_+-:$*#,(!=%~>|"

// kindOf returns the kind for a type byte: Null for an unknown byte.
func kindOf(mark byte) Kind { return Kind(max(strings.IndexByte(typeBytes, mark), 0)) }

// String returns the protocol's name of the kind: "bulk string".
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return "kind " + strconv.Itoa(int(k))
}

// isNumber reports whether num holds the content of a value of kind k.
func (k Kind) isNumber() bool { return k == Integer || k == Boolean || k == Double }

// isAggregate reports whether values of kind k have elements.
func (k Kind) isAggregate() bool { return k == Array || k == Map || k == Set || k == Push }

// Value is a reply or an element of a reply. The zero Value is a null. A Value owns its memory, is
// immutable, and may be copied and shared.
//
// The small strings of a reply share a block of memory: keeping one of them keeps the block. Use
// strings.Clone to keep a string alone. Strings over 4 KiB have their own memory.
type Value struct {
	num  uint64 // integer; bits of a double; 0 or 1 for a boolean; the kind of any other value
	str  string // text; for a verbatim string with format and colon; for a double only if not equal to appendFloat's
	node *node  // nil if num is the kind, and the value has neither elements nor attributes
}

// node holds the rarely used parts of a Value. The kind is here and not in Value, because a Value
// of four words takes a fifth less memory and fits into registers.
type node struct {
	kind  Kind
	elems []Value // for a map: keys and values alternate
	attrs []Value // keys and values alternate
}

// kindNodes are the nodes of values that need a node only for the kind.
var kindNodes = [...]node{Integer: {kind: Integer}, Boolean: {kind: Boolean}, Double: {kind: Double}}

// Kind returns the type of v.
func (v Value) Kind() Kind {
	if v.node == nil {
		return Kind(v.num)
	}
	return v.node.kind
}

// IsNull reports whether v is a null.
func (v Value) IsNull() bool { return v.Kind() == Null }

// Err returns the [Error] of an error reply, and nil for any other value.
//
// If the server repeats the arguments of an unknown command, Err cuts them off, because they may
// contain a password.
func (v Value) Err() error {
	if k := v.Kind(); k != SimpleError && k != BlobError {
		return nil
	}
	text, _, _ := strings.Cut(v.str, ", with args beginning with")
	return Error(text)
}

// Text returns v as a string:
//
//   - A string: its text; for a verbatim string without the format.
//   - An integer or big number: decimal digits. A boolean: 1 or 0.
//   - A double: the server's spelling, but infinities and NaN always as inf, -inf and nan.
//   - An error reply: the reply as the error.
//   - A null or an aggregate: a [*KindError].
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

// Append appends the result of Text to dst. It does not allocate unless dst must grow. On an error
// it returns dst unchanged.
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

func (v Value) double() float64 { return math.Float64frombits(v.num) }

// Int returns v as an integer:
//
//   - An integer: its value. A boolean: 1 or 0.
//   - A string, a big number or a double: an exact 64-bit integer, also with a point or an exponent
//     ("1e+17") if a float64 holds the number exactly. Up to 17 digits with an exponent stand for
//     the nearest float64, because servers write a double so.
//   - An error reply: the reply as the error.
//   - Any other value: a [*KindError].
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
		if !ok || f != math.Trunc(f) || f < -1<<63 || f >= 1<<63 {
			break
		}
		if n, ok := exactInt(s); ok && (n == int64(f) || isRounded(s)) {
			return int64(f), nil
		}
	}
	return 0, v.isNot("an integer")
}

// Float returns v as a floating-point number:
//
//   - An integer or big number: rounded if necessary. A boolean: 1 or 0.
//   - A double: its value.
//   - A string: parsed like a RESP3 double, including "inf" and "nan".
//   - A string or big number out of range, such as 1e999: a [*KindError].
//   - An error reply: the reply as the error.
//   - Any other value: a [*KindError].
func (v Value) Float() (float64, error) {
	switch v.Kind() {
	case Integer, Boolean:
		return float64(int64(v.num)), nil
	case Double:
		return v.double(), nil
	case SimpleString, BulkString, BigNumber, VerbatimString:
		s, _ := v.Text()
		if f, ok := parseDouble([]byte(s)); ok && (!math.IsInf(f, 0) || !strings.ContainsAny(s, "0123456789")) { // infinite only if s says so
			return f, nil
		}
	}
	return 0, v.isNot("a number")
}

// Bool returns v as a boolean. It accepts the numbers and strings 1 and 0. An error reply is
// returned as the error; any other value is a [*KindError].
func (v Value) Bool() (bool, error) {
	n, err := v.Int()
	if err != nil || n != 0 && n != 1 {
		return false, v.isNot("a boolean")
	}
	return n == 1, nil
}

// isNot returns the error of a conversion: the error reply, or a KindError.
func (v Value) isNot(want string) error {
	if err := v.Err(); err != nil {
		return err
	}
	return &KindError{Kind: v.Kind(), Want: want}
}

// Format returns the three-byte format of a verbatim string, such as "txt" or "mkd", and "" for any
// other value.
func (v Value) Format() string {
	if v.Kind() != VerbatimString {
		return ""
	}
	return v.str[:formatLen-1]
}

// Len returns the number of elements of an aggregate, and 0 for any other value. Keys and values of
// a map count separately, as in the flat array of RESP2.
func (v Value) Len() int { return len(v.elems()) }

// At returns the element at index i, or a null if i is out of range. In a map, keys and values
// alternate.
func (v Value) At(i int) Value {
	if e := v.elems(); uint(i) < uint(len(e)) {
		return e[i]
	}
	return Value{}
}

// All returns the elements of an aggregate in order. In a map, keys and values alternate.
func (v Value) All() iter.Seq[Value] { return slices.Values(v.elems()) }

// Pairs returns keys and values in order. It accepts every form in which servers send pairs:
//
//   - a map (HGETALL and XREAD in RESP3)
//   - a flat array of keys and values (HGETALL in RESP2)
//   - an array of two-element arrays (XREAD in RESP2, ZRANGE WITHSCORES in RESP3)
//
// Pairs returns a [*KindError] for an odd number of elements, for an aggregate as a key of a flat
// array, and for any value but an aggregate, including null. An error reply is returned as the
// error. On an error the sequence is empty.
func (v Value) Pairs() (iter.Seq2[Value, Value], error) {
	e := v.elems()
	switch k := v.Kind(); {
	case k == Map:
		return pairs(e), nil
	case k != Array && k != Set && k != Push:
		return pairs(nil), v.isNot("a list of pairs")
	case len(e) > 0 && e[0].Kind() == Array:
		if !nested(e) {
			return pairs(nil), v.isNot("a list of pairs: not each element is an array of two")
		}
		return func(yield func(Value, Value) bool) {
			for i := range e {
				if !yield(e[i].At(0), e[i].At(1)) {
					return
				}
			}
		}, nil
	case len(e)%2 != 0:
		return pairs(nil), v.isNot("a list of pairs: the number of elements is odd")
	}
	for i := 0; i < len(e); i += 2 {
		if k := e[i].Kind(); k == Array || k == Map || k == Set {
			return pairs(nil), v.isNot("a list of pairs: there is a key that is an aggregate")
		}
	}
	return pairs(e), nil
}

// Attrs returns the keys and values of the attributes before v, in order.
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

// nested reports whether e is a list of arrays, each of two elements.
func nested(e []Value) bool {
	return len(e) > 0 && !slices.ContainsFunc(e, func(v Value) bool { return v.Kind() != Array || v.Len() != 2 })
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

// Equal reports whether v and w have the same kind and content, including attributes. Elements and
// attributes must have the same order. Doubles compare by number: NaN equals NaN, and 0 differs
// from -0.
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
	return v.node == w.node || slices.EqualFunc(v.elems(), w.elems(), Value.Equal) && slices.EqualFunc(v.attrs(), w.attrs(), Value.Equal)
}
