-- Semaphore, add: adds permits to the free ones, or takes some away; gives permits back.
-- KEYS  1 semaphore  2 its channel  3 latch: the outcome of this very request, should it be repeated  4 line, if there is one
-- ARGV  1 lifetime in ms of the latch, behind the moment when this is too late  2 publish command
--       3 permits  4 1 to add to a semaphore that is there already and to no other
--       5 when this is too late, in ms since 1970  6 what the server knows of listeners  7 client's id
-- Returns late and the server's time as a status when it is too late, which changes nothing; otherwise
--         1 when they are added, 0 when there is no semaphore to add to.
local semaphore, channel, latch, line = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local lifetime, publish, permits, existing, last = tonumber(ARGV[1]), ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])

-- all_late.lua
local outcome, free = unpack(redis.call('mget', latch, semaphore))
if tonumber(outcome or nil) then -- and not '', of a request that was refused
    return tonumber(outcome)
end
free = free or redis.call('get', semaphore) -- for the error, if it has another type
if free and not string.match(free, '^%-?%d+$') then
    return redis.error_reply('WRONGTYPE The key does not hold a number')
end
-- A write that needs no memory: after it a server that has run out of that does not refuse the others. It asks for the line, too.
local lined = redis.call('pexpire', line or latch, 25000) == 1
if existing == '1' and not free then
    redis.call('set', latch, 0, 'px', last - now + lifetime)
    return 0
end
redis.call('set', latch, 1, 'px', last - now + lifetime) -- first, so that a user who may not set it changes nothing
local available = redis.pcall('incrby', semaphore, permits)
if type(available) == 'table' then
    redis.call('set', latch, '', 'px', 1) -- or else a repeat would be taken for done
    redis.call('incrby', semaphore, permits) -- refused again: the error of the script
end
local message, before, result, heard, stand = math.max(0, available), available - permits, 1, 6, ''
local quiet = not lined
-- all_tell.lua
