// Package highway is HighwayHash of 128 bits, by which Redisson names the values of a FasterMultiLock.
package highway

import (
	"encoding/binary"
	"math/bits"
)

// lanes are four words processed together.
type lanes [4]uint64

// packetSize is the number of bytes in lanes.
const packetSize = 32

// state is the state of a hash: two vectors, and their multipliers.
type state struct{ v0, v1, mul0, mul1 lanes }

// The first multipliers: digits of pi.
var (
	first0 = lanes{0xdbe6d5d5fe4cce2f, 0xa4093822299f31d0, 0x13198a2e03707344, 0x243f6a8885a308d3}
	first1 = lanes{0x3bd39e10cb0ef593, 0xc0acf169b5f18a8c, 0xbe5466cf34e90c6c, 0x452821e638d01377}
)

// Sum returns the hash of data under key, with the first 64 bits big-endian in front.
func Sum(key [4]uint64, data []byte) (sum [16]byte) {
	s := state{mul0: first0, mul1: first1}
	for i, k := range key {
		s.v0[i] = first0[i] ^ k
		s.v1[i] = first1[i] ^ bits.RotateLeft64(k, 32)
	}
	for len(data) >= packetSize {
		s.absorb(data[:packetSize])
		data = data[packetSize:]
	}
	if len(data) > 0 {
		s.absorbLast(data)
	}
	for range 6 {
		v := s.v0
		for i := range v {
			v[i] = bits.RotateLeft64(s.v0[(i+2)%4], 32)
		}
		s.mix(v)
	}
	binary.BigEndian.PutUint64(sum[:8], s.v0[0]+s.mul0[0]+s.v1[2]+s.mul1[2])
	binary.BigEndian.PutUint64(sum[8:], s.v0[1]+s.mul0[1]+s.v1[3]+s.mul1[3])
	return sum
}

// absorb mixes in a whole packet.
func (s *state) absorb(packet []byte) {
	var in lanes
	for i := range in {
		in[i] = binary.LittleEndian.Uint64(packet[8*i:])
	}
	s.mix(in)
}

// absorbLast mixes in the last bytes, fewer than a packet.
func (s *state) absorbLast(data []byte) {
	n := len(data)
	for i := range s.v0 {
		s.v0[i] += uint64(n)<<32 + uint64(n)
		low, high := bits.RotateLeft32(uint32(s.v1[i]), n), bits.RotateLeft32(uint32(s.v1[i]>>32), n)
		s.v1[i] = uint64(high)<<32 | uint64(low)
	}
	var packet [packetSize]byte
	whole := n &^ 3
	copy(packet[:], data[:whole])
	switch rest := data[whole:]; {
	case n >= 16:
		copy(packet[28:], data[n-4:])
	case len(rest) > 0:
		packet[16], packet[17], packet[18] = rest[0], rest[len(rest)/2], rest[len(rest)-1]
	}
	s.absorb(packet[:])
}

// mix is one round.
func (s *state) mix(in lanes) {
	for i := range in {
		s.v1[i] += s.mul0[i] + in[i]
		s.mul0[i] ^= uint64(uint32(s.v1[i])) * (s.v0[i] >> 32)
		s.v0[i] += s.mul1[i]
		s.mul1[i] ^= uint64(uint32(s.v0[i])) * (s.v1[i] >> 32)
	}
	s.v0.addZipped(&s.v1)
	s.v1.addZipped(&s.v0)
}

// zipped are the bytes of a pair of words in the order of their addition to a second pair: 0 to 7 of the first word, 8 to 15 of
// the second.
var zipped = [16]int{3, 12, 2, 5, 14, 1, 15, 0, 11, 4, 10, 13, 9, 6, 8, 7}

// addZipped adds a pair with its bytes in zipped order.
func (l *lanes) addZipped(other *lanes) {
	for i := 0; i < len(l); i += 2 {
		var from, to [16]byte
		binary.LittleEndian.PutUint64(from[:8], other[i])
		binary.LittleEndian.PutUint64(from[8:], other[i+1])
		for j, k := range zipped {
			to[j] = from[k]
		}
		l[i] += binary.LittleEndian.Uint64(to[:8])
		l[i+1] += binary.LittleEndian.Uint64(to[8:])
	}
}
