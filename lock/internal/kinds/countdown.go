package kinds

import "embed"

//go:embed lua/latch_*.lua
var latchLua embed.FS

// CountDown is Redisson's RCountDownLatch.
var CountDown = &Lazy[*Kind]{Make: func() *Kind {
	return scripted(Kind{Name: "latch", channel: countdownPrefix}, latchLua)
}}
