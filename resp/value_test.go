package resp_test

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/lockwire/lockwire/resp"
)

// read decodes wire, which must be one value.
func read(t testing.TB, wire string) resp.Value {
	t.Helper()
	r := resp.NewReader(strings.NewReader(wire), resp.Limits{})
	v, err := r.Read()
	if err != nil || r.Buffered() > 0 {
		t.Fatalf("Read of %.100q: %v, %d bytes left", wire, err, r.Buffered())
	}
	return v
}

func TestValueSize(t *testing.T) {
	if size := reflect.TypeFor[resp.Value]().Size(); size > 40 {
		t.Errorf("size of a Value: %d bytes, want at most 40", size)
	}
}

// no means that the conversion fails with a KindError.
const no = "no"

func TestValueConversions(t *testing.T) {
	for _, tt := range []struct{ wire, text, integer, float, boolean string }{
		{"+OK\r\n", "OK", no, no, no},
		{"$2\r\n12\r\n", "12", "12", "12", no},
		{"$1\r\n1\r\n", "1", "1", "1", "true"},
		{"+0\r\n", "0", "0", "0", "false"},
		{"$3\r\n1.5\r\n", "1.5", no, "1.5", no},
		{"$4\r\n-inf\r\n", "-inf", no, "-Inf", no},
		{"$3\r\nnan\r\n", "nan", no, "NaN", no},
		{"$4\r\n0x10\r\n", "0x10", no, no, no},
		{"$0\r\n\r\n", "", no, no, no},
		{"=5\r\ntxt:7\r\n", "7", "7", "7", no},
		{":0\r\n", "0", "0", "0", "false"},
		{":-5\r\n", "-5", "-5", "-5", no},
		{":9223372036854775807\r\n", "9223372036854775807", "9223372036854775807", "9.223372036854776e+18", no},
		{"#t\r\n", "1", "1", "1", "true"},
		{"#f\r\n", "0", "0", "0", "false"},
		{",3\r\n", "3", "3", "3", no},
		{",1\r\n", "1", "1", "1", "true"},
		{"$6\r\n1.0e+6\r\n", "1.0e+6", "1000000", "1e+06", no},
		{",1.0e+6\r\n", "1.0e+6", "1000000", "1e+06", no},
		{"$22\r\n1.7000000000000001e+18\r\n", "1.7000000000000001e+18", "1700000000000000000", "1.7e+18", no},
		{",1.7000000000000001e+18\r\n", "1.7000000000000001e+18", "1700000000000000000", "1.7e+18", no},
		{",3.1000000000000001\r\n", "3.1000000000000001", no, "3.1", no},
		{"$4\r\n1e21\r\n", "1e21", no, "1e+21", no},
		{",1e21\r\n", "1e21", no, "1e+21", no},
		{",0.00001\r\n", "0.00001", no, "1e-05", no},
		{",3.5\r\n", "3.5", no, "3.5", no},
		{",9223372036854775808\r\n", "9223372036854775808", no, "9.223372036854776e+18", no},
		{",-9223372036854775808\r\n", "-9223372036854775808", "-9223372036854775808", "-9.223372036854776e+18", no},
		{",inf\r\n", "inf", no, "+Inf", no},
		{",nan\r\n", "nan", no, "NaN", no},
		{"(42\r\n", "42", "42", "42", no},
		{"(9223372036854775808\r\n", "9223372036854775808", no, "9.223372036854776e+18", no},
		{"_\r\n", no, no, no, no},
		{"*1\r\n:1\r\n", no, no, no, no},
		{"%0\r\n", no, no, no, no},
	} {
		v := read(t, tt.wire)
		show := func(x any, err error) string {
			if e, ok := errors.AsType[*resp.KindError](err); ok && e.Kind == v.Kind() && e.Want != "" {
				return no
			}
			if err != nil {
				return err.Error()
			}
			return fmt.Sprint(x)
		}
		text, err := v.Text()
		if got := show(text, err); got != tt.text {
			t.Errorf("Text of %q = %q, want %q", tt.wire, got, tt.text)
		}
		appended, err := v.Append([]byte("x"))
		if got := show(strings.TrimPrefix(string(appended), "x"), err); got != tt.text || appended[0] != 'x' {
			t.Errorf("Append of %q = %q, want %q", tt.wire, got, tt.text)
		}
		integer, err := v.Int()
		if got := show(integer, err); got != tt.integer {
			t.Errorf("Int of %q = %s, want %s", tt.wire, got, tt.integer)
		}
		float, err := v.Float()
		if got := show(float, err); got != tt.float {
			t.Errorf("Float of %q = %s, want %s", tt.wire, got, tt.float)
		}
		boolean, err := v.Bool()
		if got := show(boolean, err); got != tt.boolean {
			t.Errorf("Bool of %q = %s, want %s", tt.wire, got, tt.boolean)
		}
	}
}

