package conn

import (
	"context"
	"errors"
	"iter"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/lockwire/lockwire/resp"
)

// Scan yields the keys of d in no order, by SCAN. args are the options of SCAN:
//
//	for key, err := range conn.Scan(ctx, pool, "MATCH", "user:*", "COUNT", 1000) {
//		if err != nil {
//			return err
//		}
//		fmt.Println(key)
//	}
//
// If d is a cluster, Scan goes through the keys of all its masters, one master after the other.
//
// Scan sends the next command when the loop has consumed the keys of the last reply, and none after the loop has ended. So
// the loop may take its time. An error ends the loop, in a last step with an empty key; a malformed reply is an error too.
//
// Scan promises what SCAN does: a key that exists from the first step to the last is yielded, possibly more than once.
// Keys may be missing if another server takes over or slots move in the meantime. In a cluster Scan ends with an error if
// a master is replaced before Scan has finished with it: begin anew.
func Scan(ctx context.Context, d Doer, args ...any) iter.Seq2[string, error] {
	cluster, ok := d.(interface {
		Doers(ctx context.Context) iter.Seq2[Doer, error]
	})
	if !ok {
		return scan(ctx, d, resp.CmdStrings([]string{"SCAN", "0"}, args...), texts)
	}
	return func(yield func(string, error) bool) {
		for node, err := range cluster.Doers(ctx) {
			if err != nil {
				yield("", err)
				return
			}
			for key, err := range Scan(ctx, node, args...) {
				if !yield(key, err) || err != nil {
					return
				}
			}
		}
	}
}

// SScan yields the members of the set at key, by SSCAN, as Scan yields keys. A missing set has none.
func SScan(ctx context.Context, d Doer, key string, args ...any) iter.Seq2[string, error] {
	return scan(ctx, d, resp.CmdStrings([]string{"SSCAN", key, "0"}, args...), texts)
}

var errNoValues = errors.New("with NOVALUES there are no pairs: send HSCAN by Do")

// Pair is a field of a hash.
type Pair struct{ Field, Value string }

// HScan yields the fields of the hash at key, by HSCAN, as Scan yields keys. A missing hash has none. The option NOVALUES
// is an error that matches ErrRefused: its replies are no pairs.
func HScan(ctx context.Context, d Doer, key string, args ...any) iter.Seq2[Pair, error] {
	first := resp.CmdStrings([]string{"HSCAN", key, "0"}, args...)
	if withoutValues(first) {
		return func(yield func(Pair, error) bool) {
			yield(Pair{}, refusal("", first.Name(), errNoValues))
		}
	}
	return scan(ctx, d, first, pairs(func(field, value resp.Value) (p Pair, err error) {
		if p.Field, err = field.Text(); err == nil {
			p.Value, err = value.Text()
		}
		return p, err
	}))
}

// withoutValues reports whether an HSCAN has the option NOVALUES. The word may also be a pattern, or the key.
func withoutValues(cmd resp.Command) bool {
	words := slices.Collect(cmd.Args())
	for i := 3; i < len(words); i++ { // behind the name, the key and the cursor
		switch strings.ToUpper(words[i]) {
		case "NOVALUES":
			return true
		case "MATCH", "COUNT":
			i++ // its value
		}
	}
	return false
}

// Scored is a member of a sorted set.
type Scored struct {
	Member string
	Score  float64
}

// ZScan yields the members of the sorted set at key, by ZSCAN, as Scan yields keys. A missing set has none.
func ZScan(ctx context.Context, d Doer, key string, args ...any) iter.Seq2[Scored, error] {
	return scan(ctx, d, resp.CmdStrings([]string{"ZSCAN", key, "0"}, args...), pairs(func(member, score resp.Value) (s Scored, err error) {
		if s.Member, err = member.Text(); err == nil {
			s.Score, err = score.Float()
		}
		return s, err
	}))
}

