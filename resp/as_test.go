package resp_test

import (
	"errors"
	"math/big"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockwire/lockwire/resp"
)

// parse reads a reply in wire format, with | for the end of a line.
func parse(t testing.TB, wire string) resp.Value {
	t.Helper()
	return read(t, strings.ReplaceAll(wire, "|", "\r\n"))
}

type account struct {
	Name    string `redis:"name"`
	Age     uint8  `redis:"age"`
	Ratio   *float64
	Score   *float64       `redis:"score"`
	Since   time.Time      `redis:"since"`
	Seen    time.Time      `redis:"seen,ms"`
	Limit   time.Duration  `redis:"limit,s"`
	Pause   *time.Duration `redis:"pause,us"`
	Raw     []byte         `redis:"raw"`
	Addr    netip.Addr     `redis:"addr"`
	Active  bool           `redis:"active"`
	Ignored string         `redis:"-"`
	place
}

type place struct {
	City string `redis:"city"`
}

// as returns a function that converts a reply to T.
func as[T any]() func(resp.Value) (any, error) {
	return func(v resp.Value) (any, error) { return resp.As[T](v, nil) }
}

func TestAs(t *testing.T) {
	one, half := "1", 0.5
	for _, tt := range []struct {
		wire string
		as   func(resp.Value) (any, error)
		want any // or the text of the error
	}{
		{"$1|1|", as[string](), "1"}, {":1|", as[string](), "1"}, {"$1|1|", as[named](), named("1")},
		{"$1|1|", as[int](), 1}, {"$3|-12|", as[int16](), int16(-12)}, {":300|", as[int64](), int64(300)},
		{":300|", as[int8](), "integer is not an int8: out of range"}, {":300|", as[uint8](), "out of range"},
		{":-1|", as[uint](), "integer is not an unsigned integer"}, {"$20|18446744073709551615|", as[uint64](), uint64(1<<64 - 1)},
		{"$3|1.5|", as[float64](), 1.5}, {",0.5|", as[float32](), float32(0.5)}, {":1|", as[bool](), true},
		{"$2|no|", as[int](), "bulk string is not an integer"}, {"$2|no|", as[bool](), "not a boolean"},
		{"$3|a\x00b|", as[[]byte](), []byte("a\x00b")}, {"$0||", as[[]byte](), []byte{}}, {"$1|x|", as[namedBytes](), namedBytes("x")},
		{"*2|$1|1|:2|", as[[]string](), []string{"1", "2"}}, {"*2|$1|1|:2|", as[[]int](), []int{1, 2}}, {"~1|+x|", as[[]named](), []named{"x"}},
		{"*0|", as[[]string](), []string{}}, {"*0|", as[[]int](), []int{}},
		{"*2|$1|1|_|", as[[]*string](), []*string{&one, nil}}, {"*2|$1|1|_|", as[[]string](), "null is not a string (element 1)"},
		{"*2|:1|$1|x|", as[[]int](), "bulk string is not an integer (element 1)"}, {"+OK|", as[[]string](), "simple string is not a list"},
		{"*2|*1|:1|*0|", as[[][]int](), [][]int{{1}, {}}},
		// Pairs are a flat array in RESP2, and an array of arrays in RESP3.
		{"*4|+a|$1|1|+b|$1|2|", as[[]string](), []string{"a", "1", "b", "2"}}, {"*2|*2|+a|,1|*2|+b|,2|", as[[]string](), []string{"a", "1", "b", "2"}},
		{"*2|*2|+1|,1|*2|+2|,2|", as[[]int](), []int{1, 1, 2, 2}}, {"*1|*2|+1|,1|", as[[]*string](), []*string{&one, &one}},
		{"*1|*2|+a|,1|", as[[][]byte](), [][]byte{[]byte("a"), []byte("1")}}, {"*1|*2|+a|_|", as[[]string](), "null is not a string (element 1)"},
		{"*1|*2|:1|:2|", as[[][]int](), [][]int{{1, 2}}}, {"*1|*2|+a|:1|", as[[]map[string]int](), []map[string]int{{"a": 1}}},
		{"*2|*2|+a|,1|*1|+b|", as[[]string](), "array is not a string (element 0)"}, {"*1|*2|+a|*0|", as[[]string](), "array is not a string (element 1)"},
		{"*4|+a|:1|+b|:2|", as[map[string]int](), map[string]int{"a": 1, "b": 2}}, {"%1|+a|:1|", as[map[named]string](), map[named]string{"a": "1"}},
		{"%1|:7|+x|", as[map[int]*string](), map[int]*string{7: ptr("x")}}, {"%1|+a|$1|1|", as[map[string]string](), map[string]string{"a": "1"}},
		{"*3|+a|:1|+b|", as[map[string]string](), "odd"}, {"%1|*0|+x|", as[map[string]string](), "array is not a string (a key)"},
		{"%1|+secret|*0|", as[map[string]string](), "array is not a string (the value of a key)"},
		{"%1|+x|+1|", as[map[int]int](), "simple string is not an integer (a key)"}, {"%1|:1|+x|", as[map[int]int](), "(the value of a key)"},
		{"_|", as[*string](), (*string)(nil)}, {"$1|1|", as[*string](), &one}, {"_|", as[string](), "null is not a string"},
		{"_|", as[[]string](), "null is not a list"}, {"_|", as[map[string]string](), "null is not a list of pairs"},
		{"$9|127.0.0.1|", as[netip.Addr](), netip.MustParseAddr("127.0.0.1")}, {"$6|secret|", as[netip.Addr](), "not the text of a netip.Addr"},
		{"(12345678901234567890|", as[*big.Int](), mustInt("12345678901234567890")},
		{"*2|$10|1700000000|$6|250000|", as[time.Time](), time.Unix(1700000000, 250_000_000)},
		{"$20|2024-02-29T12:00:00Z|", as[time.Time](), time.Date(2024, 2, 29, 12, 0, 0, 0, time.UTC)},
		{":1700000000|", as[time.Time](), "give the field a unit"}, {"*1|:1|", as[time.Time](), "array is not a time"},
		{":1|", as[time.Duration](), "unit"}, {"-ERR no|", as[string](), "ERR no"}, {"*1|-ERR no|", as[[]int](), "ERR no (element 0)"},
		{"*1|-ERR no|", as[[]string](), "ERR no (element 0)"}, {":1|", as[chan int](), "a chan int, a type that"},
		{"*2|+name|+x|", as[struct{ Name string }](), "no field with a tag redis"},
		{"*2|+name|+x|", as[struct {
			name string `redis:"name"`
		}](), "not exported"},
		{"*2|+a|+x|", as[struct {
			A, B string `redis:"a"`
		}](), "no name of its own"},
		{"*2|+a|+x|", as[struct {
			A string `redis:"a,s"`
		}](), "has a unit, and the field is no time"},
		{"*2|+a|+x|", as[struct {
			A time.Duration `redis:"a"`
		}](), `needs a unit, such as redis:"a,ms"`},
		{"*2|+a|+x|", as[struct {
			A time.Time `redis:"a,h"`
		}](), "needs one of the units s, ms, us and ns"},
		{"*2|+city|+x|", as[struct{ *place }](), "embedded pointer"},
		{"*2|+age|+x|", as[account](), "simple string is not an unsigned integer (field Age)"},
		{"*2|+limit|+x|", as[account](), "not an integer (field Limit)"}, {"*2|+seen|+x|", as[account](), "not an integer (field Seen)"},
		{"*4|+other|+x|+name|+n|", as[account](), account{Name: "n"}}, {"*0|", as[account](), account{}},
		{"*2|%1|+score|$3|0.5|%1|+city|+x|", as[[]account](), []account{{Score: &half}, {place: place{"x"}}}},
		{"%2|+pause|:2500000|+limit|:60|", as[*account](), &account{Limit: time.Minute, Pause: ptr(2500 * time.Millisecond)}},
		{"%1|+pause|_|", as[account](), account{}}, {"%1|+seen|:1700000000250|", as[account](), account{Seen: time.UnixMilli(1700000000250)}},
	} {
		got, err := tt.as(parse(t, tt.wire))
		if want, ok := tt.want.(string); ok && err != nil {
			if !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
				t.Errorf("%s: the error is %q, want %q in it", tt.wire, err, want)
			}
			if !reflect.ValueOf(got).IsZero() {
				t.Errorf("%s: %v beside the error %v", tt.wire, got, err)
			}
		} else if err != nil || !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s: %#v, %v, want %#v", tt.wire, got, err, tt.want)
		}
	}
}

