-- redisson read lock, release: takes a read hold back; the lock lives as long as the longest hold that is left.
-- KEYS  1 lock  2 channel  3 prefix of the keys of the owner's holds  4 prefix of those of all owners  5 latch
-- ARGV  1 message  2 owner  3 publish command  4 life of the latch in ms
-- Returns 1 if the lock is free, 0 if holds are left, nil if the owner has none.
local lock, channel, own, all, latch = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local message, owner, publish, life = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
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
if redis.call('hexists', lock, owner) == 0 then
    return nil
end
local count = redis.call('hincrby', lock, owner, -1)
if count == 0 then
    redis.call('hdel', lock, owner)
end
redis.call('del', own .. ':' .. (count + 1))
if redis.call('hlen', lock) > 1 then
    local longest = -3
    for _, field in ipairs(redis.call('hkeys', lock)) do
        for hold = tonumber(redis.call('hget', lock, field)) or 0, 1, -1 do
            longest = math.max(longest, redis.call('pttl', all .. ':' .. field .. ':rwlock_timeout:' .. hold))
        end
    end
    if longest > 0 then
        redis.call('pexpire', lock, longest)
    end
    if longest > 0 or mode == 'write' then
        redis.call('set', latch, 0, 'px', life)
        return 0
    end
end
redis.call('del', lock)
redis.call(publish, channel, message)
redis.call('set', latch, 1, 'px', life)
return 1
