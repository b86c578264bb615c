-- redisson read lock, acquire: lets a reader in unless somebody else writes.
-- KEYS  1 lock  2 prefix of the keys of the owner's holds
-- ARGV  1 lease in ms  2 owner
-- Returns nil, or the lock's time to live.
local lock, prefix, lease, owner = KEYS[1], KEYS[2], tonumber(ARGV[1]), ARGV[2]
local mode = redis.call('hget', lock, 'mode')
if not mode then
    redis.call('hset', lock, 'mode', 'read')
    redis.call('hset', lock, owner, 1)
    redis.call('set', prefix .. ':1', 1, 'px', lease)
    redis.call('pexpire', lock, lease)
    return nil
end
if mode == 'write' and redis.call('hexists', lock, owner .. ':write') == 0 then
    return redis.call('pttl', lock)
end
redis.call('set', prefix .. ':' .. redis.call('hincrby', lock, owner, 1), 1, 'px', lease)
redis.call('pexpire', lock, math.max(redis.call('pttl', lock), lease))
return nil
