-- redisson write lock, release: takes a write hold back, and tells everybody when nobody is left.
-- KEYS  1 lock  2 channel  3 latch
-- ARGV  1 message  2 lease in ms  3 owner, with :write behind  4 publish command  5 life of the latch in ms
-- Returns 1 if the owner writes no more, 0 if holds are left, nil if the owner has none.
local lock, channel, latch = KEYS[1], KEYS[2], KEYS[3]
local message, lease, owner, publish, life = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local outcome = redis.call('get', latch)
if outcome then
    return tonumber(outcome)
end
local mode = redis.call('hget', lock, 'mode')
if not mode then
    redis.call(publish, channel, message)
    redis.call('set', latch, 1, 'px', life)
    return nil
end
if mode ~= 'write' or redis.call('hexists', lock, owner) == 0 then
    return nil
end
if redis.call('hincrby', lock, owner, -1) > 0 then
    redis.call('pexpire', lock, lease)
    redis.call('set', latch, 0, 'px', life)
    return 0
end
redis.call('hdel', lock, owner)
if redis.call('hlen', lock) == 1 then
    redis.call('del', lock)
    redis.call(publish, channel, message)
else
    redis.call('hset', lock, 'mode', 'read')
end
redis.call('set', latch, 1, 'px', life)
return 1
