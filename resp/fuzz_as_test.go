package resp_test

import (
	"bytes"
	"slices"
	"testing"

	"github.com/lockwire/lockwire/resp"
)

// Fields stores what As has read, so that As reads the same once more.
func FuzzAs(f *testing.F) {
	for _, seed := range []string{
		"%2\r\n+name\r\n+Ada\r\n+age\r\n:36\r\n",
		"*6\r\n+since\r\n+2024-02-29T12:00:00.5+01:00\r\n+seen\r\n:-1700000000001\r\n+limit\r\n$19\r\n9223372036854775807\r\n",
		"*8\r\n+score\r\n,nan\r\n+pause\r\n:7\r\n+raw\r\n$3\r\n\r\n\x00\r\n+addr\r\n+fe80::1%eth0\r\n",
		"%3\r\n+active\r\n#t\r\n+city\r\n_\r\n+addr\r\n$0\r\n\r\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, wire []byte) {
		v, err := resp.NewReader(bytes.NewReader(wire), resp.Limits{}).Read()
		if err != nil {
			return
		}
		first, err := resp.As[account](v, nil)
		if err != nil {
			return
		}
		words := resp.Fields(first)
		second, err := resp.As[account](read(t, resp.CmdStrings(words).Encoded()), nil)
		if again := resp.Fields(second); err != nil || !slices.Equal(again, words) {
			t.Errorf("Fields = %q, As = %v, %v, Fields = %q", words, second, err, again)
		}
	})
}
