package resp_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockwire/lockwire/resp"
)

type (
	named      string
	namedInt   int16
	namedBytes []byte
	namedBool  bool
	namedFloat float32
)

// encoded returns the encoded command, built without the package.
func encoded(args ...string) string {
	var b strings.Builder
	b.WriteString("*" + strconv.Itoa(len(args)) + "\r\n")
	for _, a := range args {
		b.WriteString("$" + strconv.Itoa(len(a)) + "\r\n" + a + "\r\n")
	}
	return b.String()
}

func TestCommandArguments(t *testing.T) {
	long := strings.Repeat("x", 100_000)
	for _, tt := range []struct {
		arg  any
		want string
	}{
		{"", ""}, {"a\r\nb\x00\xff", "a\r\nb\x00\xff"}, {long, long}, {strings.Repeat("y", 9), "yyyyyyyyy"},
		{[]byte(nil), ""}, {[]byte{}, ""}, {[]byte("b\n"), "b\n"},
		{true, "1"}, {false, "0"},
		{0, "0"}, {-1, "-1"}, {int64(math.MaxInt64), "9223372036854775807"}, {int64(math.MinInt64), "-9223372036854775808"},
		{int8(-8), "-8"}, {int16(16), "16"}, {int32(math.MinInt32), "-2147483648"}, {int64(1) << 40, "1099511627776"},
		{uint(7), "7"}, {uint8(255), "255"}, {uint16(65535), "65535"}, {uint32(1 << 31), "2147483648"},
		{uint64(math.MaxUint64), "18446744073709551615"}, {uintptr(9), "9"},
		{1.5, "1.5"}, {float32(0.1), "0.1"}, {1e6, "1000000"}, {1e300, "1e+300"}, {-1e-9, "-1e-09"}, {0.0, "0"},
		{math.Inf(1), "inf"}, {math.Inf(-1), "-inf"}, {math.NaN(), "nan"}, {0.30000000000000004, "0.30000000000000004"},
		{named("n"), "n"}, {namedInt(-3), "-3"}, {namedBytes("nb"), "nb"}, {namedBool(true), "1"}, {namedFloat(2.5), "2.5"},
		{json.RawMessage(`{}`), "{}"}, {time.Saturday, "6"},
	} {
		want := encoded("ECHO", tt.want)
		got, err := resp.AppendCommand([]byte("before"), "ECHO", tt.arg)
		if err != nil || string(got) != "before"+want {
			t.Errorf("AppendCommand of %T %.20v = %.60q, %v, want %.60q", tt.arg, tt.arg, got, err, want)
		}
		c := resp.Cmd("ECHO", tt.arg)
		if c.Err() != nil || string(c.AppendTo(nil)) != want || c.Size() != len(want) {
			t.Errorf("Cmd of %T %.20v = %.60q, %v", tt.arg, tt.arg, c.AppendTo(nil), c.Err())
		}
		if c.Len() != 2 || c.Name() != "ECHO" || c.Arg(1) != tt.want {
			t.Errorf("arguments of %T %.20v: %d, %q, %.20q", tt.arg, tt.arg, c.Len(), c.Name(), c.Arg(1))
		}
	}
}

