-- redisson lock, release: takes a hold back, and tells everybody when it was the last.
-- KEYS  1 lock  2 channel  3 latch
-- ARGV  1 message  2 lease in ms  3 owner  4 publish command  5 life of the latch in ms
-- Returns 1 if the lock is free, 0 if holds are left, nil if the owner has none.
local lock, channel, latch = KEYS[1], KEYS[2], KEYS[3]
local message, lease, owner, publish, life = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local outcome = redis.call('get', latch)
if outcome then
    return tonumber(outcome)
end
if redis.call('hexists', lock, owner) == 0 then
    return nil
end
if redis.call('hincrby', lock, owner, -1) > 0 then
    redis.call('pexpire', lock, lease)
    redis.call('set', latch, 0, 'px', life)
    return 0
end
redis.call('del', lock)
redis.call(publish, channel, message)
redis.call('set', latch, 1, 'px', life)
return 1
