package resp_test

import (
	"errors"
	"fmt"
	"math/big"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockwire/lockwire/resp"
)

type login struct {
	ID     string `redis:"id"`
	Secret string `redis:"secret"`
}

type (
	firstID struct {
		ID string `redis:"a_id"`
	}
	secondID struct {
		ID string `redis:"b_id"`
	}
	looped struct {
		*looped
		Name string `redis:"name"`
	}
	endless *endless
	timed   struct {
		At time.Time `redis:"at,ns"`
	}
	lasting struct {
		For time.Duration `redis:"for,ms"`
	}
	numbers struct {
		Value   big.Int  `redis:"value"`
		Pointer *big.Int `redis:"pointer"`
		Missing *big.Int `redis:"missing"`
		Any     any      `redis:"any"`
		None    any      `redis:"none"`
	}
	promoted struct{ *big.Int }
	deeper   struct{ promoted }
	byFace   struct{ unmarshaler }
)

type unmarshaler interface{ UnmarshalText([]byte) error }

// Each field of an embedded struct is stored by the name in its tag, and none that the program excludes.
func TestFieldsOfEmbedded(t *testing.T) {
	for _, tt := range []struct {
		v    any
		want string // the fields, or the panic
	}{
		{struct {
			login `redis:"-"`
			Name  string `redis:"name"`
		}{login{"1", "secret"}, "x"}, "name x"},
		{struct {
			firstID
			secondID
		}{firstID{"1"}, secondID{"2"}}, "a_id 1 b_id 2"},
		{struct {
			firstID
			ID string `redis:"id"`
		}{firstID{"1"}, "2"}, "a_id 1 id 2"},
		{struct {
			login
			ID string `redis:"id"`
		}{login{"1", "secret"}, "2"}, "no name of its own"},
		{struct {
			login
			Secret string `redis:"-"`
		}{login{"1", "secret"}, "2"}, "hidden by"},
		{struct {
			login
			Secret string
		}{login{"1", "secret"}, "2"}, "hidden by"},
		{struct{ *login }{}, "embedded pointer"},
		{struct {
			*big.Int
			Name string `redis:"name"`
		}{nil, "x"}, "name x"},
		{looped{looped: nil, Name: "x"}, "name x"},
	} {
		if got := fieldsOrPanic(tt.v); !strings.Contains(got, tt.want) || strings.Contains(got, "secret ") {
			t.Errorf("Fields of %T: %s, want %s", tt.v, got, tt.want)
		}
	}
	v, err := resp.As[struct {
		login `redis:"-"`
		Name  string `redis:"name"`
	}](parse(t, "%2|+secret|+s|+name|+x|"), nil)
	if v.Secret != "" || v.Name != "x" || err != nil {
		t.Errorf("As with an excluded struct = %+v, %v", v, err)
	}
}

// fieldsOrPanic returns the words of Fields or the text of its panic.
func fieldsOrPanic(v any) (s string) {
	defer func() {
		if r := recover(); r != nil {
			s = "panic: " + fmt.Sprint(r)
		}
	}()
	return strings.Join(resp.Fields(v), " ")
}

// Fields panics for a type, and not for a nil in the data.
func TestFieldsOfNil(t *testing.T) {
	for _, tt := range []struct {
		v    any
		want []string
	}{
		{map[string]any{"a": nil, "b": 1}, []string{"b", "1"}},
		{map[string]*string{"a": nil, "b": ptr("x")}, []string{"b", "x"}},
		{map[string]any{"a": (*int)(nil), "b": ptr(7)}, []string{"b", "7"}},
		{map[string]any{"a": (*time.Time)(nil), "b": (*time.Duration)(nil), "c": time.Unix(0, 0).UTC()}, []string{"c", "1970-01-01T00:00:00Z"}},
		{map[string]any{"a": (*big.Int)(nil), "b": (*netip.Addr)(nil), "c": ptr(any((*big.Int)(nil))), "d": *big.NewInt(7)}, []string{"d", "7"}},
		{numbers{Any: (*big.Int)(nil)}, []string{"value", "0"}},
		{map[string]*big.Int{"a": nil, "b": big.NewInt(7)}, []string{"b", "7"}},
		{map[string]big.Int{"a": *big.NewInt(7)}, []string{"a", "7"}},
		{map[string]*time.Time{"a": ptr(time.Unix(0, 0).UTC())}, []string{"a", "1970-01-01T00:00:00Z"}},
		{struct {
			At *time.Time `redis:"at,s"`
		}{ptr(time.Unix(7, 0))}, []string{"at", "7"}},
		{numbers{Value: *big.NewInt(5), Pointer: big.NewInt(6), Any: ptr("x")}, []string{"value", "5", "pointer", "6", "any", "x"}},
		{(*login)(nil), []string{}}, {(**login)(nil), []string{}}, {map[string]int(nil), []string{}},
	} {
		if got := fieldsOrPanic(tt.v); got != strings.Join(tt.want, " ") {
			t.Errorf("Fields of %T = %q, want %q", tt.v, got, tt.want)
		}
	}
	n, err := resp.As[numbers](parse(t, "%2|+value|+5|+pointer|+6|"), nil)
	if err != nil || n.Value.Int64() != 5 || n.Pointer.Int64() != 6 {
		t.Errorf("As = %v, %v", n, err)
	}
	for v, want := range map[any]string{
		(*int)(nil): "Fields of an int", endless(nil): "pointers", ptr(endless(nil)): "pointers",
		ptr(map[any]int{nil: 1}): "a key is nil", ptr(map[string]failing{"a": {}}): "a resp_test.failing has no text",
		ptr(map[string]endless{"a": looping()}): "cannot be stored",
	} {
		if got := fieldsOrPanic(v); !strings.Contains(got, "panic: ") || !strings.Contains(got, want) || strings.Contains(got, errText) {
			t.Errorf("Fields of %T: %s, want a panic with %q", v, got, want)
		}
	}
}

