package clients

import (
	"crypto/sha1"
	"encoding/hex"
)

// digest is the digest of Source for EVALSHA.
var digest = func() string {
	sum := sha1.Sum([]byte(Source))
	return hex.EncodeToString(sum[:])
}()
