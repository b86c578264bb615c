package conn

import (
	"testing"
	"time"
)

func TestBackoff(t *testing.T) {
	const ms = time.Millisecond
	r := Config{}.withDefaults().Retry
	for n, most := range map[int]time.Duration{0: 8 * ms, 1: 16 * ms, 5: 256 * ms, 6: 512 * ms, 7: 512 * ms, 31: 512 * ms, 1 << 30: 512 * ms} {
		if got := r.backoff(n, 0); got != most {
			t.Errorf("backoff(%d, 0) = %v, want %v", n, got, most)
		}
		if got := r.backoff(n, 0.999999); got < most/2 || got > most/2+ms {
			t.Errorf("backoff(%d, 0.999999) = %v, want half of %v", n, got, most)
		}
	}
	huge := Retry{MinBackoff: 1 << 62, MaxBackoff: 1<<63 - 1}
	for n := range 70 {
		if got := huge.backoff(n, 0.5); got <= 0 {
			t.Errorf("backoff(%d) of %v = %v", n, huge.MinBackoff, got)
		}
	}
}

// TestRuleCost pins that looking for special commands costs no memory.
func TestRuleCost(t *testing.T) {
	for _, b := range []string{"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n", "*2\r\n$5\r\nBLPOP\r\n$1\r\nk\r\n"} {
		encoded := []byte(b)
		if n := testing.AllocsPerRun(100, func() { ruleOfEncoded(encoded) }); n != 0 {
			t.Errorf("ruleOfEncoded(%q) allocates %v times", b, n)
		}
	}
}

func BenchmarkRule(b *testing.B) {
	for name, cmd := range map[string]string{"get": "*1\r\n$3\r\nGET\r\n", "evalsha": "*1\r\n$7\r\nEVALSHA\r\n"} {
		b.Run(name, func(b *testing.B) {
			encoded := []byte(cmd)
			for b.Loop() {
				ruleOfEncoded(encoded)
			}
		})
	}
}
