-- Countdown latch, set: sets the count where there is none.
-- KEYS  1 latch  2 its channel  3 latch of the other sense: the outcome of this very request, should it be repeated
-- ARGV  1 lifetime in ms of the outcome, behind the moment when this is too late  2 publish command  3 count
--       4 when this is too late, in ms since 1970
-- Returns late and the server's time as a status when it is too late, which changes nothing; otherwise
--         1, or 0 when there is a count already.
local countdown, channel, latch = KEYS[1], KEYS[2], KEYS[3]
local lifetime, publish, count, last = tonumber(ARGV[1]), ARGV[2], ARGV[3], tonumber(ARGV[4])

-- all_change.lua
-- all_number.lua
if value then
    redis.call('set', latch, 0, 'px', last - now + lifetime)
    return 0
end
redis.call('set', countdown, count)
redis.pcall(publish, channel, '1') -- a user who may not publish leaves waiters to look by themselves
redis.call('set', latch, 1, 'px', last - now + lifetime)
return 1