// looping returns a pointer to itself.
func looping() endless {
	var p endless
	p = &p
	return p
}

const errText = "quoted text"

// failing has a text that cannot be made.
type failing struct{}

func (failing) MarshalText() ([]byte, error) { return nil, errors.New(errText) }

// A time that its unit cannot hold is not stored.
func TestFieldsOfTimes(t *testing.T) {
	for _, at := range []time.Time{
		time.Unix(0, 0), time.Unix(0, -1), time.Unix(0, -1<<63), time.Unix(0, 1<<63-1),
		time.Date(1678, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2262, 1, 1, 0, 0, 0, 0, time.UTC),
	} {
		words := resp.Fields(timed{at})
		if got, err := resp.As[timed](read(t, resp.CmdStrings(words).Encoded()), nil); !got.At.Equal(at) || err != nil {
			t.Errorf("%v is stored as %q and read as %v, %v", at, words, got.At, err)
		}
	}
	for _, at := range []time.Time{{}, time.Unix(0, -1<<63).Add(-1), time.Unix(0, 1<<63-1).Add(1), time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)} {
		if got := fieldsOrPanic(timed{at}); !strings.Contains(got, "out of range") {
			t.Errorf("Fields with %v in nanoseconds = %s", at, got)
		}
	}
	if got := resp.Fields(struct {
		At time.Time `redis:"at,us"`
	}{}); !slices.Equal(got, []string{"at", "-62135596800000000"}) {
		t.Errorf("Fields with the zero time in microseconds = %q", got)
	}
}

// As reads a time in RFC 3339 wherever it was stored, although RFC 3339 has neither zones with seconds nor years of five digits.
func TestFieldsOfTimesWithoutUnit(t *testing.T) {
	type stamped struct {
		At time.Time `redis:"at"`
	}
	hours := func(h, seconds int) *time.Location { return time.FixedZone("", h*3600+seconds) }
	for _, at := range []time.Time{
		{}, time.Date(1890, 1, 2, 3, 4, 5, 6, hours(0, 53*60+28)), time.Date(1890, 1, 2, 3, 4, 5, 6, hours(-5, -1)),
		time.Date(2024, 1, 2, 3, 4, 5, 6, hours(14, 0)), time.Date(2024, 1, 2, 3, 4, 5, 6, hours(-23, -59*60)),
		time.Date(2024, 1, 2, 3, 4, 5, 6, hours(24, 0)), time.Date(2024, 1, 2, 3, 4, 5, 6, hours(-100, 0)),
		time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(9999, 12, 31, 23, 59, 59, 999_999_999, time.UTC),
	} {
		words := resp.Fields(stamped{at})
		if got, err := resp.As[stamped](read(t, resp.CmdStrings(words).Encoded()), nil); !got.At.Equal(at) || err != nil {
			t.Errorf("%v is stored as %q and read as %v, %v", at, words, got.At, err)
		}
	}
	for _, at := range []time.Time{time.Date(-1, 12, 31, 0, 0, 0, 0, time.UTC), time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)} {
		if got := fieldsOrPanic(map[string]any{"at": at}); !strings.Contains(got, "out of range") {
			t.Errorf("Fields with %v = %s", at, got)
		}
	}
}

// A struct with an embedded time has the methods of the time. Its tags count nevertheless, as they do for Fields.
func TestAsOfEmbeddedText(t *testing.T) {
	type event struct {
		time.Time `redis:"at,ms"`
		Name      string `redis:"name"`
	}
	want := event{time.UnixMilli(1700000000250), "x"}
	words := resp.Fields(want)
	if got, err := resp.As[event](read(t, resp.CmdStrings(words).Encoded()), nil); got != want || err != nil {
		t.Errorf("after Fields = %q, As = %+v, %v, want %+v", words, got, err, want)
	}
	if got, err := resp.As[*event](parse(t, "$20|2024-02-29T12:00:00Z|"), nil); err != nil || got.Year() != 2024 {
		t.Errorf("As of a text = %+v, %v", got, err)
	}
	if got, err := resp.As[event](parse(t, "*0|"), nil); got != (event{}) || err != nil {
		t.Errorf("As of nothing = %+v, %v", got, err)
	}
	var kind *resp.KindError
	if got, err := resp.As[netip.Addr](parse(t, "*0|"), nil); !errors.As(err, &kind) {
		t.Errorf("As of an array as an address = %v, %v", got, err)
	}
}

// No reply makes As panic.
func TestAsNeverPanics(t *testing.T) {
	for name, as := range map[string]func(resp.Value) (any, error){
		"an embedded nil pointer": as[promoted](), "the same in a struct": as[deeper](), "an embedded nil interface": as[byFace](),
		"a pointer to itself": as[endless](), "a list of these": as[[]endless](),
	} {
		for _, wire := range []string{"+5|", "*1|+5|"} {
			if got, err := as(parse(t, wire)); err == nil {
				t.Errorf("%s: %s as %T = %v without an error", name, wire, got, got)
			}
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("the panic of an UnmarshalText is lost")
		}
	}()
	_, _ = resp.As[panicking](parse(t, "+5|"), nil)
}

type panicking struct{}

func (*panicking) UnmarshalText([]byte) error { panic("a fault of the program") }
