-- Countdown latch, set: sets the count where there is none.
-- KEYS  1 latch  2 its channel  3 latch of the other sense: the outcome of this very request, should it be repeated
-- ARGV  1 lifetime of the outcome in ms  2 publish command  3 count
-- Returns 1, or 0 when there is a count already.
local countdown, channel, latch = KEYS[1], KEYS[2], KEYS[3]
local lifetime, publish, count = ARGV[1], ARGV[2], ARGV[3]

local outcome = redis.call('get', latch)
if outcome then
    return tonumber(outcome)
end
local left = redis.call('get', countdown)
if left and not string.match(left, '^%-?%d+$') then
    return redis.error_reply('WRONGTYPE not a count')
end
if left then
    redis.call('set', latch, 0, 'px', lifetime)
    return 0
end
redis.call('set', countdown, count)
redis.pcall(publish, channel, '1') -- a user who may not publish leaves waiters to look by themselves
redis.call('set', latch, 1, 'px', lifetime)
return 1
