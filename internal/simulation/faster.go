package simulation

import (
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/lockwire/lockwire/internal/fakeredis"
)

// groupValues are the values of the group of a faster multi lock, and valueFields their fields in its hash.
var (
	groupValues = []string{"a", "b", "c", "d"}
	valueFields = map[string]string{
		"a": "qwvAS12pR0CgRitaypEjUw", "b": "Q5CdP+xmkHdTGWYr64Lw6A", "c": "b/ERpQOx2r8GXiGBU6d0Hg", "d": "cCV/U3K/CnVMICY6x8GOAQ",
	}
)

// faster takes and releases some values of a group, an Owner also several times some.
func (k *worker) faster(o *object) {
	values := k.someValues()
	handle := &k.process.clientOf(o).FasterMulti(o.name, values...).Handle
	switch k.dice.n(60) {
	case 0:
		k.force(o, "FasterMulti", handle.ForceUnlock)
		return
	case 1:
		k.look(o, "FasterMulti", handle)
		return
	}
	holds := 1
	if o.nests {
		holds += k.dice.n(3)
	}
	owned := holds > 1 || k.dice.oneIn(6)
	var held []*hold
	for range holds {
		h := k.takeValues(o, values, owned, held)
		if h == nil {
			break
		}
		held, values = append(held, h), k.someValues()
	}
	for len(held) > 0 {
		i := k.dice.n(len(held))
		k.work(held[i])
		k.giveBack(held[i])
		held = slices.Delete(held, i, i+1)
	}
}

// someValues are at least one of the values of a group.
func (k *worker) someValues() (values []string) {
	for _, value := range groupValues {
		if k.dice.oneIn(2) {
			values = append(values, value)
		}
	}
	if len(values) == 0 {
		return groupValues
	}
	return values
}

// takeValues asks for values once, and returns nil if they are not to be had. A worker with other values does not wait for more:
// another worker might wait the other way round.
func (k *worker) takeValues(o *object, values []string, owned bool, within []*hold) *hold {
	if !k.pass() {
		return nil
	}
	r := k.request(o, "FasterMulti", owned)
	defer r.cancel()
	r.try = r.try || slices.ContainsFunc(values, func(value string) bool {
		return len(within) > 0 && !slices.ContainsFunc(within, func(h *hold) bool { return h.relies() && slices.Contains(h.values, value) })
	})
	k.begin(o, r.limit, !r.try, "FasterMulti of %v%s", values, r.text)
	handle := &k.process.clientOf(o).FasterMulti(o.name, values...).Handle
	call := handle.Lock
	if r.try {
		call = handle.TryLock
	}
	lease, err := call(r.ctx, r.opts...)
	if !k.end(err) || err != nil {
		return nil
	}
	return k.took(o, lease, r.hold(hold{values: values, shared: r.owned}))
}

// shareValue reports whether two holds of a group have a value in common.
func shareValue(a, b *hold) bool {
	return slices.ContainsFunc(a.values, func(value string) bool { return slices.Contains(b.values, value) })
}

// hasValues reports whether a server has an owner for each of the values.
func hasValues(srv *fakeredis.Server, group, owner string, values []string) bool {
	owners := valueOwners(srv, group)
	return !slices.ContainsFunc(values, func(value string) bool { return owners[valueFields[value]] != owner })
}

// valueOwners returns the owner of each taken value of a group, by its field.
func valueOwners(srv *fakeredis.Server, group string) map[string]string {
	all, _ := srv.Do("HGETALL", group).([]any)
	fields := map[string]string{}
	for i := 0; i+1 < len(all); i += 2 {
		fields[all[i].(string)] = all[i+1].(string)
	}
	now := millis(srv)
	owners := map[string]string{}
	for field, owner := range fields {
		if end, err := strconv.ParseInt(fields[field+":"+owner+":expire_time"], 10, 64); err == nil && end > now && !strings.Contains(field, ":") {
			owners[field] = owner
		}
	}
	return owners
}

// millis is the time of a server, or of the server of a script, in ms.
func millis(srv interface{ Do(args ...string) any }) int64 {
	words := srv.Do("TIME").([]any)
	seconds, err := strconv.ParseInt(words[0].(string), 10, 64)
	micros, bad := strconv.ParseInt(words[1].(string), 10, 64)
	if err != nil || bad != nil {
		panic(errors.Join(err, bad))
	}
	return seconds*1000 + micros/1000
}

// owners are the owners of an exclusive lock, or of values, on a server.
func (o *object) owners(srv *fakeredis.Server) (owners []string) {
	if o.family == faster {
		return slices.Sorted(maps.Values(valueOwners(srv, o.name)))
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
