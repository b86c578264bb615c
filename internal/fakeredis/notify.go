package fakeredis

import (
	"slices"
	"strconv"
	"strings"
	"time"
)

// notifications are the classes of key events published by the server, by their letters: notify-keyspace-events. The fake has
// no events of lists and sets.
type notifications string

const (
	allClasses = "g$lshzxetd" // A stands for all of these
	allLetters = allClasses + "KEmn"
)

// parseNotifications reads the letters of notify-keyspace-events.
func parseNotifications(letters string) (notifications, bool) {
	full := strings.ReplaceAll(letters, "A", allClasses)
	for _, letter := range full {
		if !strings.ContainsRune(allLetters, letter) {
			return "", false
		}
	}
	return notifications(full), true
}

func (n notifications) has(letter byte) bool { return strings.IndexByte(string(n), letter) >= 0 }

// String writes the letters as Redis 7.0 does, without n beside A.
func (n notifications) String() string {
	letters := allClasses + "n"
	if !slices.ContainsFunc([]byte(allClasses), func(class byte) bool { return !n.has(class) }) {
		letters = "A"
	}
	text := ""
	for _, letter := range []byte(letters + "KEm") {
		if letter == 'A' || n.has(letter) {
			text += string(letter)
		}
	}
	return text
}

func configGet(x *call) any {
	found := pairs{}
	for _, pattern := range x.args[2:] {
		if match(strings.ToLower(pattern), "notify-keyspace-events") && len(found) == 0 {
			found = append(found, "notify-keyspace-events", x.s.notify.String())
		}
	}
	return found
}

func configSet(x *call) any {
	if len(x.args) != 4 || !strings.EqualFold(x.args[2], "notify-keyspace-events") {
		return Err("ERR Unknown option or number of arguments for CONFIG SET - '" + x.args[2] + "'")
	}
	n, valid := parseNotifications(x.args[3])
	if !valid {
		return Err("ERR CONFIG SET failed (possibly related to argument 'notify-keyspace-events') - Invalid event class character. Use 'Ag$lshzxeKEtmdn'.")
	}
	x.s.notify = n
	x.s.expireLocked()
	return ok
}

// eventNames are the commands whose event has another name, or a class that does not follow from the command.
var eventNames = map[string]string{
	"setnx": "set", "mset": "set", "incr": "incrby", "decr": "incrby", "decrby": "incrby", "hsetnx": "hset", "zincrby": "zincr",
	"unlink": "del", "pexpire": "expire", "pexpireat": "expire",
}

// event returns the name and the class of the event that a command causes; "" for none.
func (x *call) event() (name string, class byte) {
	name = x.cmd.name
	if other, has := eventNames[name]; has {
		name = other
	}
	if name == "zadd" && slices.ContainsFunc(x.args, func(arg string) bool { return strings.EqualFold(arg, "INCR") }) {
		return "zincr", 'z'
	}
	switch name {
	case "set", "incrby", "append":
		return name, '$'
	case "hset", "hincrby", "hdel":
		return name, 'h'
	case "zadd", "zincr", "zrem", "zremrangebyscore":
		return name, 'z'
	case "del", "expire", "persist":
		return name, 'g'
	}
	return "", 0
}

// do runs the command, and publishes the events of the touched keys.
func (x *call) do() any {
	reply := x.cmd.run(x)
	if x.s.notify == "" || len(x.touched) == 0 {
		return reply
	}
	name, class := x.event()
	timed := false
	for _, key := range x.changed() {
		e := x.db.keys[key]
		timed = timed || e != nil && e.until != 0
		switch {
		case e == nil && (name == "expire" || name == "del"):
			x.s.tellLocked(x.db, 'g', "del", key)
			continue
		case name != "":
			x.s.tellLocked(x.db, class, name, key)
		}
		switch {
		case e == nil:
			x.s.tellLocked(x.db, 'g', "del", key)
		case name == "set" && e.until != 0 && !slices.ContainsFunc(x.args, func(arg string) bool { return strings.EqualFold(arg, "KEEPTTL") }):
			x.s.tellLocked(x.db, 'g', "expire", key)
		}
	}
	if timed {
		x.s.expireLocked()
	}
	return reply
}

// changed returns the keys with an event: a key that MSET sets twice has two.
func (x *call) changed() []string {
	if !strings.HasPrefix(x.cmd.name, "mset") {
		return x.touched
	}
	var keys []string
	for i := 1; i < len(x.args); i += 2 {
		keys = append(keys, x.args[i])
	}
	return keys
}

// tellLocked publishes an event about a key to the clients of this server.
func (s *Server) tellLocked(d *db, class byte, event, key string) {
	if !s.notify.has(class) {
		return
	}
	number := strconv.Itoa(d.index)
	if s.notify.has('K') {
		s.publishHere("__keyspace@"+number+"__:"+key, event)
	}
	if s.notify.has('E') {
		s.publishHere("__keyevent@"+number+"__:"+event, key)
	}
}

// expireLocked deletes the expired keys if anybody listens to expirations, and runs again at the next expiry.
func (s *Server) expireLocked() {
	if s.expiry != nil {
		s.expiry.Stop()
	}
	if !s.notify.has('x') || s.closed || s.repl.master != "" {
		return
	}
	now, next := nowMs(), int64(0)
	asleep := s.mute || s.down || s.still.Load()
	for i := range s.dbs {
		x := &call{s: s, db: &s.dbs[i], now: now}
		if !asleep {
			x.live()
		}
		for _, e := range x.db.keys {
			if e.until != 0 && (next == 0 || e.until < next) {
				next = e.until
			}
		}
	}
	if next != 0 {
		wait := time.Duration(next+1-now) * time.Millisecond
		s.expiry = time.AfterFunc(max(wait, time.Millisecond), func() { s.set(s.expireLocked) })
	}
}
