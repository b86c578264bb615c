package locks

import (
	"crypto/sha1"
	"encoding/hex"
	"strconv"

	"github.com/lockwire/lockwire/bench/floor"
)

// deleteSource deletes a caller's own value.
const deleteSource = `if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end
return 0`

var leaseMillis = strconv.FormatInt(Lease.Milliseconds(), 10)

func digest(source string) string {
	sum := sha1.Sum([]byte(source))
	return hex.EncodeToString(sum[:])
}

// Protocol is what Redisson's scripts do for one hold, by hand: KEYS are the lock, its channel and a key of its own, ARGV are the
// lease in ms and the owner. A refusal is the time in ms until a further look.
type Protocol struct {
	Name             string // of the kind, as in [Kinds]
	channel          string
	acquire, release string
	counted          bool // a number of permits
}

// lockProtocol is that of Redisson's RLock.
var lockProtocol = Protocol{"Reentrant", "redisson_lock__channel", `if redis.call('exists', KEYS[1]) == 0 then
redis.call('hincrby', KEYS[1], ARGV[2], 1)
redis.call('pexpire', KEYS[1], ARGV[1])
return nil
end
return redis.call('pttl', KEYS[1])`, `if redis.call('hexists', KEYS[1], ARGV[2]) == 0 then return nil end
if redis.call('hincrby', KEYS[1], ARGV[2], -1) > 0 then return 0 end
redis.call('del', KEYS[1])
redis.call('publish', KEYS[2], '0')
return 1`, false}

// Protocols are those of the kinds for which several processes wait in a line.
var Protocols = []Protocol{
	lockProtocol,
	{"write", "redisson_rwlock", `if not redis.call('hget', KEYS[1], 'mode') then
redis.call('hset', KEYS[1], 'mode', 'write', ARGV[2], 1)
redis.call('pexpire', KEYS[1], ARGV[1])
return nil
end
return redis.call('pttl', KEYS[1])`, `if redis.call('hget', KEYS[1], 'mode') ~= 'write' or redis.call('hexists', KEYS[1], ARGV[2]) == 0 then return nil end
redis.call('del', KEYS[1])
redis.call('publish', KEYS[2], '1')
return 1`, false},
	{"Semaphore", "redisson_sc", `if tonumber(redis.call('get', KEYS[1])) > 0 then
redis.call('decrby', KEYS[1], 1)
return nil
end
return tonumber(ARGV[1])`, `redis.call('publish', KEYS[2], redis.call('incrby', KEYS[1], 1))
return 1`, true},
	{"PermitSemaphore", "redisson_sc", `if tonumber(redis.call('get', KEYS[1])) > 0 then
local time = redis.call('time')
redis.call('zadd', KEYS[3], time[1] * 1000 + ARGV[1], string.sub(ARGV[2], -16))
redis.call('decrby', KEYS[1], 1)
return nil
end
return tonumber(ARGV[1])`, `if redis.call('zrem', KEYS[3], string.sub(ARGV[2], -16)) == 0 then return nil end
redis.call('publish', KEYS[2], redis.call('incrby', KEYS[1], 1))
return 1`, true},
}

func (p Protocol) request(source, name, owner string) []byte {
	return floor.Request("EVALSHA", digest(source), "3", name, p.channel+":{"+name+"}", "{"+name+"}:timeout", leaseMillis, owner)
}

// load makes the server know the scripts.
func load(network, addr string) error {
	c, err := floor.Dial(network, addr, nil)
	if err != nil {
		return err
	}
	defer c.Close()
	sources := []string{deleteSource}
	for _, p := range Protocols {
		sources = append(sources, p.acquire, p.release)
	}
	for _, source := range sources {
		if _, err := c.Do(floor.Request("SCRIPT", "LOAD", source)); err != nil {
			return err
		}
	}
	return nil
}