func TestCommandRefused(t *testing.T) {
	s := "secret"
	for _, tt := range []struct {
		arg   any
		wants []string
	}{
		{nil, []string{"nil"}},
		{time.Second, []string{"time.Duration", "no unit", "d.Milliseconds()"}},
		{time.Now(), []string{"time.Time", "t.UnixMilli()"}},
		{&s, []string{"*string", "points to"}},
		{(*int)(nil), []string{"*int", "points to"}},
		{[][]string{{s}}, []string{"[]string", "elements"}},
		{[]any{s, nil}, []string{"nil"}},
		{[]time.Duration{1}, []string{"time.Duration", "no unit"}},
		{map[string]string{s: s}, []string{"map[string]string", "Fields"}},
		{struct{ p string }{s}, []string{"struct"}},
		{errors.New(s), []string{"*errors.errorString"}},
		{netip.Addr{}, []string{"netip.Addr"}},
		{complex(1, 2), []string{"complex128"}},
		{make(chan int), []string{"chan int"}},
		{func() {}, []string{"func()"}},
		{[3]byte{}, []string{"[3]uint8"}},
	} {
		dst, err := resp.AppendCommand([]byte("before"), "SET", s, tt.arg, "more")
		if err == nil || string(dst) != "before" {
			t.Errorf("AppendCommand of %T = %q, %v", tt.arg, dst, err)
			continue
		}
		for _, want := range append(tt.wants, "resp: argument 2 ") {
			if !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), s) {
				t.Errorf("error for %T is %q, want %q in it and no argument", tt.arg, err, want)
			}
		}
		for _, c := range []resp.Command{resp.Cmd("SET", s, tt.arg), resp.CmdStrings([]string{"SET"}, s, tt.arg).On(s)} {
			if c.Err() == nil || c.Err().Error() != err.Error() || c.Len() != 0 || c.Name() != "" || c.Size() != 0 ||
				len(c.AppendTo(nil)) != 0 || strings.Contains(c.String(), s) {
				t.Errorf("Cmd of %T: %v, %v", tt.arg, c.Err(), c)
			}
			if key, ok := c.Key(); ok {
				t.Errorf("Key of a refused command = %q", key)
			}
		}
	}
}

func TestCommandSlices(t *testing.T) {
	many := make([]string, 1000)
	for i := range many {
		many[i] = "key:" + strconv.Itoa(i)
	}
	for _, tt := range []struct {
		args []any
		want []string
	}{
		{[]any{"MGET", []string{"a", "b"}}, []string{"MGET", "a", "b"}},
		{[]any{"MGET", []string{}}, []string{"MGET"}},
		{[]any{"MGET", []string(nil), "z"}, []string{"MGET", "z"}},
		{[]any{"MGET", many}, append([]string{"MGET"}, many...)},
		{[]any{"DEL", "k", many[:9], 7, []named{"x"}}, append(append([]string{"DEL", "k"}, many[:9]...), "7", "x")},
		{[]any{"RPUSH", "l", []int{1, 2}, []any{"a", []byte("b"), 1.5, true}}, []string{"RPUSH", "l", "1", "2", "a", "b", "1.5", "1"}},
		{[]any{"RPUSH", "l", [][]byte{{'x'}, nil}}, []string{"RPUSH", "l", "x", ""}},
	} {
		want := encoded(tt.want...)
		if got, err := resp.AppendCommand([]byte("before"), tt.args...); err != nil || string(got) != "before"+want {
			t.Errorf("AppendCommand of %.60v = %.60q, %v", tt.args, got, err)
		}
		words := []string{tt.args[0].(string)}
		for _, c := range []resp.Command{resp.Cmd(tt.args...), resp.CmdStrings(words, tt.args[1:]...)} {
			if c.Encoded() != want || c.Len() != len(tt.want) || c.Arg(len(tt.want)-1) != tt.want[len(tt.want)-1] {
				t.Errorf("command of %.60v = %.60q, %d words, %v", tt.args, c.Encoded(), c.Len(), c.Err())
			}
		}
		around, at, err := resp.AppendAround([]byte("before"), len(tt.args), 3, append(tt.args, "big")...)
		if whole := string(around[:at]) + "big" + string(around[at:]); err != nil || whole != "before"+encoded(append(tt.want, "big")...) {
			t.Errorf("AppendAround of %.60v = %.60q, %v", tt.args, whole, err)
		}
	}
	for _, name := range []any{[]string{"SET", "k"}, []any{"SET"}} {
		if c := resp.Cmd(name, "v"); c.Err() == nil || !strings.Contains(c.Err().Error(), "CmdStrings") {
			t.Errorf("a command that begins with %T: %v", name, c.Err())
		}
	}
}

