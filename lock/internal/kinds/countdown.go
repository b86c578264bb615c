package kinds

import (
	"embed"

	"github.com/lockwire/lockwire/script"
)

//go:embed lua/latch_*.lua
var latchLua embed.FS

// CountDown is Redisson's RCountDownLatch.
var CountDown = &Lazy[*Kind]{Make: func() *Kind {
	return &Kind{
		Name:    "latch",
		channel: countdownPrefix,
		Acquire: named("latch_acquire", latchLua),
		More: map[string]*script.Script{
			"set":    named("latch_set", latchLua),
			"down":   named("latch_down", latchLua),
			"delete": named("latch_delete", latchLua),
		},
	}
}}
