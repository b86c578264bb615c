-- Semaphore, set: sets up a semaphore, with permits that have ids or without.
-- KEYS  1 semaphore  2 its channel  3 latch: the outcome of this very request, should it be repeated  4 line, if there is one
-- ARGV  1 lifetime in ms of the latch, behind the moment when this is too late  2 publish command
--       3 permits  4 lifetime of the semaphore in ms, 0 for one without end
--       5 when this is too late, in ms since 1970  6 what the server knows of listeners  7 client's id
-- Returns late and the server's time as a status when it is too late, which changes nothing; otherwise
--         1, or 0 when it has been set up before.
local semaphore, channel, latch, line = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local lifetime, publish, permits, ends, last = tonumber(ARGV[1]), ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])

-- all_change.lua
-- all_line.lua
-- all_number.lua
if value then
    redis.call('set', latch, 0, 'px', last - now + lifetime)
    return 0
end
if ends == '0' then
    redis.call('set', semaphore, permits)
else
    redis.call('set', semaphore, permits, 'px', ends)
end
tellFree(line, channel, publish, ARGV[6], ARGV[7], permits, tonumber(permits), 0)
redis.call('set', latch, 1, 'px', last - now + lifetime)
return 1