// Converting an error reply returns the error reply. No error contains the value's content.
func TestValueConversionErrors(t *testing.T) {
	for _, wire := range []string{"-ERR no\r\n", "!6\r\nERR no\r\n"} {
		v := read(t, wire)
		_, err1 := v.Text()
		_, err2 := v.Int()
		_, err3 := v.Float()
		_, err4 := v.Bool()
		dst, err5 := v.Append([]byte("x"))
		for i, err := range []error{err1, err2, err3, err4, err5, v.Err()} {
			if err != resp.Error("ERR no") {
				t.Errorf("%q: error %d is %v, want the error reply", wire, i, err)
			}
		}
		if string(dst) != "x" {
			t.Errorf("Append of an error reply = %q, want dst as it was", dst)
		}
	}
	_, err := read(t, "$6\r\nsecret\r\n").Int()
	if err == nil || strings.Contains(err.Error(), "secret") || err.Error() != "resp: bulk string is not an integer" {
		t.Errorf("Int of a string: %v", err)
	}
}

func TestValueErr(t *testing.T) {
	for wire, want := range map[string]error{
		"+OK\r\n":          nil,
		"_\r\n":            nil,
		"*1\r\n-ERR x\r\n": nil,
		"-ERR unknown command 'ATUH', with args beginning with: 'user' 'secret' \r\n": resp.Error("ERR unknown command 'ATUH'"),
		"-\r\n":              resp.Error(""),
		"!6\r\nA b\r\nc\r\n": resp.Error("A b\r\nc"),
	} {
		if err := read(t, wire).Err(); err != want {
			t.Errorf("Err of %q = %v, want %v", wire, err, want)
		}
	}
}

func TestValueElements(t *testing.T) {
	array := read(t, "*3\r\n:1\r\n*0\r\n$1\r\nx\r\n")
	if array.Len() != 3 || array.At(0).Kind() != resp.Integer || array.At(1).Kind() != resp.Array || array.At(1).Len() != 0 {
		t.Errorf("array is %v", array)
	}
	for _, i := range []int{-1, 3, math.MaxInt, math.MinInt} {
		if v := array.At(i); !v.IsNull() {
			t.Errorf("At(%d) = %v, want null", i, v)
		}
	}
	var all []string
	for v := range array.All() {
		all = append(all, v.String())
		if len(all) == 2 {
			break
		}
	}
	if !same(all, []string{"1", "[]"}) {
		t.Errorf("the first two elements of All are %q", all)
	}
	if v := read(t, "$7\r\ntxt:abc\r\n"); v.Format() != "" {
		t.Errorf("Format of a bulk string = %q", v.Format())
	}
	if v := read(t, ":5\r\n"); v.Len() != 0 || !v.At(0).IsNull() {
		t.Errorf("an integer has %d elements", v.Len())
	}
}

func TestValuePairs(t *testing.T) {
	const a, b = "$1\r\na\r\n:1\r\n", "$1\r\nb\r\n:2\r\n"
	for _, wire := range []string{
		"%2\r\n" + a + b,
		"*4\r\n" + a + b,
		"*2\r\n*2\r\n" + a + "*2\r\n" + b,
		"~4\r\n" + a + b,
	} {
		pairs, err := read(t, wire).Pairs()
		if err != nil {
			t.Fatalf("pairs of %q: %v", wire, err)
		}
		var got []string
		for k, e := range pairs {
			got = append(got, k.String(), e.String())
		}
		if !same(got, []string{`"a"`, "1", `"b"`, "2"}) {
			t.Errorf("pairs of %q are %q", wire, got)
		}
		for k := range pairs {
			if k.String() != `"a"` {
				t.Errorf("Pairs does not stop")
			}
			break
		}
	}
	for _, wire := range []string{"%0\r\n", "*0\r\n", "~0\r\n"} {
		if pairs, err := read(t, wire).Pairs(); err != nil {
			t.Errorf("pairs of %q: %v", wire, err)
		} else {
			for range pairs {
				t.Errorf("Pairs of %q yields pairs", wire)
			}
		}
	}
	for wire, want := range map[string]string{
		"*3\r\n" + a + "$1\r\nc\r\n":                          "array is not a list of pairs: the number of elements is odd",
		"*1\r\n*1\r\n:1\r\n":                                  "array is not a list of pairs: not each element is an array of two",
		"*2\r\n*2\r\n" + a + "*3\r\n" + b + ":3\r\n":          "array is not a list of pairs: not each element is an array of two",
		"*2\r\n*2\r\n" + a + ":1\r\n":                         "array is not a list of pairs: not each element is an array of two",
		"*2\r\n%1\r\n" + a + "%1\r\n" + b:                     "array is not a list of pairs: there is a key that is an aggregate",
		"*4\r\n" + a + "*2\r\n:1\r\n:2\r\n*2\r\n:3\r\n:4\r\n": "array is not a list of pairs: there is a key that is an aggregate",
		"_\r\n":       "null is not a list of pairs",
		"*-1\r\n":     "null is not a list of pairs",
		"$1\r\na\r\n": "bulk string is not a list of pairs",
		"-ERR no\r\n": "ERR no",
	} {
		pairs, err := read(t, wire).Pairs()
		if err == nil || strings.TrimPrefix(err.Error(), "resp: ") != want {
			t.Errorf("pairs of %q: %v, want %q", wire, err, want)
		}
		for range pairs {
			t.Errorf("Pairs of %q yields pairs besides the error", wire)
		}
	}
}

