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
// A struct is stored by its exported fields with a tag redis, in their order, including those of embedded structs. The tag
// "-" excludes a field, or an embedded struct with all its fields. Two tags must not have the same name, and a tagged
// field must not be hidden, in the sense of Go, by a field that is not stored. A map is sorted by its keys.
//
// A value has a type that [Cmd] takes, or is a time.Time, a time.Duration, or an encoding.TextMarshaler, itself or by its
// pointer. Pointers and interfaces to these are followed. A nil pointer or interface is left out; for a nil pointer to a
// struct the result is empty.
//
// A tag may name a unit after a comma: s, ms, us or ns. A time.Time with a unit is stored as the number of units since
// 1970, and without one in RFC 3339. A time.Duration must have a unit; the fraction of a unit is cut off.
//
// Fields panics if the type cannot be stored, if a TextMarshaler returns an error, and if a time is out of the range of
// its unit: with ns the years 1678 to 2262, so without the zero time; without a unit the years 0 to 9999. [As] reads what
// Fields has written.
func Fields(v any) []string {
	r := reflect.ValueOf(v)
	if !r.IsValid() {
		panic("resp: Fields of nil: pass a struct or a map")
	}
	t := r.Type()
	for range maxPointers {
		if t.Kind() != reflect.Pointer {
			break
		}
		t = t.Elem()
		if r.IsValid() {
			r = r.Elem()
		}
	}
	switch t.Kind() {
	case reflect.Struct:
		return structFields(t, r)
	case reflect.Map:
		return mapFields(r)
	case reflect.Pointer:
		panic("resp: Fields of " + article(t) + ": too many pointers")
	}
	panic("resp: Fields of " + article(t) + ": pass a struct or a map")
}

// maxPointers limits the pointers to follow, because type P *P has no end.
const maxPointers = 16

func structFields(t reflect.Type, r reflect.Value) []string {
	fields, err := fieldsOf(t)
	if err != nil {
		panic(err.Error())
	}
	if !r.IsValid() {
		return nil
	}
	words := make([]string, 0, 2*len(fields))
	for _, f := range fields {
		if text, ok := textOf(r.FieldByIndex(f.index), f.unit); ok {
			words = append(words, f.name, text)
		}
	}
	return words
}

// mapFields returns the pairs of r, a map, or none if r is invalid.
func mapFields(r reflect.Value) []string {
	if !r.IsValid() {
		return nil
	}
	pairs := make([][2]string, 0, r.Len())
	for it := r.MapRange(); it.Next(); {
		key, ok := textOf(it.Key(), "")
		if !ok {
			panic("resp: Fields: a key is nil")
		}
		if text, ok := textOf(it.Value(), ""); ok {
			pairs = append(pairs, [2]string{key, text})
		}
	}
	slices.SortFunc(pairs, func(a, b [2]string) int { return cmp.Compare(a[0], b[0]) })
	words := make([]string, 0, 2*len(pairs))
	for _, p := range pairs {
		words = append(words, p[0], p[1])
	}
	return words
}

// textOf returns v as an argument. ok is false for a nil pointer or interface, also behind pointers and interfaces.
func textOf(v reflect.Value, unit string) (_ string, ok bool) {
	for range maxPointers {
		k := v.Kind()
		if (k == reflect.Pointer || k == reflect.Interface) && v.IsNil() {
			return "", false
		}
		if k == reflect.Interface { // it may hold a nil pointer
			v = v.Elem()
			continue
		}
		if text, ok := timeText(v.Interface(), unit); ok {
			return text, true
		}
		if m, ok := marshaler(v); ok {
			text, err := m.MarshalText()
			if err != nil { // leave it out: it may quote the value
				panic("resp: Fields: " + article(v.Type()) + " has no text: its MarshalText returns an error")
			}
			return string(text), true
		}
		if k != reflect.Pointer {
			break
		}
		v = v.Elem()
	}
	if text, ok := appendScalar(nil, v); ok {
		return string(text), true
	}
	panic("resp: Fields: " + article(v.Type()) + " cannot be stored")
}

// marshaler returns v, or a pointer to a copy of v, as a TextMarshaler.
func marshaler(v reflect.Value) (encoding.TextMarshaler, bool) {
	if m, ok := v.Interface().(encoding.TextMarshaler); ok {
		return m, true
	}
	t := v.Type()
	if !reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextMarshaler]()) {
		return nil, false
	}
	p := reflect.New(t)
	p.Elem().Set(v)
	return p.Interface().(encoding.TextMarshaler), true
}

