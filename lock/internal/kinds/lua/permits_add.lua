-- Permit semaphore, add: adds permits to the free ones, or takes some away.
-- KEYS  1 semaphore  2 its channel  3 permits that are taken  4 latch: the outcome of this very request, should it be repeated
--       5 line, if there is one
-- ARGV  1 lifetime in ms of the latch, behind the moment when this is too late  2 publish command
--       3 permits  4 1 for the number that there are to be, taken ones included
--       5 when this is too late, in ms since 1970  6 what the server knows of listeners  7 client's id
-- Returns 1; late and the server's time as a status when it is too late, which changes nothing.
local semaphore, channel, permits, latch, line = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local lifetime, publish, count, total, last = tonumber(ARGV[1]), ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])

-- all_change.lua
-- all_line.lua
-- all_number.lua
local more = tonumber(count)
if total == '1' and value then
    more = more - tonumber(value) - redis.call('zcard', permits)
end
redis.call('set', latch, 1, 'px', last - now + lifetime) -- first, so that a user who may not set it changes nothing
if more ~= 0 or not value then
    local available = redis.pcall('incrby', semaphore, more)
    if type(available) == 'table' then
        redis.call('set', latch, '', 'px', 1) -- or else a repeat would be taken for done
        redis.call('incrby', semaphore, more) -- refused again: the error of the script
    end
    if total == '1' or more > 0 then
        tellFree(line, channel, publish, ARGV[6], ARGV[7], count, available, available - more)
    end
end
return 1
