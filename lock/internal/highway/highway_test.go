package highway_test

import (
	"encoding/base64"
	"encoding/hex"
	"testing"

	"github.com/lockwire/lockwire/lock/internal/highway"
)

// The published vectors, for the key and the data 0, 1, 2 and so on.
func TestSum(t *testing.T) {
	key := [4]uint64{0x0706050403020100, 0x0f0e0d0c0b0a0908, 0x1716151413121110, 0x1f1e1d1c1b1a1918}
	for n, want := range []string{"0fed268f9d8ffec733565e767f093e6f", "d6b0a8893681e7a8dc291df9eb9cdcb4"} {
		data := make([]byte, n)
		sum := highway.Sum(key, data)
		if got := hex.EncodeToString(sum[:]); got != want {
			t.Errorf("Sum of %d bytes = %s, want %s", n, got, want)
		}
	}
}

// Under Redisson's key, as another implementation has them: less and more than half a packet, and more than a packet.
func TestSumLikeOthers(t *testing.T) {
	key := [4]uint64{0x9e3779b97f4a7c15, 0xf39cc0605cedc834, 0x1082276bf3a27251, 0xf86c6a11d0c18e95}
	for text, want := range map[string]string{
		"":                     "t6rZwibGo2uy1OSmNVe8pg",
		"a":                    "qwvAS12pR0CgRitaypEjUw",
		"order:1":              "VohkkMHNiudvq57uOYf+SQ",
		"abcdefghijklmnopqrst": "5AsCb9evagfvCnS1taVhcg",
		"the quick brown fox jumps over the lazy dog": "sRAoCqxIt+3zdRxwSPYzew",
	} {
		sum := highway.Sum(key, []byte(text))
		if got := base64.RawStdEncoding.EncodeToString(sum[:]); got != want {
			t.Errorf("Sum(%q) = %s, want %s", text, got, want)
		}
	}
}
