package resp

import "iter"

// Entry is an entry of a stream.
type Entry struct {
	Stream string // the stream's key in a reply of XREAD or XREADGROUP; "" in replies without it
	ID     string

	// Fields holds the names and values of the entry, alternating: As[map[string]string](e.Fields, nil). It is a null
	// for a deleted entry, and in a reply with IDs only.
	Fields Value
}

// Get returns the value of a field as text, or "" without such a field.
func (e Entry) Get(name string) string {
	pairs, _ := e.Fields.Pairs()
	for key, value := range pairs {
		if s, err := key.Text(); err == nil && s == name {
			s, _ = value.Text()
			return s
		}
	}
	return ""
}

// Entries returns the entries in the reply of XREAD, XREADGROUP, XRANGE, XREVRANGE or XCLAIM, in both versions of the
// protocol. Its arguments are the results of a call:
//
//	for e, err := range resp.Entries(pool.Do(ctx, "XRANGE", "jobs", "-", "+")) {
//		if err != nil {
//			return err
//		}
//		fmt.Println(e.ID, e.Get("name"))
//	}
//
// XREADGROUP with CLAIM also tells how long ago and how often an entry was delivered; Entries skips that.
// A null has no entries. A null among the entries, which XCLAIM before Redis 7.0 returns for a deleted entry, is skipped.
// An error ends the loop, in a last step: err, an error reply, or a [*KindError] for a reply of another form.
func Entries(v Value, err error) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		streams, bad := v.Pairs()
		first, list := v.At(0), v.At(0).At(1)
		switch {
		case err != nil:
			yield(Entry{}, err)
		case v.IsNull():
		case v.Kind() == Array && (first.Kind() != Array || list.Kind() != Array || list.Len() > 0 && list.At(0).Kind() != Array):
			yieldEntries("", v, yield)
		case bad != nil, v.Kind() == Set, v.Kind() == Push:
			yield(Entry{}, v.isNot("a list of entries"))
		default:
			for stream, list := range streams {
				name, err := stream.Text()
				if err != nil || list.Kind() != Array {
					yield(Entry{}, list.isNot("a list of entries"))
					return
				}
				if !yieldEntries(name, list, yield) {
					return
				}
			}
		}
	}
}

// yieldEntries yields the entries in a list, and reports whether to go on.
func yieldEntries(stream string, list Value, yield func(Entry, error) bool) bool {
	for _, e := range list.elems() {
		if !yieldEntry(stream, e, yield) {
			return false
		}
	}
	return true
}

// yieldEntry yields the entry e, or the error of a value that is none, and reports whether to go on.
func yieldEntry(stream string, e Value, yield func(Entry, error) bool) bool {
	if e.IsNull() {
		return true
	}
	id, fields := e, Value{}
	if e.Kind() == Array && e.Len() >= 2 {
		id, fields = e.At(0), e.At(1)
	}
	text, err := id.Text()
	if err != nil || fields.Kind() != Array && fields.Kind() != Map && !fields.IsNull() {
		yield(Entry{}, e.isNot("an entry of a stream"))
		return false
	}
	return yield(Entry{Stream: stream, ID: text, Fields: fields}, nil)
}
