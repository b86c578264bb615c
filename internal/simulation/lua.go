package simulation

import (
	"fmt"
	"strconv"
	"strings"
	"sync"

	lua "github.com/yuin/gopher-lua"
	"github.com/yuin/gopher-lua/parse"

	"github.com/lockwire/lockwire/internal/fakeredis"
)

// interpreter runs the Lua of scripts on a server, a script at a time.
type interpreter struct {
	state *lua.LState
	call  *fakeredis.Call // the running script
	// ran is told of each run behind it: the first words of the script, up to a colon.
	ran func(title string, call *fakeredis.Call, reply any)
}

func newInterpreter(ran func(title string, call *fakeredis.Call, reply any)) *interpreter {
	in := &interpreter{state: lua.NewState(lua.Options{SkipOpenLibs: true, RegistrySize: 1 << 10, RegistryMaxSize: 1 << 16, CallStackSize: 64}), ran: ran}
	for name, open := range map[string]lua.LGFunction{
		lua.BaseLibName: lua.OpenBase, lua.TabLibName: lua.OpenTable,
		lua.StringLibName: lua.OpenString, lua.MathLibName: lua.OpenMath,
	} {
		in.state.Push(in.state.NewFunction(open))
		in.state.Push(lua.LString(name))
		in.state.Call(1, 0)
	}
	in.state.SetGlobal("redis", in.state.SetFuncs(in.state.NewTable(), map[string]lua.LGFunction{
		"call":         func(l *lua.LState) int { return in.command(l, true) },
		"pcall":        func(l *lua.LState) int { return in.command(l, false) },
		"error_reply":  func(l *lua.LState) int { return single(l, "err") },
		"status_reply": func(l *lua.LState) int { return single(l, "ok") },
		"acl_check_cmd": func(l *lua.LState) int {
			args := make([]string, l.GetTop())
			for i := range args {
				args[i] = argument(l.Get(i + 1))
			}
			l.Push(lua.LBool(in.call.Allowed(args...)))
			return 1
		},
	}))
	return in
}

func (in *interpreter) close() { in.state.Close() }

// compile turns the source of a script into its effect.
func (in *interpreter) compile(source string) (func(*fakeredis.Call) any, error) {
	proto, err := translate(source)
	if err != nil {
		return nil, err
	}
	title := titleOf(source)
	return func(c *fakeredis.Call) any {
		in.call = c
		in.state.SetGlobal("KEYS", in.list(c.Keys))
		in.state.SetGlobal("ARGV", in.list(c.Args))
		in.state.Push(in.state.NewFunctionFromProto(proto))
		var reply any
		if err := in.state.PCall(0, 1, nil); err != nil {
			reply = failure(err)
		} else {
			reply = fromLua(in.state.Get(-1))
			in.state.Pop(1)
		}
		in.ran(title, c, reply)
		return reply
	}, nil
}

// titleOf is the title in a script's first line, also behind the prefix of a script run apart.
func titleOf(source string) string {
	const end = "server.call(name, ...) or reply\nend\n-- "
	apart := ""
	if _, inner, found := strings.Cut(source, end); found {
		apart, source = "apart: ", inner
	}
	title, _, _ := strings.Cut(strings.TrimPrefix(source, "-- "), ":")
	return apart + title
}

// translated are the scripts compiled by this program so far: compiled scripts never change, and compiling takes a while.
var translated sync.Map

func translate(source string) (*lua.FunctionProto, error) {
	if proto, ok := translated.Load(source); ok {
		return proto.(*lua.FunctionProto), nil
	}
	chunk, err := parse.Parse(strings.NewReader(source), "user_script")
	if err != nil {
		return nil, err
	}
	proto, err := lua.Compile(chunk, "user_script")
	if err != nil {
		return nil, err
	}
	proto.IsVarArg &^= lua.VarArgNeedsArg // no script uses the table arg of Lua 5.0
	translated.Store(source, proto)
	return proto, nil
}

// failure is the reply of a failed script.
func failure(err error) any {
	raised, ok := err.(*lua.ApiError)
	if !ok {
		return fakeredis.Err("ERR " + err.Error())
	}
	if table, ok := raised.Object.(*lua.LTable); ok {
		if text := table.RawGetString("err"); text != lua.LNil {
			return fakeredis.Err(text.String())
		}
	}
	return fakeredis.Err("ERR " + strings.ReplaceAll(raised.Object.String(), "\n", " "))
}

func (in *interpreter) list(words []string) *lua.LTable {
	table := in.state.CreateTable(len(words), 0)
	for _, word := range words {
		table.Append(lua.LString(word))
	}
	return table
}

// command is redis.call, which raises an error reply, or redis.pcall, which returns the error.
func (in *interpreter) command(l *lua.LState, raises bool) int {
	args := make([]string, l.GetTop())
	for i := range args {
		args[i] = argument(l.Get(i + 1))
	}
	if len(args) == 0 {
		l.RaiseError("Please specify at least one argument for this redis.call()")
	}
	reply := in.call.TryDo(args...)
	value := toLua(l, reply)
	if _, failed := reply.(fakeredis.Err); failed && raises {
		l.Error(value, 0)
	}
	l.Push(value)
	return 1
}

// argument is a Lua value as an argument of Redis.
func argument(v lua.LValue) string {
	if n, ok := v.(lua.LNumber); ok {
		if float64(int64(n)) == float64(n) {
			return strconv.FormatInt(int64(n), 10)
		}
		return strconv.FormatFloat(float64(n), 'g', 17, 64)
	}
	return v.String()
}

func single(l *lua.LState, field string) int {
	table := l.NewTable()
	table.RawSetString(field, lua.LString(l.CheckString(1)))
	l.Push(table)
	return 1
}

func toLua(l *lua.LState, reply any) lua.LValue {
	switch v := reply.(type) {
	case nil:
		return lua.LFalse
	case int64:
		return lua.LNumber(v)
	case string:
		return lua.LString(v)
	case fakeredis.Status:
		table := l.NewTable()
		table.RawSetString("ok", lua.LString(v))
		return table
	case fakeredis.Err:
		table := l.NewTable()
		table.RawSetString("err", lua.LString(v))
		return table
	case []any:
		table := l.CreateTable(len(v), 0)
		for i, element := range v {
			table.RawSetInt(i+1, toLua(l, element))
		}
		return table
	}
	panic(fmt.Sprintf("simulation: a reply of type %T", reply))
}

func fromLua(value lua.LValue) any {
	switch v := value.(type) {
	case lua.LNumber:
		return int64(v)
	case lua.LString:
		return string(v)
	case lua.LBool:
		return bool(v)
	case *lua.LTable:
		if text := v.RawGetString("err"); text != lua.LNil {
			return fakeredis.Err(text.String())
		}
		if text := v.RawGetString("ok"); text != lua.LNil {
			return fakeredis.Status(text.String())
		}
		list := []any{}
		for i := 1; v.RawGetInt(i) != lua.LNil; i++ {
			list = append(list, fromLua(v.RawGetInt(i)))
		}
		return list
	}
	return nil
}
