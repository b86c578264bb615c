package codec_test

import (
	"testing"

	"github.com/lockwire/lockwire/bench/codec"
	"github.com/lockwire/lockwire/bench/measure"
)

func TestDecoders(t *testing.T) {
	decoders := map[string]codec.Decoder{
		"lockwire": codec.Lockwire, "lockwire typed": codec.LockwireTyped, "views": codec.Views,
		"go-redis": codec.GoRedis, "go-redis typed": codec.GoRedisTyped,
		"rueidis": codec.Rueidis, "rueidis typed": codec.RueidisTyped,
		"redigo": codec.Redigo, "radix": codec.Radix, "radix typed": codec.RadixTyped,
	}
	for name, d := range decoders {
		for _, reply := range codec.Replies() {
			if d(reply.Name, nil) == nil {
				continue
			}
			// More than one buffer's worth, so that replies are split anywhere.
			r, err := codec.Work(d, reply)(measure.Env{Length: measure.Length{Ops: 300}})
			if err != nil || r.Ops != 300 {
				t.Errorf("%s, %s: %d replies, %v; want 300", name, reply.Name, r.Ops, err)
			}
		}
	}
}
