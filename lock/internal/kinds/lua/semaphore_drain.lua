-- Semaphore, drain: takes all permits that are free, or adds those that are lacking.
-- KEYS  1 semaphore  2 its channel  3 latch: the outcome of this very request, should it be repeated
-- ARGV  1 lifetime in ms of the latch, behind the moment when this is too late  2 not used
--       3 when this is too late, in ms since 1970
-- Returns late and the server's time as a status when it is too late, which changes nothing; otherwise
--         the number of permits taken, less than 0 when so many were lacking.
local semaphore, latch = KEYS[1], KEYS[3]
local lifetime, last = tonumber(ARGV[1]), tonumber(ARGV[3])

-- all_late.lua
local outcome, free = unpack(redis.call('mget', latch, semaphore))
if tonumber(outcome or nil) then -- and not '', of a request that was refused
    return tonumber(outcome)
end
free = free or redis.call('get', semaphore) or '0' -- an error, if it has another type
if not string.match(free, '^%-?%d+$') then
    return redis.error_reply('WRONGTYPE The key does not hold a number')
end
free = tonumber(free)
redis.call('set', latch, free, 'px', last - now + lifetime) -- first, so that a user who may not set it changes nothing
if free ~= 0 and type(redis.pcall('decrby', semaphore, free)) == 'table' then -- and not set, which would end the key's lease
    redis.call('set', latch, '', 'px', 1) -- or else a repeat would be taken for done
    redis.call('decrby', semaphore, free) -- refused again: the error of the script
end
return free
