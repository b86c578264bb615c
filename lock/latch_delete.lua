-- Countdown latch, delete: deletes the latch, and releases who waits for it.
-- KEYS  1 latch  2 its channel  3 latch of the other sense: the outcome of this very request, should it be repeated
-- ARGV  1 lifetime of the outcome in ms  2 publish command
-- Returns 1, or 0 when there was nothing to delete.
local countdown, channel, latch = KEYS[1], KEYS[2], KEYS[3]
local lifetime, publish = ARGV[1], ARGV[2]

local outcome = redis.call('get', latch)
if outcome then
    return tonumber(outcome)
end
if not string.match(redis.call('get', countdown) or '0', '^%-?%d+$') then
    return redis.error_reply('WRONGTYPE not a count')
end
local deleted = redis.call('del', countdown)
if deleted == 1 then
    redis.pcall(publish, channel, '1') -- as Redisson has it
    redis.pcall(publish, channel, '0') -- without which Redisson's waiters would wait for ever
end
redis.call('set', latch, deleted, 'px', lifetime)
return deleted
