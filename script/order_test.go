package script_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/resp"
	"github.com/lockwire/lockwire/script"
)

// keeper is a Doer that knows some scripts. It notes the argument of each run under the keys of the run.
type keeper struct {
	conn.Doer
	known map[string]bool // by digest
	runs  map[string][]string
}

func (k *keeper) SendBatch(_ context.Context, cmds []resp.Command) ([]resp.Value, error) {
	var replies strings.Builder
	for _, cmd := range cmds {
		args := slices.Collect(cmd.Args())
		digest := args[1]
		switch args[0] {
		case "SCRIPT":
			digest = script.New(args[2]).Digest()
		case "EVAL":
			digest = script.New(args[1]).Digest()
		}
		if args[0] != "EVALSHA" {
			k.known[digest] = true
		}
		switch {
		case !k.known[digest]:
			replies.WriteString("-NOSCRIPT x\r\n")
			continue
		case args[0] != "SCRIPT":
			for _, key := range args[3 : len(args)-1] {
				k.runs[key] = append(k.runs[key], args[len(args)-1])
			}
		}
		replies.WriteString("+" + args[len(args)-1] + "\r\n")
	}
	r := resp.NewReader(strings.NewReader(replies.String()), resp.Limits{})
	values := make([]resp.Value, len(cmds))
	for i := range values {
		var err error
		if values[i], err = r.Read(); err != nil {
			return nil, err
		}
	}
	return values, nil
}

// Each batch of four calls of two scripts runs each call once, and calls with a common key in order, whichever scripts the server
// has.
func TestRunBatchKeepsEveryOrder(t *testing.T) {
	scripts := []*script.Script{script.New("return 1"), script.New("return 2")}
	keys := [][]string{{"x"}, {"y"}, {"x", "y"}}
	const calls, kinds = 4, 6
	batches := 1
	for range calls {
		batches *= kinds
	}
	for known := range 4 {
		for n := range batches {
			d := &keeper{known: map[string]bool{}, runs: map[string][]string{}}
			for i, s := range scripts {
				d.known[s.Digest()] = known>>i&1 == 1
			}
			var batch []script.Call
			var text string
			want := map[string][]string{}
			for i := range calls {
				s, on := n%2, keys[n/2%3]
				n /= kinds
				id := fmt.Sprint(i)
				batch = append(batch, scripts[s].Call(on, id))
				text += fmt.Sprintf("%d%v ", s, on)
				for _, key := range on {
					want[key] = append(want[key], id)
				}
			}
			replies, err := script.RunBatch(t.Context(), d, batch)
			if err != nil || !slices.Equal(d.runs["x"], want["x"]) || !slices.Equal(d.runs["y"], want["y"]) {
				t.Fatalf("with the scripts %b, the batch %s ran as %v, %v, want %v", known, text, d.runs, err, want)
			}
			for i, v := range replies {
				if s, err := v.Text(); s != fmt.Sprint(i) || err != nil {
					t.Fatalf("with the scripts %b, the batch %s has the reply %v at %d", known, text, v, i)
				}
			}
		}
	}
}