// field is a field of a struct with a tag redis.
type field struct {
	index []int
	name  string // of the pair
	unit  string // of a time or duration; "" for none
	title string // of the field, for errors
}

// fieldsOf returns the tagged fields of a struct type. Two fields of one name, a hidden field and an unknown unit are
// mistakes of the program.
func fieldsOf(t reflect.Type) ([]field, error) {
	list, err := walkFields(t, nil)
	switch {
	case err != nil:
		return nil, err
	case len(list) == 0:
		return nil, errors.New("resp: " + t.String() + " has no field with a tag redis")
	}
	for i, f := range list {
		if slices.ContainsFunc(list[:i], func(other field) bool { return other.name == f.name }) {
			return nil, errors.New("resp: the tag of field " + f.title + " of " + t.String() + " has no name of its own")
		}
	}
	return list, nil
}

// walkFields returns the tagged fields of t and of the structs embedded in it. around has the types in which t is embedded: a
// struct embedded in itself has no fields, because the fields of the outer one hide them.
func walkFields(t reflect.Type, around []reflect.Type) (list []field, err error) {
	around = append(slices.Clone(around), t)
	for i := range t.NumField() {
		f := t.Field(i)
		inner := f.Type
		if inner.Kind() == reflect.Pointer {
			inner = inner.Elem()
		}
		switch tag, tagged := f.Tag.Lookup("redis"); {
		case tagged && tag != "-":
			name, unit, _ := strings.Cut(tag, ",")
			if !f.IsExported() {
				return nil, errors.New("resp: field " + f.Name + " of " + t.String() + " has a tag and is not exported")
			}
			if fault := tagFault(name, unit, f.Type); fault != "" {
				return nil, errors.New("resp: the tag of field " + f.Name + " of " + t.String() + " " + fault)
			}
			list = append(list, field{f.Index, name, unit, f.Name})
		case !tagged && f.Anonymous && inner.Kind() == reflect.Struct && !slices.Contains(around, inner):
			fields, err := walkFields(inner, around)
			if err != nil {
				return nil, err
			}
			for _, e := range fields {
				if inner != f.Type {
					return nil, errors.New("resp: field " + e.title + " of " + t.String() + " is in an embedded pointer")
				}
				e.index = append(slices.Clone(f.Index), e.index...)
				list = append(list, e)
			}
		}
	}
	for _, f := range list {
		if by, ok := t.FieldByName(f.title); ok && !slices.ContainsFunc(list, func(stored field) bool { return slices.Equal(stored.index, by.Index) }) {
			return nil, errors.New("resp: field " + f.title + " of an embedded struct of " + t.String() + " is hidden by one that is not stored")
		}
	}
	return list, nil
}

// decodeStruct stores the pairs of v in the fields of dst.
func (d *decoder) decodeStruct(v Value, dst reflect.Value) error {
	fields, err := d.fields(dst.Type())
	if err != nil {
		return err
	}
	pairs, err := v.Pairs()
	if err != nil {
		return err
	}
	next := 0 // servers often send the fields in the order in which they were stored
	for key, value := range pairs {
		name, err := key.Text()
		if err != nil {
			return inPart(err, "a key")
		}
		for i := range fields {
			f := &fields[(next+i)%len(fields)]
			if f.name != name {
				continue
			}
			next += i + 1
			if err := d.decode(value, dst.FieldByIndex(f.index), f.unit); err != nil {
				return inPart(err, "field "+f.title)
			}
			break
		}
	}
	return nil
}

// fields returns the tagged fields of a struct type.
func (d *decoder) fields(t reflect.Type) ([]field, error) {
	if fields, ok := d.structs[t]; ok {
		return fields, nil
	}
	fields, err := fieldsOf(t)
	if err != nil {
		return nil, err
	}
	if d.structs == nil {
		d.structs = make(map[reflect.Type][]field)
	}
	d.structs[t] = fields
	return fields, nil
}

// hasFields reports whether t is a struct type with tagged fields.
func (d *decoder) hasFields(t reflect.Type) bool {
	if t.Kind() != reflect.Struct {
		return false
	}
	_, err := d.fields(t)
	return err == nil
}
