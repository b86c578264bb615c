package kinds

import (
	_ "embed"
	"encoding/base64"

	"github.com/lockwire/lockwire/lock/internal/highway"
)

var (
	//go:embed lua/fastermulti_acquire.lua
	fasterMultiAcquire string
	//go:embed lua/fastermulti_release.lua
	fasterMultiRelease string
	//go:embed lua/fastermulti_undo.lua
	fasterMultiUndo string
	//go:embed lua/fastermulti_renew.lua
	fasterMultiRenew string
	//go:embed lua/fastermulti_force.lua
	fasterMultiForce string
	//go:embed lua/fastermulti_info.lua
	fasterMultiInfo string
	//go:embed lua/fastermulti_values.lua
	fasterMultiValues string
)

// FasterMulti is Redisson's lock of getMultiLock with a group and values: a hash with all taken values. An owner here is an
// owner of a usual kind followed by its values, with spaces in between; Force and Info get the values as their last ARGV.
var FasterMulti = &Lazy[*Kind]{Make: func() *Kind {
	return &Kind{
		Name:    "fastermulti",
		channel: channelPrefix,
		Acquire: named("fastermulti_acquire", fasterMultiAcquire),
		Release: named("fastermulti_release", giving(fasterMultiRelease)),
		Undo:    named("fastermulti_undo", giving(fasterMultiUndo)),
		Renew:   named("fastermulti_renew", fasterMultiRenew),
		Force:   named("fastermulti_force", fasterMultiForce),
		Info:    named("fastermulti_info", fasterMultiInfo),
	}
}}

// giving returns a script's source with the function of fastermulti_values.lua.
func giving(source string) string { return with(source, "fastermulti_values.lua", fasterMultiValues) }

// ValueField returns the field of a value in the hash of its group, as in Redisson with StringCodec.
func ValueField(value string) string {
	sum := highway.Sum([4]uint64{0x9e3779b97f4a7c15, 0xf39cc0605cedc834, 0x1082276bf3a27251, 0xf86c6a11d0c18e95}, []byte(value))
	return base64.RawStdEncoding.EncodeToString(sum[:])
}
