-- Countdown latch, delete: deletes the latch, and releases who waits for it.
-- KEYS  1 latch  2 its channel  3 latch of the other sense: the outcome of this very request, should it be repeated
-- ARGV  1 lifetime in ms of the outcome, behind the moment when this is too late  2 publish command
--       3 when this is too late, in ms since 1970
-- Returns late and the server's time as a status when it is too late, which changes nothing; otherwise
--         1, or 0 when there was nothing to delete.
local countdown, channel, latch = KEYS[1], KEYS[2], KEYS[3]
local lifetime, publish, last = tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[3])

-- all_change.lua
-- all_number.lua
local deleted = value and 1 or 0
redis.call('del', latch) -- a write that needs no memory: a full server refuses none behind it
redis.call('set', latch, deleted, 'px', last - now + lifetime) -- before the deletion, so that a user who may not set it changes nothing
if deleted == 1 then
    redis.call('del', countdown)
    redis.pcall(publish, channel, '1') -- as Redisson has it
    redis.pcall(publish, channel, '0') -- without which Redisson's waiters would wait for ever
end
return deleted