func TestCommandEmpty(t *testing.T) {
	for _, c := range []resp.Command{{}, resp.Cmd(), resp.CmdStrings(nil), resp.Cmd().On("k")} {
		if c.Err() == nil || c.Len() != 0 || c.Arg(0) != "" || c.Size() != 0 || len(slices.Collect(c.Args())) != 0 {
			t.Errorf("a command without arguments: %v, %v", c.Err(), c)
		}
	}
	if dst, err := resp.AppendCommand(nil); err == nil || dst != nil {
		t.Errorf("AppendCommand without arguments = %q, %v", dst, err)
	}
}

func TestCommandViews(t *testing.T) {
	c := resp.Cmd("SET", "key", []byte("a\r\n$1\r\n"), int64(12345678901), "", true)
	want := []string{"SET", "key", "a\r\n$1\r\n", "12345678901", "", "1"}
	if c.Len() != len(want) {
		t.Fatalf("Len = %d, want %d", c.Len(), len(want))
	}
	for i, w := range want {
		if got := c.Arg(i); got != w {
			t.Errorf("Arg(%d) = %q, want %q", i, got, w)
		}
	}
	if got := slices.Collect(c.Args()); !slices.Equal(got, want) {
		t.Errorf("Args = %q, want %q", got, want)
	}
	for range c.Args() {
		break
	}
	for _, i := range []int{-1, 6, math.MaxInt} {
		if got := c.Arg(i); got != "" {
			t.Errorf("Arg(%d) = %q, want nothing", i, got)
		}
	}
	if got := c.String(); got != "SET (5 arguments)" {
		t.Errorf("String = %q", got)
	}
	if !bytes.Equal(c.AppendTo([]byte("x")), append([]byte("x"), c.AppendTo(nil)...)) {
		t.Error("AppendTo does not append")
	}
}

func TestCommandOn(t *testing.T) {
	c := resp.Cmd("PUBLISH", "channel", "0")
	if key, ok := c.Key(); ok || key != "" {
		t.Errorf("Key = %q, %v before On", key, ok)
	}
	on := c.On("lock")
	if key, ok := on.Key(); !ok || key != "lock" {
		t.Errorf("Key = %q, %v after On", key, ok)
	}
	if _, ok := c.Key(); ok {
		t.Error("On has changed the command it was called on")
	}
	if key, ok := on.On("").Key(); !ok || key != "" {
		t.Errorf("Key = %q, %v after On with an empty key", key, ok)
	}
	if !bytes.Equal(c.AppendTo(nil), on.AppendTo(nil)) || on.Len() != 3 {
		t.Error("On has changed the encoding")
	}
}

func TestCmdStrings(t *testing.T) {
	got := resp.CmdStrings([]string{"EVALSHA", "sha", "1", "key"}, 5, []byte("x"))
	want := resp.Cmd("EVALSHA", "sha", "1", "key", 5, []byte("x"))
	if got != want {
		t.Errorf("CmdStrings = %q, want %q", got.AppendTo(nil), want.AppendTo(nil))
	}
	var words []string
	var args []any
	for i := range 30 {
		words = append(words, strings.Repeat("k", 20*i))
		args = append(args, words[i])
	}
	if got, want := resp.CmdStrings(words, 5), resp.Cmd(append(args, 5)...); got != want {
		t.Errorf("CmdStrings of many words = %q, want %q", got.AppendTo(nil), want.AppendTo(nil))
	}
	if c := resp.CmdStrings(nil, "PING"); c != resp.Cmd("PING") {
		t.Errorf("CmdStrings without words = %q", c.AppendTo(nil))
	}
}

// A command keeps nothing of its arguments, and goroutines can share it.
func TestCommandShared(t *testing.T) {
	arg := []byte("value")
	c := resp.Cmd("SET", "key", arg)
	want := string(c.AppendTo(nil))
	copy(arg, "VALUE")
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 100 {
				if got := string(c.On("key").AppendTo(nil)); got != want || c.Arg(2) != "value" {
					t.Errorf("the command has changed to %q", got)
					return
				}
			}
		})
	}
	wg.Wait()
}
