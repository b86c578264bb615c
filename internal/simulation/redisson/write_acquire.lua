-- redisson write lock, acquire: lets a writer in if nobody else is there.
-- KEYS  1 lock
-- ARGV  1 lease in ms  2 owner, with :write behind
-- Returns nil, or the lock's time to live.
local lock, lease, owner = KEYS[1], tonumber(ARGV[1]), ARGV[2]
local mode = redis.call('hget', lock, 'mode')
if not mode then
    redis.call('hset', lock, 'mode', 'write')
    redis.call('hset', lock, owner, 1)
    redis.call('pexpire', lock, lease)
    return nil
end
if mode == 'write' and redis.call('hexists', lock, owner) == 1 then
    redis.call('hincrby', lock, owner, 1)
    redis.call('pexpire', lock, redis.call('pttl', lock) + lease)
    return nil
end
return redis.call('pttl', lock)
