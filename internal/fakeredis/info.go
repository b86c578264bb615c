package fakeredis

import (
	"strconv"
	"time"
)

func serverCommands() []command {
	disabled := func(*call) any { return Err("ERR This instance has cluster support disabled") }
	return []command{
		{name: "time", arity: 1, run: clock},
		{name: "info", arity: -1, run: info},
		{name: "asking", arity: 1, run: disabled},
		{name: "readonly", arity: 1, run: disabled},
		{name: "readwrite", arity: 1, run: disabled},
		{name: "cluster|info", arity: 2, run: disabled},
		{name: "cluster|slots", arity: 2, run: disabled},
		{name: "cluster|shards", arity: 2, run: disabled},
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
		x.s.replicationInfo())
}
