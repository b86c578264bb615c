package resp

import "unsafe"

// ownText returns b as a string without a copy. Nobody may write to b afterwards.
func ownText(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
