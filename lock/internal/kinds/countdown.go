package kinds

import (
	_ "embed"

	"github.com/lockwire/lockwire/script"
)

var (
	//go:embed lua/latch_acquire.lua
	latchAcquire string
	//go:embed lua/latch_set.lua
	latchSet string
	//go:embed lua/latch_down.lua
	latchDown string
	//go:embed lua/latch_delete.lua
	latchDelete string
)

// CountDown is Redisson's RCountDownLatch.
var CountDown = &Lazy[*Kind]{Make: func() *Kind {
	return &Kind{
		Name:    "latch",
		channel: countdownPrefix,
		Acquire: named("latch_acquire", latchAcquire),
		More: map[string]*script.Script{
			"set":    named("latch_set", latchSet),
			"down":   named("latch_down", latchDown),
			"delete": named("latch_delete", latchDelete),
		},
	}
}}
