package pubsub

import ("testing";"fmt";"runtime")

func BenchmarkFull(b *testing.B) {
	for _, q := range []int{4, 64, 1000, 10000} {
		b.Run(fmt.Sprint(q), func(b *testing.B) {
			s := unattended(Config{Queue: q})
			sub, _ := s.Listen("c")
			held := map[*channel]bool{}
			settle(&testing.T{}, s, held)
			_ = sub
			m := decode(b, push('>', "message", "c", "payload"))
			for range q+2 { s.dispatch(m) }
			b.ReportAllocs()
			for b.Loop() { s.dispatch(m) }
		})
	}
}

func TestCycles(t *testing.T) {
	s := unattended(Config{Queue: 4})
	held := map[*channel]bool{}
	mem := func() uint64 { runtime.GC(); runtime.GC(); var m runtime.MemStats; runtime.ReadMemStats(&m); return m.HeapAlloc }
	for round := range 5 {
		for i := range 100000 {
			sub, _ := s.Listen(fmt.Sprint(round, ":", i))
			settle(t, s, held)
			sub.Close()
			settle(t, s, held)
			clear(held)
		}
		fmt.Println(mem(), len(s.asked.queue), cap(s.asked.queue), cap(s.changed))
	}
}