func ptr[T any](v T) *T { return &v }

func mustInt(s string) *big.Int {
	n, ok := new(big.Int).SetString(s, 10)
	if !ok {
		panic(s)
	}
	return n
}

// As and its like hand on the error of the call.
func TestAsAround(t *testing.T) {
	down := errors.New("down")
	ok := parse(t, "+OK|")
	if _, err := resp.As[string](ok, down); err != down {
		t.Errorf("As = %v", err)
	}
	if _, found, err := resp.Maybe[string](ok, down); found || err != down {
		t.Errorf("Maybe = %v, %v", found, err)
	}
	if _, err := resp.Seconds(ok, down); err != down {
		t.Errorf("Seconds = %v", err)
	}
	if list, err := resp.Each[string]([]resp.Value{ok}, down); list != nil || err != down {
		t.Errorf("Each = %v, %v", list, err)
	}
	for _, err := range resp.Entries(ok, down) {
		if err != down {
			t.Errorf("Entries = %v", err)
		}
	}
}

func TestEach(t *testing.T) {
	list, err := resp.Each[*int]([]resp.Value{parse(t, ":1|"), parse(t, "_|")}, nil)
	if err != nil || len(list) != 2 || *list[0] != 1 || list[1] != nil {
		t.Errorf("Each = %v, %v", list, err)
	}
	list, err = resp.Each[*int]([]resp.Value{parse(t, ":1|"), parse(t, "-ERR no|")}, nil)
	if list != nil || !errors.Is(err, resp.ErrGeneral) || !strings.Contains(err.Error(), "reply 1") {
		t.Errorf("Each of an error reply = %v, %v", list, err)
	}
}

