package conn

import (
	"context"
	"iter"
	"math"
	"strconv"
	"strings"

	"github.com/lockwire/lockwire/resp"
)

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
// XRange asks for 1000 entries at a time, and for the next ones when those have been taken. Entries added in the meantime
// are yielded too, so a loop to + may go on for as long as others add entries. A missing stream has none. An error comes
// once, as the last step. For the reply to a single command see [resp.Entries].
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
