package fakeredis

import (
	"strconv"
	"time"
)

func serverCommands() []command {
	return []command{
		{name: "time", arity: 1, run: clock},
		{name: "info", arity: -1, run: info},
		{name: "config|get", arity: -3, flags: notScript, run: configGet},
		{name: "config|set", arity: -4, flags: notScript, run: configSet},
	}
}

func clock(x *call) any {
	now := time.Now().Add(time.Duration(x.s.ahead.Load()))
	return []any{strconv.FormatInt(now.Unix(), 10), strconv.Itoa(now.Nanosecond() / 1000)}
}

func info(x *call) any {
	return verbatim("# Server\r\nredis_version:" + Version + "\r\nredis_mode:" + x.s.mode() + "\r\nrun_id:" + x.s.runID +
		"\r\nuptime_in_seconds:" + strconv.FormatInt(time.Now().Unix()-x.s.started.Unix(), 10) + "\r\n\r\n" +
		"# Clients\r\nconnected_clients:" + strconv.Itoa(len(x.s.conns)) + "\r\n\r\n" +
		"# Stats\r\nsync_full:" + strconv.Itoa(x.s.repl.full) + "\r\nsync_partial_ok:" + strconv.Itoa(x.s.repl.partial) + "\r\n\r\n" +
		x.s.replicationInfo())
}
