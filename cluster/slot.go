package cluster

// Slots is the number of hash slots in a cluster. Slots are numbered from 0 to Slots-1.
const Slots = 16384

// Slot returns the hash slot of a key. A key may have a hash tag: the text between the first { and
// the next }, unless empty. With a hash tag only the tag is hashed, so keys with the same tag are
// in the same slot.
func Slot[T ~string | ~[]byte](key T) int { return int(crc16(hashed(key)) % Slots) }

// hashed returns the part of a key to be hashed.
func hashed[T ~string | ~[]byte](key T) T {
	if open := index(key, '{'); open < len(key) {
		tag := key[open+1:]
		if end := index(tag, '}'); 0 < end && end < len(tag) {
			return tag[:end]
		}
	}
	return key
}

// index returns the first index of b in text, or len(text).
func index[T ~string | ~[]byte](text T, b byte) int {
	for i := range len(text) {
		if text[i] == b {
			return i
		}
	}
	return len(text)
}

// crc16 returns CRC-16/XMODEM: polynomial x^16 + x^12 + x^5 + 1, nothing reversed, initial value 0.
func crc16[T ~string | ~[]byte](text T) uint16 {
	var crc uint16
	for i := range len(text) {
		crc = crc<<8 ^ crcTable[byte(crc>>8)^text[i]]
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
