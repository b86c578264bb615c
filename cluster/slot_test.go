package cluster_test

import (
	"strings"
	"testing"

	"github.com/lockwire/lockwire/cluster"
)

// slotVectors are answers of a server to CLUSTER KEYSLOT.
var slotVectors = []struct {
	key  string
	slot int
}{
	{"", 0}, {"foo", 12182}, {"{foo}bar", 12182}, {"{}foo", 9500}, {"foo{}", 5542}, {"foo{}{bar}", 8363},
	{"foo{{bar}}zap", 4015}, {"foo{bar}{zap}", 5061}, {"foo{bar", 15278}, {"{user1000}.following", 3443},
	{"a{b", 13340}, {"a}b{c}d", 7365}, {"{", 4092}, {"}{", 12793}, {"{{}}x", 4092}, {"\x00\xff", 7920},
	{"key", 12539}, {"mylock", 1711}, {"{mylock}:channel", 1711}, {"123456789", 12739},
	{string([]byte{83, 153, 134, 118, 229, 214, 244, 75, 140, 37, 215, 215}), 5463},
}

func TestSlot(t *testing.T) {
	for _, v := range slotVectors {
		if got := cluster.Slot(v.key); got != v.slot {
			t.Errorf("Slot(%q) = %d, want %d", v.key, got, v.slot)
		}
		if got := cluster.Slot([]byte(v.key)); got != v.slot {
			t.Errorf("Slot([]byte(%q)) = %d, want %d", v.key, got, v.slot)
		}
	}
}

func TestAllocSlot(t *testing.T) {
	key, bytes := strings.Repeat("{a key of some length} ", 3), []byte(strings.Repeat("more than a few bytes ", 9))
	if n := testing.AllocsPerRun(100, func() { cluster.Slot(key); cluster.Slot(bytes) }); n != 0 {
		t.Errorf("Slot allocates %v times", n)
	}
}

// bitwise computes a slot as the cluster specification defines it, one bit at a time.
func bitwise(key []byte) int {
	for open := range key {
		if key[open] != '{' {
			continue
		}
		for end := open + 1; end < len(key); end++ {
			if key[end] == '}' {
				if end > open+1 {
					key = key[open+1 : end]
				}
				break
			}
		}
		break
	}
	crc := 0
	for _, b := range key {
		for bit := 7; bit >= 0; bit-- {
			top := crc>>15 ^ int(b)>>bit&1
			crc = crc << 1 & 0xffff
			if top == 1 {
				crc ^= 0x1021
			}
		}
	}
	return crc % 16384
}

func FuzzSlot(f *testing.F) {
	for _, v := range slotVectors {
		f.Add([]byte(v.key))
	}
	f.Fuzz(func(t *testing.T, key []byte) {
		if got, want := cluster.Slot(key), bitwise(key); got != want {
			t.Errorf("Slot(%q) = %d, want %d", key, got, want)
		}
	})
}
