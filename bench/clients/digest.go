package clients

import (
	"crypto/sha1"
	"encoding/hex"
)

// digest is what EVALSHA calls Source by.
var digest = func() string {
	sum := sha1.Sum([]byte(Source))
	return hex.EncodeToString(sum[:])
}()