func TestValueEqual(t *testing.T) {
	wires := []string{
		"_\r\n", "+a\r\n", "$1\r\na\r\n", "$1\r\nb\r\n", "-a\r\n", "!1\r\na\r\n", "=5\r\ntxt:a\r\n", "=5\r\nmkd:a\r\n",
		":1\r\n", ":0\r\n", "#t\r\n", "#f\r\n", ",1\r\n", ",0\r\n", ",-0\r\n", ",nan\r\n", "(1\r\n",
		"*0\r\n", "~0\r\n", "%0\r\n", "*1\r\n:1\r\n", "*2\r\n:1\r\n:2\r\n", "*2\r\n:2\r\n:1\r\n", "%1\r\n:1\r\n:2\r\n",
		">2\r\n+a\r\n:1\r\n", "*1\r\n*1\r\n:1\r\n", "*1\r\n*1\r\n:2\r\n",
		"|1\r\n:1\r\n:1\r\n:1\r\n", "|1\r\n:1\r\n:2\r\n:1\r\n", "|1\r\n:1\r\n:1\r\n*1\r\n:1\r\n",
	}
	for i, a := range wires {
		for j, b := range wires {
			if got := read(t, a).Equal(read(t, b)); got != (i == j) {
				t.Errorf("%q equals %q: %v", a, b, got)
			}
		}
	}
	if v := read(t, ",-nan\r\n"); !v.Equal(read(t, ",nan\r\n")) || v.Equal(read(t, ",1\r\n")) {
		t.Error("NaN must equal NaN only")
	}
	if v := read(t, ",1.5e1\r\n"); !v.Equal(read(t, ",15\r\n")) {
		t.Error("two spellings of a double must be equal")
	}
}

func TestValueString(t *testing.T) {
	wire := "|1\r\n+ttl\r\n:5\r\n*9\r\n_\r\n#t\r\n,1.5\r\n(77\r\n-ERR x\r\n%2\r\n+a\r\n=5\r\ntxt:b\r\n:1\r\n%0\r\n~2\r\n:1\r\n$1\r\n\n\r\n*0\r\n:3\r\n"
	const want = `<"ttl": 5> [null true 1.5 77 error "ERR x" {"a": "b", 1: {}} set [1 "\n"] [] 3]`
	if got := read(t, wire).String(); got != want {
		t.Errorf("String = %s\nwant %s", got, want)
	}
	if got := read(t, ">2\r\n+message\r\n+x\r\n").String(); got != `push ["message" "x"]` {
		t.Errorf("String of a push = %s", got)
	}
	long := "$100000\r\n" + strings.Repeat("x", 100000) + "\r\n"
	for _, wire := range []string{long, "*2000\r\n" + strings.Repeat(":1\r\n", 2000), "%1\r\n" + long + long, "(" + strings.Repeat("1", 5000) + "\r\n"} {
		if got := read(t, wire).String(); len(got) > 1100 || !strings.HasSuffix(got, "...") {
			t.Errorf("String of %.10q has %d bytes and ends with %q", wire, len(got), got[len(got)-5:])
		}
	}
}

func TestKindString(t *testing.T) {
	seen := map[string]bool{}
	for k := resp.Null; k <= resp.Push; k++ {
		if s := k.String(); s == "" || seen[s] {
			t.Errorf("kind %d is called %q", uint8(k), s)
		}
		seen[k.String()] = true
	}
	if got := resp.Kind(200).String(); got != "kind 200" {
		t.Errorf("kind 200 is called %q", got)
	}
}
