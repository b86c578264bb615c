package kinds

import (
	"embed"
	"encoding/base64"

	"github.com/lockwire/lockwire/lock/internal/highway"
)

//go:embed lua/fastermulti_*.lua
var fasterMultiLua embed.FS

// FasterMulti is Redisson's lock of getMultiLock with a group and values: a hash with all taken values. An owner here is an
// owner of a usual kind followed by its values, with spaces in between; Force and Info get the values as their last ARGV.
var FasterMulti = &Lazy[*Kind]{Make: func() *Kind {
	return scripted(Kind{Name: "fastermulti", channel: channelPrefix}, fasterMultiLua)
}}

// ValueField returns the field of a value in the hash of its group, as in Redisson with StringCodec.
func ValueField(value string) string {
	sum := highway.Sum([4]uint64{0x9e3779b97f4a7c15, 0xf39cc0605cedc834, 0x1082276bf3a27251, 0xf86c6a11d0c18e95}, []byte(value))
	return base64.RawStdEncoding.EncodeToString(sum[:])
}
