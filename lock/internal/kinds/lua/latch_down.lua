-- Countdown latch, down: counts down by one, and deletes the latch with the last one.
-- KEYS  1 latch  2 its channel  3 latch of the other sense: the outcome of this very request, should it be repeated
-- ARGV  1 lifetime in ms of the outcome, behind the moment when this is too late  2 publish command
--       3 when this is too late, in ms since 1970
-- Returns late and the server's time as a status when it is too late, which changes nothing; otherwise
--         the count that is left; 0 also when there was nothing to count.
local countdown, channel, latch = KEYS[1], KEYS[2], KEYS[3]
local lifetime, publish, last = tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[3])

-- all_change.lua
-- all_number.lua
local count = tonumber(value or 0)
local left = math.max(0, count - 1)
redis.call('del', latch) -- a write that needs no memory: a full server refuses none behind it
redis.call('set', latch, left, 'px', last - now + lifetime) -- before the count, so that a user who may not set it changes nothing
if count > 1 then
    if type(redis.pcall('decr', countdown)) == 'table' then
        redis.call('set', latch, '', 'px', 1) -- or else a repeat would be taken for done
        redis.call('decr', countdown) -- refused again: the error of the script
    end
else
    redis.call('del', countdown)
    if count == 1 then
        redis.pcall(publish, channel, '0') -- a user who may not publish leaves waiters to look by themselves
    end
end
return left