// scan yields the elements of all replies to a SCAN, as elements finds them in the list of one reply. first has the cursor 0.
func scan[T any](ctx context.Context, d Doer, first resp.Command, elements func(list resp.Value) iter.Seq2[T, error]) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for cmd := first; ; {
			cursor, list, err := pageOf(d.Send(ctx, cmd))
			if err != nil {
				yield(*new(T), err)
				return
			}
			for t, err := range elements(list) {
				if !yield(t, err) || err != nil {
					return
				}
			}
			if cursor == "0" {
				return
			}
			cmd = withCursor(first, cursor)
		}
	}
}

func texts(list resp.Value) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for v := range list.All() {
			if !yield(v.Text()) {
				return
			}
		}
	}
}

// pairs finds the pairs in a list, and converts each to a T.
func pairs[T any](convert func(a, b resp.Value) (T, error)) func(list resp.Value) iter.Seq2[T, error] {
	return func(list resp.Value) iter.Seq2[T, error] {
		return func(yield func(T, error) bool) {
			found, err := list.Pairs()
			for a, b := range found {
				if !yield(convert(a, b)) {
					return
				}
			}
			if err != nil {
				yield(*new(T), err)
			}
		}
	}
}

// pageOf returns the next cursor and the list of elements in the reply to a SCAN.
func pageOf(v resp.Value, err error) (cursor string, page resp.Value, _ error) {
	if err == nil && (v.Kind() != resp.Array || v.Len() != 2) {
		err = &resp.KindError{Kind: v.Kind(), Want: "a page of a scan: an array of two"}
	}
	if err != nil {
		return "", resp.Value{}, err
	}
	cursor, err = v.At(0).Text()
	page = v.At(1)
	switch {
	case err != nil:
	case page.Err() != nil:
		err = page.Err()
	case page.Kind() != resp.Array && page.Kind() != resp.Map && page.Kind() != resp.Set:
		err = &resp.KindError{Kind: page.Kind(), Want: "a list of elements"}
	}
	return cursor, page, err
}

// withCursor returns first with another cursor, the argument behind SCAN, or behind the key of the other commands.
func withCursor(first resp.Command, cursor string) resp.Command {
	words := slices.Collect(first.Args())
	if words[0] == "SCAN" {
		words[1] = cursor
	} else {
		words[2] = cursor
	}
	return resp.CmdStrings(words)
}

// XRange yields the entries of the stream at key with IDs from first to last, which are IDs, or - and + for the ends, by
// XRANGE:
//
//	for e, err := range conn.XRange(ctx, pool, "jobs", "-", "+") {
//		if err != nil {
//			return err
//		}
//		fmt.Println(e.ID, e.Get("name"))
//	}
//
// XRange reads 1000 entries at a time, the next ones when the loop has consumed these. Entries added in the meantime are
// yielded too, so a loop to + may go on for as long as others add entries. A missing stream has no entries. An error ends
// the loop, in a last step. For the reply to a single command see [resp.Entries].
func XRange(ctx context.Context, d Doer, key, first, last string) iter.Seq2[resp.Entry, error] {
	const most = 1000
	return func(yield func(resp.Entry, error) bool) {
		for {
			n := 0
			for e, err := range resp.Entries(d.Send(ctx, resp.Cmd("XRANGE", key, first, last, "COUNT", most))) {
				if !yield(e, err) || err != nil {
					return
				}
				n++
				first = e.ID
			}
			if n < most || first == lastID {
				return
			}
			first = nextID(first)
		}
	}
}

// lastID is the greatest ID of an entry.
const lastID = "18446744073709551615-18446744073709551615"

// nextID returns the least ID of an entry behind id. Servers before 6.2 do not know the form with a parenthesis.
func nextID(id string) string {
	ms, seq, _ := strings.Cut(id, "-")
	n, _ := strconv.ParseUint(seq, 10, 64)
	if n < math.MaxUint64 {
		return ms + "-" + strconv.FormatUint(n+1, 10)
	}
	t, _ := strconv.ParseUint(ms, 10, 64)
	return strconv.FormatUint(t+1, 10) + "-0"
}
