package cluster

// Slots is the number of hash slots in a cluster. Slots are numbered from 0 to Slots-1.
const Slots = 16384

// Slot returns the hash slot of a key. A key may have a hash tag: the text between the first { and
// the next }, unless empty. With a hash tag only the tag is hashed, so keys with the same tag are
// in the same slot.
func Slot[T ~string | ~[]byte](key T) int {
	first, end := hashed(key)
	return int(crc16(key, first, end) % Slots)
}

// hashed returns the bounds of the part of a key to be hashed.
func hashed[T ~string | ~[]byte](key T) (first, end int) {
	open := index(key, 0, '{')
	if end := index(key, open+1, '}'); end < len(key) && end > open+1 {
		return open + 1, end
	}
	return 0, len(key)
}

// index returns the first index of b in key at or after from, or len(key).
func index[T ~string | ~[]byte](key T, from int, b byte) int {
	for i := from; i < len(key); i++ {
		if key[i] == b {
			return i
		}
	}
	return len(key)
}

// crc16 returns CRC-16/XMODEM: polynomial x^16 + x^12 + x^5 + 1, nothing reversed, initial value 0.
func crc16[T ~string | ~[]byte](key T, first, end int) uint16 {
	var crc uint16
	for i := first; i < end; i++ {
		crc = crc<<8 ^ crcTable[byte(crc>>8)^key[i]]
	}
	return crc
}

var crcTable = makeCRCTable()

func makeCRCTable() (table [256]uint16) {
	const polynomial = 1<<12 | 1<<5 | 1
	for i := range table {
		crc := uint16(i) << 8
		for range 8 {
			carry := crc>>15 == 1
			crc <<= 1
			if carry {
				crc ^= polynomial
			}
		}
		table[i] = crc
	}
	return table
}
