package resp

import (
	"cmp"
	"encoding"
	"errors"
	"reflect"
	"slices"
	"strings"
)

// Fields returns the names and values of a struct, a pointer to a struct, or a map, alternating as HSET and XADD take
// them:
//
//	type User struct {
//		Name  string    `redis:"name"`
//		Since time.Time `redis:"since,ms"`
//	}
//	_, err := pool.Do(ctx, "HSET", "user:1", resp.Fields(user))
//
// Of a struct Fields takes the exported fields with a tag redis, in their order, also of embedded structs. A nil pointer
// is left out. A map is sorted by its keys.
//
// The values are of the types that [Cmd] takes, time.Time, time.Duration, and types that implement
// encoding.TextMarshaler. Behind a comma the tag names a unit: s, ms, us or ns. A time.Time with a unit is stored as the
// time since 1970, and without one in RFC 3339. A time.Duration must have a unit.
//
// Fields panics if the type cannot be stored, or if a TextMarshaler returns an error. [As] reads what Fields has written.
func Fields(v any) []string {
	r := reflect.ValueOf(v)
	for r.Kind() == reflect.Pointer {
		r = r.Elem()
	}
	switch r.Kind() {
	case reflect.Struct:
		return structFields(r)
	case reflect.Map:
		return mapFields(r)
	}
	panic("resp: Fields of " + typeName(r) + ": pass a struct or a map")
}

func typeName(v reflect.Value) string {
	if !v.IsValid() {
		return "nil"
	}
	return article(v.Type())
}

func structFields(r reflect.Value) []string {
	fields, err := fieldsOf(r.Type())
	if err != nil {
		panic(err.Error())
	}
	words := make([]string, 0, 2*len(fields))
	for _, f := range fields {
		v := r.FieldByIndex(f.index)
		for v.Kind() == reflect.Pointer && !v.IsNil() {
			v = v.Elem()
		}
		if v.Kind() != reflect.Pointer {
			words = append(words, f.name, textOf(v, f.unit))
		}
	}
	return words
}

func mapFields(r reflect.Value) []string {
	pairs := make([][2]string, 0, r.Len())
	for it := r.MapRange(); it.Next(); {
		v := it.Value()
		if v.Kind() == reflect.Interface {
			v = v.Elem()
		}
		pairs = append(pairs, [2]string{textOf(it.Key(), ""), textOf(v, "")})
	}
	slices.SortFunc(pairs, func(a, b [2]string) int { return cmp.Compare(a[0], b[0]) })
	words := make([]string, 0, 2*len(pairs))
	for _, p := range pairs {
		words = append(words, p[0], p[1])
	}
	return words
}

// textOf returns v as an argument.
func textOf(v reflect.Value, unit string) string {
	if v.IsValid() {
		if s, ok := timeText(v.Interface(), unit); ok {
			return s
		}
		if m, ok := v.Interface().(encoding.TextMarshaler); ok {
			text, err := m.MarshalText()
			if err != nil {
				panic("resp: Fields: " + typeName(v) + " has no text: " + err.Error())
			}
			return string(text)
		}
		if text, ok := appendScalar(nil, v); ok {
			return string(text)
		}
	}
	panic("resp: Fields: " + typeName(v) + " cannot be stored")
}

// field is a field of a struct with a tag redis.
type field struct {
	index []int
	name  string // of the pair
	unit  string // of a time or duration; "" for none
	title string // of the field, for errors
}

// fieldsOf returns the tagged fields of a struct type. A second field of a name, or an unknown unit, is a mistake of the
// program.
func fieldsOf(t reflect.Type) (list []field, err error) {
	for _, f := range reflect.VisibleFields(t) {
		tag, ok := f.Tag.Lookup("redis")
		if !ok || tag == "-" {
			continue
		}
		name, unit, _ := strings.Cut(tag, ",")
		same := func(other field) bool { return other.name == name }
		switch {
		case !f.IsExported():
			return nil, errors.New("resp: field " + f.Name + " of " + t.String() + " has a tag and is not exported")
		case behindPointer(t, f.Index):
			return nil, errors.New("resp: field " + f.Name + " of " + t.String() + " is in an embedded pointer")
		case name == "", slices.ContainsFunc(list, same):
			return nil, errors.New("resp: the tag of field " + f.Name + " of " + t.String() + " has no name of its own")
		case !isUnit(unit, f.Type):
			return nil, errors.New("resp: the tag of field " + f.Name + " of " + t.String() + " needs another unit, or none")
		}
		list = append(list, field{f.Index, name, unit, f.Name})
	}
	if len(list) == 0 {
		return nil, errors.New("resp: " + t.String() + " has no field with a tag redis")
	}
	return list, nil
}

// behindPointer reports whether the path to a field leads through an embedded pointer.
func behindPointer(t reflect.Type, index []int) bool {
	for _, i := range index[:len(index)-1] {
		if t = t.Field(i).Type; t.Kind() == reflect.Pointer {
			return true
		}
	}
	return false
}

// decodeStruct stores the pairs of v in the fields of dst.
func (d *decoder) decodeStruct(v Value, dst reflect.Value) error {
	t := dst.Type()
	fields, ok := d.structs[t]
	if !ok {
		var err error
		if fields, err = fieldsOf(t); err != nil {
			return err
		}
		if d.structs == nil {
			d.structs = make(map[reflect.Type][]field)
		}
		d.structs[t] = fields
	}
	pairs, err := v.Pairs()
	if err != nil {
		return err
	}
	next := 0 // servers often send the fields in the order in which they were stored
	for key, value := range pairs {
		name, err := key.Text()
		if err != nil {
			return at(err, "a key")
		}
		for i := range fields {
			f := &fields[(next+i)%len(fields)]
			if f.name != name {
				continue
			}
			next += i + 1
			if err := d.decodeField(value, dst.FieldByIndex(f.index), f.unit); err != nil {
				return at(err, "field "+f.title)
			}
			break
		}
	}
	return nil
}

// decodeField stores v in a field with a unit.
func (d *decoder) decodeField(v Value, dst reflect.Value, unit string) error {
	if unit == "" {
		return d.decode(v, dst)
	}
	if dst.Kind() == reflect.Pointer {
		if v.IsNull() {
			return nil
		}
		dst.Set(reflect.New(dst.Type().Elem()))
		dst = dst.Elem()
	}
	return v.decodeTime(dst, unit)
}