func TestMaybe(t *testing.T) {
	for _, tt := range []struct {
		wire string
		ok   bool
		err  bool
	}{
		{"_|", false, false}, {"$-1|", false, false}, {"*-1|", false, false}, {"*0|", false, false}, {"%0|", false, false}, {"~0|", false, false},
		{"%1|+name|+x|", true, false}, {"$0||", false, true}, {"-ERR no|", false, true},
	} {
		got, ok, err := resp.Maybe[account](parse(t, tt.wire), nil)
		if ok != tt.ok || (err != nil) != tt.err || !ok && !reflect.ValueOf(got).IsZero() {
			t.Errorf("Maybe of %s = %v, %v, %v", tt.wire, got, ok, err)
		}
	}
	if s, ok, err := resp.Maybe[string](parse(t, "$0||"), nil); s != "" || !ok || err != nil {
		t.Errorf("Maybe of an empty string = %q, %v, %v", s, ok, err)
	}
}

// As returns what Fields was given.
func TestFieldsAreRead(t *testing.T) {
	for _, want := range []account{
		{},
		{
			Name: "a b", Age: 200, Score: ptr(1e-9), Since: time.Date(2024, 2, 29, 1, 2, 3, 4, time.UTC), Seen: time.UnixMilli(-1),
			Limit: -time.Hour, Pause: ptr(time.Microsecond), Raw: []byte{0, 255}, Addr: netip.MustParseAddr("::1"), Active: true, place: place{"x"},
		},
	} {
		words := resp.Fields(want)
		got, err := resp.As[account](read(t, resp.CmdStrings(words).Encoded()), nil) // a flat array, as HGETALL in RESP2
		if !got.Seen.Equal(want.Seen) {
			t.Errorf("the time is %v, want %v", got.Seen, want.Seen)
		}
		got.Seen = want.Seen
		want.Raw = append([]byte{}, want.Raw...)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("after Fields = %q, As = %+v, %v, want %+v", words, got, err, want)
		}
	}
}

func TestFields(t *testing.T) {
	for _, tt := range []struct {
		v    any
		want []string
	}{
		{map[string]int{"b": 2, "a": 1}, []string{"a", "1", "b", "2"}},
		{map[named]any{"x": 1.5, "w": netip.MustParseAddr("::1")}, []string{"w", "::1", "x", "1.5"}},
		{&place{"x"}, []string{"city", "x"}}, {map[int]bool{}, []string{}},
		{struct {
			D *time.Duration `redis:"d,ms"`
			S *string        `redis:"s"`
		}{S: ptr("")}, []string{"s", ""}},
	} {
		if got := resp.Fields(tt.v); !slices.Equal(got, tt.want) {
			t.Errorf("Fields of %v = %q, want %q", tt.v, got, tt.want)
		}
	}
	for _, tt := range []struct {
		v    any
		want string
	}{
		{nil, "Fields of nil"}, {1, "Fields of an int"}, {struct{ a int }{}, "no field"},
		{map[string]time.Duration{"a": 1}, "no unit"},
		{map[string][]string{"a": {"secret"}}, "a []string cannot be stored"}, {map[string]failing{"a": {}}, "has no text"},
	} {
		func() {
			defer func() {
				if got, _ := recover().(string); !strings.Contains(got, tt.want) {
					t.Errorf("Fields of %T panics with %q, want %q", tt.v, got, tt.want)
				}
			}()
			resp.Fields(tt.v)
			t.Errorf("Fields of %T does not panic", tt.v)
		}()
	}
}

