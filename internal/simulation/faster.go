package simulation

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/lockwire/lockwire/internal/fakeredis"
)

// groupValues are the values of the group of a faster multi lock.
var groupValues = []string{"a", "b", "c", "d"}

// faster takes and releases some values of a group.
func (k *worker) faster(o *object) {
	var values []string
	for _, value := range groupValues {
		if k.dice.oneIn(2) {
			values = append(values, value)
		}
	}
	if len(values) == 0 {
		values = groupValues
	}
	handle := &k.process.clientOf(o).FasterMulti(o.name, values...).Handle
	switch k.dice.n(60) {
	case 0:
		k.force(o, "FasterMulti", handle.ForceUnlock)
		return
	case 1:
		k.look(o, "FasterMulti", handle)
		return
	}
	if !k.pass() {
		return
	}
	r := k.request(o, "FasterMulti", false)
	defer r.cancel()
	k.begin(o, r.limit, !r.try, "FasterMulti of %v%s", values, r.text)
	call := handle.Lock
	if r.try {
		call = handle.TryLock
	}
	lease, err := call(r.ctx, r.opts...)
	if !k.end(err) || err != nil {
		return
	}
	if h := k.took(o, lease, r.hold(hold{values: values})); h != nil {
		k.work(h)
		k.giveBack(h)
	}
}

// shareValue reports whether two holds of a group have a value in common.
func shareValue(a, b *hold) bool {
	return slices.ContainsFunc(a.values, func(value string) bool { return slices.Contains(b.values, value) })
}

// valueOwners returns the owner of each taken value of a group.
func valueOwners(srv *fakeredis.Server, group string) (owners []string) {
	all, _ := srv.Do("HGETALL", group).([]any)
	fields := map[string]string{}
	for i := 0; i+1 < len(all); i += 2 {
		fields[all[i].(string)] = all[i+1].(string)
	}
	now := millis(srv)
	for field, owner := range fields {
		if end, err := strconv.ParseInt(fields[field+":"+owner+":expire_time"], 10, 64); err == nil && end > now && !strings.Contains(field, ":") {
			owners = append(owners, owner)
		}
	}
	slices.Sort(owners)
	return owners
}

// millis is the time of a server in ms.
func millis(srv *fakeredis.Server) (ms int64) {
	words := srv.Do("TIME").([]any)
	var seconds, micros int64
	if _, err := fmt.Sscan(fmt.Sprintln(words...), &seconds, &micros); err != nil {
		panic(err)
	}
	return seconds*1000 + micros/1000
}

// owners are the owners of an exclusive lock, or of values, on a server.
func (o *object) owners(srv *fakeredis.Server) (owners []string) {
	if o.family == faster {
		return valueOwners(srv, o.name)
	}
	fields, _ := srv.Do("HKEYS", o.name).([]any)
	for _, field := range fields {
		owners = append(owners, field.(string))
	}
	return owners
}

// free reports whether nobody has the object on a server.
func (o *object) free(srv *fakeredis.Server) bool {
	if o.family == faster {
		return len(valueOwners(srv, o.name)) == 0
	}
	return srv.Do("EXISTS", o.name) == any(int64(0))
}
