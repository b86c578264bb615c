package resp

import (
	"encoding"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// As converts a reply to T. Its arguments are the results of a call:
//
//	n, err := resp.As[int64](pool.Do(ctx, "INCR", "hits"))
//	user, err := resp.As[User](pool.Do(ctx, "HGETALL", "user:1"))
//
// T is one of these types, or has one of them as its underlying type:
//
//   - string, bool, and all integers and floating-point numbers, as Text, Bool, Int and Float convert.
//     A number out of range is an error, also a time.Duration.
//   - []byte: a copy of the text.
//   - []E: the elements of an aggregate. If E is a text or a number, an array of pairs (RESP3) counts as
//     the flat array that RESP2 sends.
//   - map[K]E: the pairs of an aggregate, as Pairs finds them.
//   - a struct: the same pairs, by the names in the tags of its fields; see [Fields]. A name without a
//     field is ignored, and a field without a name stays zero.
//   - *E: nil for a null, and else a new E.
//   - time.Time: RFC 3339, or the seconds and microseconds of TIME. A number needs a struct field with a unit.
//   - a type whose pointer is an encoding.TextUnmarshaler. If it is a struct with tags, for example because a time.Time is
//     embedded, an aggregate is read by the tags.
//   - [Value]: the reply itself.
//
// The error is err, or an error reply in v, even inside an aggregate unless it is stored as a Value. A reply of another form
// is a [*KindError], and so is a null unless T is a pointer or Value: use [Maybe] where a key may be missing. With an error
// the result is zero.
//
// As uses reflection. A program that calls neither As nor Fields does not link it.
func As[T any](v Value, err error) (t T, _ error) {
	if err == nil {
		var d decoder
		err = d.decode(v, reflect.ValueOf(&t).Elem(), "")
	}
	if err != nil {
		var zero T
		return zero, err
	}
	return t, nil
}

// Maybe is As for a key that may be missing. ok is false for a null, the reply about a missing string, and for an aggregate
// without elements, because Redis keeps no empty hash, list or set. For an empty string ok is true. If ok is false, t is
// zero.
//
//	name, ok, err := resp.Maybe[string](pool.Do(ctx, "GET", "name"))
//
// For elements of a reply use a pointer: MGET as []*string has nil for each missing key.
func Maybe[T any](v Value, err error) (t T, ok bool, _ error) {
	switch k := v.Kind(); {
	case err != nil:
		return t, false, err
	case k == Null, v.Len() == 0 && (k == Array || k == Map || k == Set):
		return t, false, nil
	}
	t, err = As[T](v, nil)
	return t, err == nil, err
}

// Each is As for each reply of a batch:
//
//	names, err := resp.Each[*string](cluster.MGet(ctx, keys))
//
// With an error the result is nil.
func Each[T any](values []Value, err error) ([]T, error) {
	if err != nil {
		return nil, err
	}
	var d decoder
	list := make([]T, len(values))
	for i, v := range values {
		if err := d.decode(v, reflect.ValueOf(&list[i]).Elem(), ""); err != nil {
			return nil, inPart(err, "reply "+strconv.Itoa(i))
		}
	}
	return list, nil
}

// decoder decodes one reply or batch. It caches the fields of struct types.
type decoder struct {
	structs map[reflect.Type][]field
}

// decode stores v in dst. A time has the unit, or none.
func (d *decoder) decode(v Value, dst reflect.Value, unit string) (err error) {
	switch p := dst.Addr().Interface().(type) {
	case *Value:
		*p = v
	case *string:
		*p, err = v.Text()
	case *time.Time:
		*p, err = v.time(unit)
	case *time.Duration:
		*p, err = v.duration(unit)
	case encoding.TextUnmarshaler:
		if v.Kind().isAggregate() && d.hasFields(dst.Type()) { // p may be a struct that has the method by an embedded field
			return d.decodeStruct(v, dst)
		}
		err = v.unmarshal(p, dst)
	default:
		err = d.decodeKind(v, dst, unit)
	}
	return err
}

func (d *decoder) decodeKind(v Value, dst reflect.Value, unit string) error {
	switch dst.Kind() {
	case reflect.Pointer:
		if v.IsNull() {
			dst.SetZero()
			return nil
		}
		for range maxPointers {
			p := reflect.New(dst.Type().Elem())
			dst.Set(p)
			if dst = p.Elem(); dst.Kind() != reflect.Pointer {
				return d.decode(v, dst, unit)
			}
		}
		return v.isNot(article(dst.Type()) + ": too many pointers")
	case reflect.Slice:
		return d.decodeSlice(v, dst)
	case reflect.Map:
		return d.decodeMap(v, dst)
	case reflect.Struct:
		return d.decodeStruct(v, dst)
	}
	return v.decodeScalar(dst)
}

// decodeScalar stores v in dst, a bool, a number or a string.
func (v Value) decodeScalar(dst reflect.Value) error {
	var err error
	tooLarge := false
	switch {
	case dst.Kind() == reflect.String:
		var s string
		s, err = v.Text()
		dst.SetString(s)
	case dst.Kind() == reflect.Bool:
		var b bool
		b, err = v.Bool()
		dst.SetBool(b)
	case dst.CanInt():
		var n int64
		n, err = v.Int()
		tooLarge = dst.OverflowInt(n)
		dst.SetInt(n)
	case dst.CanUint():
		var n uint64
		n, err = v.unsigned()
		tooLarge = dst.OverflowUint(n)
		dst.SetUint(n)
	case dst.CanFloat():
		var f float64
		f, err = v.Float()
		if dst.Kind() == reflect.Float32 {
			f = v.nearestFloat32(f)
		}
		tooLarge = dst.OverflowFloat(f)
		dst.SetFloat(f)
	default:
		return v.isNot(article(dst.Type()) + ", a type that As does not convert to")
	}
	if err == nil && tooLarge {
		return v.isNot(article(dst.Type()) + ": out of range")
	}
	return err
}

// nearestFloat32 returns the float32 nearest to v, of which f is the nearest float64. The float32 nearest to f may be another.
func (v Value) nearestFloat32(f float64) float64 {
	s, _ := v.Text()
	if nearest, err := strconv.ParseFloat(s, 32); err == nil {
		return nearest
	}
	return f
}

func (v Value) unsigned() (uint64, error) {
	if n, err := v.Int(); err == nil && n >= 0 {
		return uint64(n), nil
	}
	s, _ := v.Text()
	if n, err := strconv.ParseUint(s, 10, 64); err == nil {
		return n, nil
	}
	return 0, v.isNot("an unsigned integer")
}

// unmarshal passes the text of v to p, the address of dst. If dst is a struct with an embedded nil, its UnmarshalText may be
// that of the nil and panic. The panic becomes an error, because a reply triggers it.
func (v Value) unmarshal(p encoding.TextUnmarshaler, dst reflect.Value) (err error) {
	s, err := v.Text()
	if err != nil {
		return err
	}
	embedded := embedsNil(dst)
	defer func() {
		if embedded && recover() != nil {
			err = v.isNot("the text of " + article(dst.Type()) + ", in which a nil is embedded")
		}
	}()
	if p.UnmarshalText([]byte(s)) != nil { // leave the error out: it may quote the text
		return v.isNot("the text of " + article(dst.Type()))
	}
	return nil
}

// embedsNil reports whether v is a struct with an embedded nil, also in an embedded struct.
func embedsNil(v reflect.Value) bool {
	if v.Kind() != reflect.Struct {
		return false
	}
	t := v.Type()
	for i := range t.NumField() {
		if !t.Field(i).Anonymous {
			continue
		}
		f := v.Field(i)
		if k := f.Kind(); (k == reflect.Pointer || k == reflect.Interface) && f.IsNil() || embedsNil(f) {
			return true
		}
	}
	return false
}

// isScalar reports whether values of type t are texts or numbers, or pointers to these.
func isScalar(t reflect.Type) bool {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	k := t.Kind()
	return reflect.Bool <= k && k <= reflect.Float64 || k == reflect.String || k == reflect.Slice && t.Elem().Kind() == reflect.Uint8
}

func (d *decoder) decodeSlice(v Value, dst reflect.Value) error {
	t := dst.Type()
	if t.Elem().Kind() == reflect.Uint8 {
		b, err := v.Append([]byte{})
		dst.SetBytes(b)
		return err
	}
	switch v.Kind() {
	case Array, Set, Push, Map:
	default:
		return v.isNot("a list")
	}
	elems := v.elems()
	if isScalar(t.Elem()) && nested(elems) { // pairs, as in RESP3
		flat := make([]Value, 0, 2*len(elems))
		for i := range elems {
			flat = append(flat, elems[i].elems()...)
		}
		elems = flat
	}
	dst.Set(reflect.MakeSlice(t, len(elems), len(elems)))
	texts, ok := dst.Interface().([]string) // of the same elements; decode takes three times as long
	for i, e := range elems {
		var err error
		if ok {
			texts[i], err = e.Text()
		} else {
			err = d.decode(e, dst.Index(i), "")
		}
		if err != nil {
			return inPart(err, "element "+strconv.Itoa(i))
		}
	}
	return nil
}

func (d *decoder) decodeMap(v Value, dst reflect.Value) error {
	pairs, err := v.Pairs()
	if err != nil {
		return err
	}
	t := dst.Type()
	dst.Set(reflect.MakeMapWithSize(t, v.Len()/2))
	key, elem := reflect.New(t.Key()).Elem(), reflect.New(t.Elem()).Elem()
	for k, e := range pairs {
		key.SetZero()
		if k := elem.Kind(); k == reflect.Struct || k == reflect.Array { // it may hold its own address
			elem = reflect.New(t.Elem()).Elem()
		} else {
			elem.SetZero()
		}
		if err := d.decode(k, key, ""); err != nil {
			return inPart(err, "a key")
		}
		if err := d.decode(e, elem, ""); err != nil {
			return inPart(err, "the value of a key")
		}
		dst.SetMapIndex(key, elem)
	}
	return nil
}

func article(t reflect.Type) string {
	name := t.String()
	if strings.IndexByte("aeiou", name[0]) >= 0 {
		return "an " + name
	}
	return "a " + name
}

// placeError is an error about a part of a reply.
type placeError struct {
	err   error
	place string // a number, or a name from the program, never from the reply
}

func inPart(err error, place string) error { return &placeError{err, place} }

func (e *placeError) Error() string { return e.err.Error() + " (" + e.place + ")" }
func (e *placeError) Unwrap() error { return e.err }