func TestDurations(t *testing.T) {
	for _, tt := range []struct {
		wire            string
		seconds, millis time.Duration
	}{
		{":-1|", resp.NoExpiry, resp.NoExpiry}, {":-2|", resp.NoKey, resp.NoKey}, {":0|", 0, 0},
		{":90|", 90 * time.Second, 90 * time.Millisecond}, {"$2|90|", 90 * time.Second, 90 * time.Millisecond},
		{":9223372036854775807|", 1<<63 - 1, 1<<63 - 1},
		{":9223372036|", 9223372036 * time.Second, 9223372036 * time.Millisecond}, {":9223372037|", 1<<63 - 1, 9223372037 * time.Millisecond}, {":-9223372036854775808|", -1 << 63, -1 << 63},
	} {
		if d, err := resp.Seconds(parse(t, tt.wire), nil); d != tt.seconds || err != nil {
			t.Errorf("Seconds of %s = %v, %v", tt.wire, d, err)
		}
		if d, err := resp.Milliseconds(parse(t, tt.wire), nil); d != tt.millis || err != nil {
			t.Errorf("Milliseconds of %s = %v, %v", tt.wire, d, err)
		}
	}
	if _, err := resp.Seconds(parse(t, "+x|"), nil); err == nil {
		t.Error("Seconds of a text")
	}
}

func TestEntries(t *testing.T) {
	const a, b, gone = "*2|$3|1-0|*2|+f|+v|", "*2|$3|2-0|%1|+f|:7|", "*2|$3|3-0|*-1|"
	for _, tt := range []struct{ name, wire, want, err string }{
		{"XRANGE", "*3|" + a + b + gone, " 1-0 v, 2-0 7, 3-0 null", ""}, {"XRANGE of nothing", "*0|", "", ""}, {"XREAD of nothing", "*-1|", "", ""},
		{"XREAD in RESP2", "*2|*2|+s|*2|" + a + b + "*2|+t|*1|" + gone, "s 1-0 v,s 2-0 7,t 3-0 null", ""},
		{"XREAD in RESP3", "%2|+s|*2|" + a + b + "+t|*1|" + gone, "s 1-0 v,s 2-0 7,t 3-0 null", ""},
		{"XREADGROUP of nothing", "*2|*2|+s|*0|*2|+t|*1|" + a, "t 1-0 v", ""}, {"XCLAIM JUSTID", "*2|+1-0|+2-0|", " 1-0 null, 2-0 null", ""},
		{"an error", "-ERR no|", "", "ERR no"}, {"a text", "+OK|", "", "not a list of entries"},
		{"an element", "*2|" + a + "*1|:1|", " 1-0 v", "not an entry"}, {"no list", "%1|+s|:1|", "", "not a list of entries"},
		{"XCLAIM of a deleted entry", "*3|*-1|" + a + "*-1|", " 1-0 v", ""}, {"the same with _", "*2|_|" + b, " 2-0 7", ""},
		{"a list in place of a name", "*1|*2|*0|*1|" + a, "", "not a list of entries"},
		{"XREADGROUP with CLAIM", "*1|*2|+s|*2|*4|$3|1-0|*2|+f|+v|:1500|:2|" + b, "s 1-0 v,s 2-0 7", ""},
	} {
		var got []string
		var failed error
		for e, err := range resp.Entries(parse(t, tt.wire), nil) {
			if failed != nil || err != nil && e.ID != "" {
				t.Errorf("%s: %v after the error %v, or with %v", tt.name, e, failed, err)
			}
			if failed = err; err != nil {
				continue
			}
			text := "null"
			if !e.Fields.IsNull() {
				text = e.Get("f") + e.Get("g")
			}
			got = append(got, e.Stream+" "+e.ID+" "+text)
		}
		if s := strings.Join(got, ","); s != tt.want || (failed == nil) != (tt.err == "") || failed != nil && !strings.Contains(failed.Error(), tt.err) {
			t.Errorf("%s: %q, %v, want %q, %q", tt.name, s, failed, tt.want, tt.err)
		}
		for range resp.Entries(parse(t, tt.wire), nil) {
			break
		}
	}
}

// small keeps short texts in itself, like many types that save an allocation.
type small struct {
	room [32]byte
	text []byte
}

func (s *small) UnmarshalText(b []byte) error {
	s.text = append(s.room[:0], b...)
	return nil
}

// Two values of a map do not share memory.
func TestMapValuesShareNoMemory(t *testing.T) {
	v := read(t, "%2\r\n+a\r\n+one\r\n+b\r\n+two\r\n")
	m, err := resp.As[map[string]small](v, nil)
	if err != nil {
		t.Fatal(err)
	}
	if a, b := string(m["a"].text), string(m["b"].text); a != "one" || b != "two" {
		t.Errorf("a is %q, b is %q, want one and two", a, b)
	}
	list, err := resp.As[[]small](read(t, "*2\r\n+one\r\n+two\r\n"), nil)
	if err != nil || string(list[0].text) != "one" || string(list[1].text) != "two" {
		t.Errorf("list: %q %q %v", list[0].text, list[1].text, err)
	}
}
