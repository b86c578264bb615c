package locks

import (
	"crypto/sha1"
	"encoding/hex"
	"strconv"

	"github.com/lockwire/lockwire/bench/floor"
)

// The scripts of the floors: Redisson's work for a hold, and a delete of a caller's own value.
const (
	acquireSource = `if redis.call('exists', KEYS[1]) == 0 then
redis.call('hincrby', KEYS[1], ARGV[2], 1)
redis.call('pexpire', KEYS[1], ARGV[1])
return nil
end
return redis.call('pttl', KEYS[1])`

	releaseSource = `if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then return nil end
if redis.call('hincrby', KEYS[1], ARGV[1], -1) > 0 then return 0 end
redis.call('del', KEYS[1])
redis.call('publish', KEYS[2], '0')
return 1`

	deleteSource = `if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end
return 0`
)

var leaseMillis = strconv.FormatInt(Lease.Milliseconds(), 10)

func digest(source string) string {
	sum := sha1.Sum([]byte(source))
	return hex.EncodeToString(sum[:])
}

func channel(name string) string { return "redisson_lock__channel:{" + name + "}" }

func acquireRequest(name, owner string) []byte {
	return floor.Request("EVALSHA", digest(acquireSource), "1", name, leaseMillis, owner)
}

func releaseRequest(name, owner string) []byte {
	return floor.Request("EVALSHA", digest(releaseSource), "2", name, channel(name), owner)
}

// load makes the server know the scripts.
func load(network, addr string) error {
	c, err := floor.Dial(network, addr, nil)
	if err != nil {
		return err
	}
	defer c.Close()
	for _, source := range []string{acquireSource, releaseSource, deleteSource} {
		if _, err := c.Do(floor.Request("SCRIPT", "LOAD", source)); err != nil {
			return err
		}
	}
	return nil
}
